"""What the server refuses, how it steps, what it keeps apart, and who is exposed to what."""

import math
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coterie import algorithms, attacks, defences, regulariser
from coterie.attack import Attack
from coterie.data import synthetic
from coterie.engine import checkpoint, intake
from coterie.engine.attackers import Threat
from coterie.engine.evaluate import exposure
from coterie.engine.federation import Guard
from coterie.engine.robustness import Robustness, controls_of, targets_of
from coterie.engine.simulate import Conduct, Simulation
from coterie.errors import CoterieError
from coterie.evaluation import protocols
from coterie.regulariser import Popularity, Sides
from coterie.testing import fuzz

SMALL = {"embedding_dim": 4, "layers": (4,), "lr": 0.05, "server_lr": 0.05}


class Upload(NamedTuple):
    items: np.ndarray
    head: np.ndarray


LIKE = Upload(np.zeros((3, 2), np.float32), np.zeros(2, np.float32))


@pytest.fixture(scope="module")
def problem():
    data = synthetic.make(users=50, items=80, interactions_per_user=12, seed=3)
    return protocols.prepare(data, "ratio-full")


def threat(name="a_hum", share=0.1, target="least-popular", **settings):
    attack = attacks.get(name)
    return Threat(attack, attack.Config(**settings), share, target)


def run(problem, name="fedsgd", robustness=None, rounds=2, settings=SMALL, **conduct):
    made = Conduct(rounds=rounds, **conduct)
    return Simulation(algorithms.get(name), dict(settings), problem, made, robustness=robustness, buckets=1)


def advanced(simulation):
    while not simulation.finished:
        simulation.advance()
    return simulation


# -- uploads that are refused ---------------------------------------------------------------------------------


def test_a_good_upload_passes_as_it_is():
    good = Upload(np.ones((3, 2), np.float32), np.ones(2, np.float32))
    taken = intake.checked(good, LIKE, bound=math.sqrt(8) + 1e-3)
    np.testing.assert_array_equal(taken.items, good.items)


def test_rows_become_a_table():
    rows = intake.Rows(np.array([2, 0]), np.array([[1, 2], [3, 4]], np.float32))
    taken = intake.checked(Upload(rows, np.zeros(2, np.float32)), LIKE, None)
    np.testing.assert_array_equal(taken.items, [[3, 4], [0, 0], [1, 2]])


def test_no_rows_at_all_are_a_table_of_zeros():
    none = intake.Rows(np.zeros(0, np.int64), np.zeros((0, 2), np.float32))
    assert not intake.checked(Upload(none, np.zeros(2, np.float32)), LIKE, None).items.any()


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_every_kind_of_nonsense_is_refused(kind):
    with pytest.raises(CoterieError):
        intake.checked(fuzz.KINDS[kind](LIKE, "items"), LIKE, None)


def test_an_upload_that_is_too_long_is_refused_by_its_length():
    with pytest.raises(CoterieError, match=r"its length is 2\.45, and 2 is the most"):
        intake.checked(Upload(np.ones((3, 2), np.float32), np.zeros(2, np.float32)), LIKE, bound=2.0)


def test_fuzzed_uploads_change_nothing_and_are_named(problem):
    noise = Threat(Attack.from_module(fuzz), fuzz.Config(), 1.0, "least-popular")
    clean = advanced(run(problem))
    fuzzed = advanced(run(problem, robustness=Robustness(threat=noise)))
    for a, b in zip(jax.tree.leaves(clean.state.server), jax.tree.leaves(fuzzed.state.server), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [len(record.refused) for record in fuzzed.history] == [50, 50]
    assert fuzzed.history[0].refused[0].startswith("malicious client 0: its upload was refused, ")
    assert fuzzed.best.record.test == clean.best.record.test
    assert fuzzed.ledger.up == clean.ledger.up


def spoiled(algorithm, client, value):
    """An algorithm of which one client sends a number that is none."""

    def local_update(key, config, download, private, data):
        upload, private, measured = algorithm.local_update(key, config, download, private, data)
        bad = private.users[0, 0] == private.users[0, 0]  # always; keeps the value out of constant folding
        spoil = jnp.where(bad & (data.count > 0) & (data.items[0] % 2 == client), value, 0.0)
        return upload._replace(items=upload.items + spoil), private, measured

    return replace(algorithm, local_update=local_update)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_an_honest_client_whose_numbers_break_is_left_out(problem, value):
    simulation = Simulation(
        spoiled(algorithms.get("fedsgd"), 1, value), dict(SMALL), problem, Conduct(rounds=1), rows=False, buckets=1
    )
    record = simulation.advance()
    assert 0 < len(record.refused) < 50 and record.clients == 50 - len(record.refused)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(simulation.state.server))
    assert "not finite" in record.refused[0]


