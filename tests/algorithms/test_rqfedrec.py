"""RQFedRec and what it is made of, against numbers worked out from its equations."""

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms, quantisation
from coterie.algorithm import Catalogue
from coterie.algorithms import fedcia, rqfedrec
from coterie.data import synthetic
from coterie.engine.simulate import Conduct, Simulation
from coterie.evaluation import protocols
from coterie.evaluation.protocols import ProtocolOptions
from coterie.quantisation import Channel, reconstruct

KEY = jax.random.key(0)
DATA = synthetic.make(users=24, items=80, interactions_per_user=10)


ROUNDS = 5


class Ran(NamedTuple):
    """A small run: the simulation at its end, and the server's state before the first round and after each."""

    sim: Simulation
    servers: list


@lru_cache(maxsize=1)
def ran(**settings):
    sim = Simulation(
        algorithms.get("rqfedrec"),
        {"embedding_dim": 6, "codes": 8, "lr": 0.05, "refresh_every": 2, "warm_up": 4, **settings},
        protocols.prepare(DATA, "groups", options=ProtocolOptions(clients=6)),
        Conduct(rounds=ROUNDS, eval_every=ROUNDS),
        buckets=1,
    )
    servers = [sim.state.server]
    while not sim.finished:
        sim.advance()
        servers.append(sim.state.server)
    return Ran(sim, servers)


# -- quantisation -----------------------------------------------------------------------------------------------


def test_reconstruction_by_hand():
    codes = jnp.array([[[1.0, 0.0], [10.0, 0.0]], [[0.0, 2.0], [0.0, 20.0]]])
    assert reconstruct(codes, jnp.array([[0, 1], [1, 0]])).tolist() == [[1.0, 20.0], [10.0, 2.0]]
    rows = jnp.array([[1.0, 1.0], [3.0, 5.0]])
    assert quantisation.gathered(rows, jnp.array([[0, 1], [1, 1]]), 2).tolist() == [
        [[1.0, 1.0], [3.0, 5.0]],
        [[0.0, 0.0], [4.0, 6.0]],
    ]


def test_kmeans_of_two_pairs_and_a_centre_that_lost_its_points():
    points = jnp.array([[0.0], [1.0], [10.0], [12.0]])
    ids, centres = quantisation.kmeans(points, jnp.array([[0.0], [9.0]]), 10)
    assert ids.tolist() == [0, 0, 1, 1] and centres.tolist() == [[0.5], [11.0]]
    # The centre at 99 is nobody's: it moves to the point farthest from its own centre, which is 12.
    ids, centres = quantisation.kmeans(points, jnp.array([[0.0], [9.0], [99.0]]), 10)
    assert ids.tolist() == [0, 0, 1, 2] and centres.tolist() == [[0.5], [10.0], [12.0]]


def test_residual_energy_falls_with_every_level():
    points = jax.random.normal(KEY, (60, 5))
    found = quantisation.quantise(KEY, points, jnp.zeros((4, 6, 5)), True, 30)
    left, energies = points, [float(jnp.sum(points**2))]
    for level in range(4):
        # The id is that of the nearest centre (eq. 2).
        away = ((np.asarray(left)[:, None] - np.asarray(found.centres[level])[None]) ** 2).sum(-1)
        np.testing.assert_array_equal(found.ids[:, level], away.argmin(1))
        left = left - found.centres[level][found.ids[:, level]]
        energies.append(float(jnp.sum(left**2)))
    assert all(after < before for before, after in pairwise(energies))
    again = quantisation.quantise(KEY, points, jnp.zeros((4, 6, 5)), True, 30)
    np.testing.assert_array_equal(found.ids, again.ids)
    warm = quantisation.quantise(jax.random.key(9), points, found.centres, False, 30)
    np.testing.assert_array_equal(found.ids, warm.ids, err_msg="from where it ended nothing moves")