def test_a_bound_refuses_long_uploads(problem):
    lengths = advanced(run(problem, rounds=1))
    bounded = advanced(run(problem, rounds=1, robustness=Robustness(bound=1e-6)))
    assert lengths.history[0].clients == 50 and bounded.history[0].clients == 0
    assert len(bounded.history[0].refused) == 50


# -- combinations that make no sense --------------------------------------------------------------------------


def guard(name="trimmed_mean"):
    return Guard(defences.get(name), defences.get(name).Config())


@pytest.mark.parametrize(
    ("name", "robustness", "sentence"),
    [
        ("fedsgd", {"guard": guard(), "secure_sums": True}, "defence trimmed_mean must see single ones"),
        ("gpfedrec", {"secure_sums": True}, "gpfedrec must see single ones"),
        ("cofedrec", {"guard": guard()}, "cofedrec has none"),
        ("mf", {"threat": threat()}, "mf has none"),
        ("popularity", {"threat": threat()}, "popularity has none"),
    ],
)
def test_refused_combinations(problem, name, robustness, sentence):
    with pytest.raises(CoterieError, match=sentence):
        run(problem, name, Robustness(**robustness), settings={})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"server_optimiser": "adam"}, "needs uploads that are changes"), ({"regulariser": "popularity"}, "has none")],
)
def test_refused_settings(problem, settings, sentence):
    with pytest.raises(CoterieError, match=sentence):
        run(problem, "local", settings=settings)


# -- the server's step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["sum", "mean", "weighted", "per_item_mean"])
def test_a_server_step_is_a_step_of_its_optimiser(problem, rule):
    """The first step of Adam moves every number that has a gradient by the rate; SGD is the change times it."""
    plain = advanced(run(problem, rounds=1, settings=SMALL | {"server_optimiser": "none", "aggregation": rule}))
    start = run(problem).state.server
    change = jax.tree.map(jnp.subtract, plain.state.server, start)
    for name, make in (("sgd", optax.sgd), ("adam", optax.adam)):
        stepped = advanced(run(problem, rounds=1, settings=SMALL | {"server_optimiser": name, "aggregation": rule}))
        gradient = jax.tree.map(jnp.negative, change)
        step, _ = make(0.05).update(gradient, make(0.05).init(start))
        for a, b in zip(
            jax.tree.leaves(optax.apply_updates(start, step)), jax.tree.leaves(stepped.state.server), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_moments_memories_and_attackers_survive_a_checkpoint(problem, tmp_path):
    robustness = Robustness(threat=threat("a_hum", hard_lr=0.1), guard=guard("hics"))
    words = {"participation": "batches", "clients_per_step": 20, "rounds": 4, "robustness": robustness}
    whole = advanced(run(problem, **words))
    half = run(problem, **words)
    half.advance()
    half.advance()
    checkpoint.save(tmp_path / "c", half, {})
    rest = run(problem, **words)
    checkpoint.load(tmp_path / "c", rest, {})
    advanced(rest)
    for part in ("server", "beside", "stores"):
        pairs = zip(*(jax.tree.leaves(getattr(each.state, part)) for each in (whole, rest)), strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one, other)
    assert whole.history[-1].exposure == rest.history[-1].exposure


# -- the regulariser ------------------------------------------------------------------------------------------


def test_closeness_by_hand():
    table = jnp.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [-1.0, 0.0]])
    found = regulariser.closeness(table, jnp.array([0, 1]), jnp.array([2, 3]), 0.5)
    first, second = math.log(math.exp(2) + math.exp(-2)), math.log(2)
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-5)


def test_it_drives_hot_and_other_items_apart_and_leaves_the_rest_of_the_state():
    table = jax.random.normal(jax.random.key(0), (60, 8)) + 1.0
    config = Popularity(hot_items=10, regulariser_steps=20, regulariser_lr=0.05)
    sides = Sides.of(config, jnp.arange(60)[::-1])
    assert sides.hot.tolist() == list(range(10)) and len(sides.normal) == 50
    after, _ = regulariser.apply(jax.random.key(1), config, table, sides, regulariser.init(config, table))

    def cosine(rows):
        unit = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
        return float((unit[sides.hot] @ unit[sides.normal].T).mean())

    assert cosine(after) < cosine(table) - 0.1


def test_any_algorithm_with_a_table_can_use_it(problem):
    plain, kept_apart = (
        advanced(run(problem, "fedmf", rounds=1, settings={"embedding_dim": 4, "regulariser": name}))
        for name in ("none", "popularity")
    )
    moved = np.abs(np.asarray(plain.state.server.items) - np.asarray(kept_apart.state.server.items)).max(1)
    assert (moved > 0).sum() > 10


# -- targets and exposure -------------------------------------------------------------------------------------


def test_targets(problem):
    counts = np.bincount(problem.data.items, minlength=80)
    assert targets_of("least-popular", problem).tolist() == [int(counts.argmin())]
    band = targets_of("popularity:0.9-1", problem)
    assert len(band) == 1 and counts[band[0]] >= np.sort(counts)[72]
    named = ",".join(problem.data.item_ids[item] for item in (5, 7))
    assert targets_of(named, problem).tolist() == [5, 7]
    for bad, sentence in (("popularity:2-1", "no band of popularity"), ("nobody", "Item 'nobody' is not in")):
        with pytest.raises(CoterieError, match=sentence):
            targets_of(bad, problem)


def test_controls_are_as_popular_and_no_targets(problem):
    counts = np.bincount(problem.data.items, minlength=80)
    target = targets_of("popularity:0.4-0.5", problem)
    controls = controls_of(target, problem)
    assert len(controls) == 5 and target[0] not in controls
    assert np.abs(counts[controls] - counts[target[0]]).max() <= np.sort(np.abs(counts - counts[target[0]]))[5]


def test_exposure_by_hand():
    ranks = np.array([[1, 9], [5, 0], [6, 5], [0, 3]])
    found = exposure(ranks, 1)
    assert found["er@5"] == pytest.approx(2 / 3) and found["er@10"] == 1.0
    assert found["control er@5"] == pytest.approx(2 / 3)


def test_watched_ranks_follow_the_whole_lists(problem):
    simulation = advanced(run(problem, robustness=Robustness(threat=threat())))
    answers, data = simulation.ask(), problem.data
    scores = simulation.top(simulation.state, data.n_items, problem.masked("test"))
    target = int(simulation.targets[0])
    for user in range(data.n_users):
        met = data.items[data.users == user]
        listed = {
            i: s for i, s in zip(scores.items[user].tolist(), scores.scores[user].tolist(), strict=True) if i >= 0
        }
        rivals = [score for item, score in listed.items() if item not in met and item != target]
        expected = 0 if target in met else 1 + sum(score >= listed[target] for score in rivals)
        assert answers.watched[user, 0] == expected


def test_sampled_protocols_measure_exposure_too():
    data = synthetic.make(users=30, items=320, interactions_per_user=8, seed=1)
    simulation = advanced(run(protocols.prepare(data, "loo99"), "fedmf", Robustness(threat=threat()), settings={}))
    assert set(simulation.history[-1].exposure) >= {"er@5", "control er@5"}