@pytest.mark.parametrize("d", [3, 2 * quantisation.STRIP + 1])
def test_ridge_is_the_minimiser_and_leaves_other_codes_alone(d):
    rng = np.random.default_rng(0)
    n, levels, size, penalty = 12, 2, 5, 0.3
    ids = [jnp.asarray(rng.integers(0, size - 1, (n, levels))) for _ in range(2)]
    here = (np.arange(n) < 9).astype(np.float32)
    wanted, weights = rng.normal(size=(n, d)), (0.7, 0.3)
    columns = []
    for weight, of in zip(weights, ids, strict=True):
        picked = np.zeros((n, levels, size))
        picked[np.arange(n)[:, None], np.arange(levels)[None], np.asarray(of)] = weight
        columns.append(picked.reshape(n, -1))
    matrix = np.concatenate(columns, 1)[:9]
    counts = np.concatenate([(part[:9] > 0).sum(0) for part in columns])
    used = counts > 0
    share = np.repeat(weights, levels * size)[used]
    normal = matrix[:, used].T @ matrix[:, used] + penalty * np.diag(share * counts[used])
    expected = np.zeros((len(counts), d))
    expected[used] = np.linalg.solve(normal, matrix[:, used].T @ wanted[:9])
    channels = [Channel(of, weight) for of, weight in zip(ids, weights, strict=True)]
    found = quantisation.ridge(channels, size, jnp.asarray(wanted, jnp.float32), jnp.asarray(here), penalty, 60)
    np.testing.assert_allclose(np.concatenate([each.reshape(-1, d) for each in found]), expected, atol=2e-4)
    assert all(not np.asarray(each)[:, size - 1].any() for each in found), "no item has the last code"
    stepped = quantisation.descend(channels, size, jnp.asarray(wanted, jnp.float32), jnp.asarray(here), 0.01, 5)
    assert all(not np.asarray(each)[:, size - 1].any() for each in stepped)
    many = quantisation.descend(channels, size, jnp.asarray(wanted, jnp.float32), jnp.asarray(here), 0.05, 800)
    exact = quantisation.ridge(channels, size, jnp.asarray(wanted, jnp.float32), jnp.asarray(here), 1e-3, 100)

    def error(changes):
        parts = (c.weight * reconstruct(change, c.ids) for c, change in zip(channels, changes, strict=True))
        return float((here[:, None] * (wanted - sum(parts)) ** 2).sum())

    assert max(error(many), error(exact)) < 0.01 * float((here[:, None] * wanted**2).sum())


# -- the algorithm ----------------------------------------------------------------------------------------------


def test_rate_is_zero_until_the_first_refresh_and_one_after_the_warm_up():
    config = rqfedrec.Config()
    rates = [float(rqfedrec.collaborative_rate(config, jnp.int32(t - 1))) for t in range(1, 131)]
    assert rates[:10] == [0.0] * 10 and rates[10] == pytest.approx(0.11)
    assert rates[98] == pytest.approx(0.99) and rates[99:] == [1.0] * 31
    only = [rqfedrec.Config(channels=name) for name in rqfedrec.NAMES]
    assert [float(rqfedrec.collaborative_rate(each, jnp.int32(0))) for each in only] == [0.0, 1.0]


def test_item_rows_by_hand():
    config = rqfedrec.Config(refresh_every=1, warm_up=4, codes=2, levels=1)
    view = rqfedrec.Download(
        jnp.array([[[1.0], [2.0]]]), jnp.array([[[10.0], [20.0]]]), jnp.array([[0], [1]]), jnp.array([[1], [0]]), 2
    )
    # r = 3 / 4: 0.25 * 1 + 0.75 * 20 and 0.25 * 2 + 0.75 * 10
    assert rqfedrec.item_rows(config, view)[:, 0].tolist() == [15.25, 8.0]


def refreshed_twice(sim, server):
    """Item rows after a refresh and after another one, and whether any code changed between them."""
    once = rqfedrec.refreshed(KEY, sim.config, server, False)
    twice = rqfedrec.refreshed(jax.random.key(5), sim.config, once, False)
    changed = (np.asarray(once.collaborative_ids) != np.asarray(twice.collaborative_ids)).any()
    return *(rqfedrec.item_rows(sim.config, state) for state in (once, twice)), changed


@pytest.mark.parametrize("rounds", [2, 4])
def test_without_training_there_is_no_refresh(rounds):
    """Both channels count, or the collaborative one alone; a change of one code brings the next refresh."""
    sim, servers = ran()
    end_round = jax.jit(rqfedrec.end_round, static_argnums=1)
    idle = servers[rounds]
    for number in range(2):
        idle = end_round(jax.random.key(number), sim.config, idle)
    assert idle.round == rounds + 2
    for now, before in zip(jax.tree.leaves(idle._replace(round=0)), jax.tree.leaves(servers[rounds]), strict=True):
        if before.shape:
            np.testing.assert_array_equal(now, before)
    upload = rqfedrec.Upload(*(jnp.zeros_like(idle.semantic).at[0, 0, 0].set(1.0) for _ in range(2)), jnp.zeros(1))
    moved = rqfedrec.server_update(KEY, sim.config, idle, rqfedrec.Received(upload, 1.0, 1))
    assert moved.trained and not idle.trained
    refreshed = end_round(KEY, sim.config, moved._replace(round=jnp.int32(rounds + 1)))
    assert not refreshed.trained and (np.asarray(refreshed.centres) != np.asarray(idle.centres)).any()


def test_from_the_old_centres_a_refresh_without_training_changes_nothing():
    sim, servers = ran(warm_start=True)
    for server in servers[2], servers[ROUNDS]:  # both channels count, and the collaborative one alone
        before, after, changed = refreshed_twice(sim, server)
        assert not changed
        np.testing.assert_allclose(before, after, atol=2e-3 * float(jnp.abs(before).max()))


def test_the_first_collaborative_codebook_stands_for_the_semantic_one():
    sim, servers = ran()
    server = servers[2]
    semantic, collaborative = (
        reconstruct(getattr(server, name), getattr(server, f"{name}_ids")) for name in rqfedrec.NAMES
    )
    left = float(jnp.sum((semantic - collaborative) ** 2) / jnp.sum(semantic**2))
    assert left == pytest.approx(float(server.unexplained), rel=1e-4) and left < 0.5
    np.testing.assert_allclose(server.lost, semantic - collaborative, atol=1e-6)
    assert [record.metrics["collaborative_rate"] for record in sim.history] == [0.0, 0.75, 1.0, 1.0, 1.0]
    np.testing.assert_array_equal(servers[4].semantic, servers[5].semantic, err_msg="a channel of weight 0 is frozen")


def test_ledger_counts_whole_messages_and_what_needs_to_travel():
    ledger = ran().sim.ledger
    book, ids, clients = 3 * 8 * 6 * 4, 80 * 3 * 4, 6
    assert ledger.down == 5 * clients * (2 * book + 2 * ids + 4) and ledger.up == 5 * clients * 2 * book
    # Rounds 1, 2: semantic, ids once. Round 3: both (r = 3/4), new ids. Rounds 4, 5: collaborative; new ids in 5.
    needed = (book + ids) + book + (2 * book + ids) + book + (book + ids)
    assert ledger.needed_down == clients * (needed + 5 * 4)
    assert ledger.needed_up == clients * (1 + 1 + 2 + 1 + 1) * book


def test_result_says_where_the_text_came_from():
    assert ran().sim.notes == ("item vectors: TF-IDF of titles and categories, 52 dimensions",)


def test_codes_without_local_items_are_not_changed_and_contributors_are_counted():
    sim, servers = ran()
    config, server = sim.config.model_copy(update={"codebook_mean": "contributors"}), servers[0]
    data = rqfedrec.Samples(jnp.zeros(2, jnp.int32), jnp.array([3, 7]), jnp.array([1.0, 0.0]), 2, 2)
    private = rqfedrec.init_client(KEY, config, sim.catalogue, rqfedrec.Client(0, 1))
    upload, _, _ = rqfedrec.local_update(KEY, config, rqfedrec.download(config, server, None), private, data)
    mine = np.zeros((3, 8), bool)
    mine[np.arange(3)[:, None], np.asarray(server.semantic_ids)[[3, 7]].T] = True
    assert (np.asarray(upload.semantic).any(-1) == mine).all() and not upload.collaborative.any()
    np.testing.assert_array_equal(upload.uses[0], mine)
    received = rqfedrec.Received(jax.tree.map(lambda leaf: 5 * leaf, upload), 50.0, 10)
    after = rqfedrec.server_update(KEY, config, server, received)
    # Five units of weight have the code, so their mean is what each of them sent.
    np.testing.assert_allclose(after.semantic, server.semantic + upload.semantic, atol=1e-6)
    plain = rqfedrec.server_update(KEY, sim.config, server, received)
    np.testing.assert_allclose(plain.semantic, server.semantic + upload.semantic / 10, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"channels": "semantic", "semantic_ids": "hash", "row_noise": 0.01},
        {
            "channels": "collaborative",
            "warm_start": True,
            "fit": "adam",
            "codebook_steps": 20,
            "fit_items": "positives",
        },
        {"fixed_ids": True, "item_embedding": False},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()),
)
def test_variants_learn_something(settings):
    sim, servers = ran(**settings)
    assert sim.history[-1].metrics["loss"] < sim.history[0].metrics["loss"]
    assert not sim.history[-1].refused
    if sim.config.fixed_ids:
        np.testing.assert_array_equal(servers[2].collaborative_ids, servers[5].collaborative_ids)
        np.testing.assert_array_equal(servers[2].centres, servers[5].centres)
    if sim.config.channels == "collaborative":
        assert not refreshed_twice(sim, servers[5])[2] and servers[0].collaborative_ids.any()


# -- what travels -----------------------------------------------------------------------------------------------

TABLE_4 = {1682: (256, 796_524), 3706: (512, 1_595_100), 5237: (512, 1_604_286), 9332: (512, 1_628_856)}


@pytest.mark.parametrize("n_items", TABLE_4)
def test_messages_have_the_size_of_table_4(n_items):
    codes, values = TABLE_4[n_items]
    catalogue = Catalogue(n_items, 1, 1, jnp.zeros(n_items), vectors=jnp.zeros((n_items, 2)))
    config = rqfedrec.resolve(rqfedrec.Config(codes=0 if n_items < 9000 else 512), catalogue)
    assert config.codes == codes
    server = jax.eval_shape(
        lambda: rqfedrec.init_server(KEY, config.model_copy(update={"semantic_ids": "hash"}), catalogue)
    )
    sent = rqfedrec.download(config, server, None)
    # Beside the codebooks and the ids a client is told the number of the round.
    assert sum(leaf.size for leaf in jax.tree.leaves(sent)) == values + 1
    assert sum(leaf.size for leaf in jax.tree.leaves(sent[:2])) == 2 * 3 * codes * 512
    if n_items == 1682:
        assert values / (n_items * 512) == pytest.approx(0.92, abs=0.005)


def test_who_comes_late_is_sent_what_it_has_missed():
    config = rqfedrec.Config()
    down, up = rqfedrec.news(config, 25, np.array([-1, 5, 12, 24]))
    assert down["semantic_ids"].tolist() == [True, False, False, False]
    assert down["collaborative_ids"].tolist() == [True, True, True, False]
    assert up == {"semantic": True, "collaborative": True}
    _, up = rqfedrec.news(config, 99, np.array([98]))
    assert up == {"semantic": False, "collaborative": True}


# -- FedCIA -----------------------------------------------------------------------------------------------------


def test_published_loss_of_fedcia_has_no_inner_product():
    users, rows, labels = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 0.5]]), jnp.array([1.0])
    assert float(fedcia.published_loss(users, rows, labels)[0]) == pytest.approx(((3 - 1) ** 2 + 0) / 2)


def test_fedcia_takes_over_the_mean_similarity():
    config = fedcia.Config(embedding_dim=4)
    tables = [jax.random.normal(jax.random.key(i), (9, 4)) for i in range(2)]
    server = fedcia.Server(tables[0], jnp.int32(0))
    total = fedcia.Upload(sum(table @ table.T for table in tables))
    after = fedcia.server_update(KEY, config, server, fedcia.Received(total, 2.0, 2))
    mean = np.asarray(total.alike) / 2
    values, vectors = np.linalg.eigh(mean)
    best = (vectors[:, -4:] * values[-4:]) @ vectors[:, -4:].T
    np.testing.assert_allclose(after.items @ after.items.T, best, atol=1e-3)
    turned = after.items @ jnp.linalg.qr(jax.random.normal(KEY, (4, 4)))[0]
    np.testing.assert_allclose(fedcia.aligned(turned, after.items), after.items, atol=1e-3)
