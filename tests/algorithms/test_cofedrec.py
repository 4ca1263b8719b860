"""CoFedRec against numbers worked out from its equations."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import algorithms, contrast
from coterie.algorithms import cofedrec
from coterie.data import synthetic
from coterie.engine.simulate import Conduct, Simulation
from coterie.errors import CoterieError
from coterie.evaluation import protocols

TEMPERATURE = 0.2


def example(n=9, d=4, seed=0):
    """Items and categories; the last item is alone in its category."""
    rng = np.random.default_rng(seed)
    labels = np.append(rng.integers(0, 3, n - 1), 3)
    return rng.normal(size=(n, d)), labels


def coded(items, labels, temperature=TEMPERATURE):
    """The published code's contrastive term, as loops."""
    x = items / np.linalg.norm(items, axis=1, keepdims=True)
    n, total = len(x), 0.0
    for i in range(n):
        s = {j: float(x[i] @ x[j]) / temperature for j in range(n) if j != i}
        peers = [j for j in s if labels[j] == labels[i]]
        if peers:
            total += math.log(sum(math.exp(v) for v in s.values())) - sum(s[z] for z in peers) / len(peers)
    return temperature / 0.5 * total / n


def printed(items, labels, temperature=TEMPERATURE):
    """Equation 8, as loops."""
    n, total = len(items), 0.0
    for i in range(n):
        s = {j: math.exp(float(items[i] @ items[j]) / temperature) for j in range(n) if j != i}
        peers = [j for j in s if labels[j] == labels[i]]
        if peers:
            total -= math.log(sum(s[z] / sum(s.values()) for z in peers) / len(peers))
    return total


def slopes(function, items, step=1e-5):
    """Central differences."""
    found = np.zeros_like(items)
    for place in np.ndindex(items.shape):
        up, down = items.copy(), items.copy()
        up[place] += step
        down[place] -= step
        found[place] = (function(up) - function(down)) / (2 * step)
    return found


def test_contrast_of_three_items_by_hand():
    # x1 = x2 = (1, 0) in one category, x3 = (0, 1) alone: s12 = 1/t, s13 = s23 = 0.
    items = jnp.array([[2.0, 0.0], [5.0, 0.0], [0.0, 1.0]])
    t = 0.5
    each = math.log(math.exp(1 / t) + 1) - 1 / t
    assert float(contrast.contrast(items, jnp.array([0, 0, 1]), 2, t)) == pytest.approx(2 * each / 3, rel=1e-6)


@pytest.mark.parametrize(("term", "loops"), [(contrast.contrast, coded), (contrast.printed_contrast, printed)])
def test_contrast_and_its_gradient_follow_the_loops(term, loops):
    items, labels = example()
    value, slope = jax.value_and_grad(term)(jnp.asarray(items, jnp.float32), jnp.asarray(labels), 4, TEMPERATURE)
    assert float(value) == pytest.approx(loops(items, labels), rel=1e-5)
    expected = slopes(lambda moved: loops(moved, labels), items)
    np.testing.assert_allclose(slope, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("temperature", [0.05, 0.1, 0.5])
def test_own_gradient_equals_automatic_differentiation(temperature):
    items, labels = (jnp.asarray(part) for part in example(200, 8))
    items = items.astype(jnp.float32)
    value = lambda items: contrast._contrast(items, labels, 4, temperature)[0]  # noqa: E731
    own, automatic = jax.grad(contrast.contrast)(items, labels, 4, temperature), jax.grad(value)(items)
    np.testing.assert_allclose(own, automatic, atol=1e-5 * np.abs(automatic).max())


def test_blocks_of_pairs_give_what_one_block_gives(monkeypatch):
    items, labels = (jnp.asarray(part) for part in example(430, 8))
    blocked = contrast._contrast(items.astype(jnp.float32), labels, 4, TEMPERATURE)
    monkeypatch.setattr(contrast, "FEW", 1)
    monkeypatch.setattr(contrast, "BLOCK", 430)
    whole = contrast._contrast(items.astype(jnp.float32), labels, 4, TEMPERATURE)
    assert float(blocked[0]) == pytest.approx(float(whole[0]), rel=1e-5)
    np.testing.assert_allclose(blocked[1], whole[1], atol=1e-5 * np.abs(whole[1]).max())


def test_a_sample_of_all_items_is_the_exact_term():
    items, labels = (jnp.asarray(part) for part in example(30))
    items, config = items.astype(jnp.float32), cofedrec.Config(clusters=4)
    order = cofedrec.nn.permutation(jax.random.key(1), 30)
    exact, sampled = (cofedrec.contrast_step(config, 1.0, labels, some, items) for some in (None, order))
    np.testing.assert_allclose(exact, sampled, rtol=1e-5)
    some = cofedrec.contrast_step(config, 1.0, labels, order[:8], items)
    assert 0 < np.any(np.asarray(some != items), axis=1).sum() <= 8


def test_samples_go_round_and_round_a_random_order():
    order = cofedrec.nn.permutation(jax.random.key(2), 7)
    assert sorted(order.tolist()) == list(range(7))
    twice = [*order.tolist(), *order.tolist()]
    assert [cofedrec.window(order, 3, i).tolist() for i in range(4)] == [twice[s : s + 3] for s in (0, 3, 6, 2)]


def test_sampled_gradient_points_the_same_way():
    items, labels = (jnp.asarray(part) for part in example(60, 8))
    items, config = items.astype(jnp.float32), cofedrec.Config(clusters=4)

    def moved(key):
        some = cofedrec.nn.permutation(key, 60)[:30]
        return cofedrec.contrast_step(config, 1.0, labels, some, items) - items

    draws = jax.vmap(moved)(jax.random.split(jax.random.key(0), 200))
    mean, exact = np.mean(draws, 0), -jax.grad(contrast.contrast)(items, labels, 4, config.temperature)
    cosine = np.sum(mean * exact) / np.linalg.norm(mean) / np.linalg.norm(exact)
    assert cosine > 0.9
    assert 0.5 < np.linalg.norm(mean) / np.linalg.norm(exact) < 2


def test_every_few_batches_weighs_as_much():
    items, labels = (jnp.asarray(part) for part in example(30))
    items = items.astype(jnp.float32)
    batch = cofedrec.nn.Batch(*(jnp.ones(1, jnp.int32) for _ in range(2)), jnp.ones(1), jnp.ones(1))
    step = lambda config, number: cofedrec.item_step(config, items, labels, batch, number)  # noqa: E731
    every = cofedrec.Config(supcon="every", supcon_every=3, clusters=4, item_lr=1, weight=0.5)
    once = cofedrec.Config(clusters=4, item_lr=1, weight=0.5)
    np.testing.assert_allclose(step(every, 3) - items, 3 * (step(once, 3) - items), atol=1e-6)
    np.testing.assert_array_equal(step(every, 4), items)
    before = cofedrec.item_step(once, items, jnp.full(30, -1), batch, 0)
    np.testing.assert_array_equal(before, items, err_msg="there is no term before there are categories")


def test_similarity_of_a_batch_by_hand():
    # Items 0, 1, 2 share a category, unit vectors (1,0), (0,1), (1,0); the batch likes 0 and dislikes 1.
    items = jnp.array([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0], [1.0, 1.0]])
    batch = cofedrec.nn.Batch(jnp.zeros(2, jnp.int32), jnp.array([0, 1]), jnp.array([1.0, 0.0]), jnp.ones(2))
    assert float(cofedrec.similarity(items, jnp.array([0, 0, 0, 1]), batch, 2)) == pytest.approx(-(0 + 1) / 2)


# -- the elbow ------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=40), st.floats(0.01, 100))
def test_elbow_is_the_point_farthest_from_the_line(scores, scale):
    falling = np.sort(np.array(scores))[::-1]
    points = np.stack([np.arange(len(falling)), falling * scale], 1)
    line = points[-1] - points[0]
    along = (points - points[0]) @ line / (line @ line)
    distance = np.linalg.norm(points - points[0] - along[:, None] * line, axis=1)
    found = cofedrec.elbow(falling)
    if distance.max() > 1e-3:
        assert distance[found - 1] == pytest.approx(distance.max(), rel=1e-6)
    assert 1 <= found <= len(falling)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_equal_scores_have_no_elbow_and_everybody_is_alike(n):
    assert cofedrec.elbow(np.full(n, 3.7)) == n
    assert cofedrec.similar(np.full(n, 3.7), np.ones(n, bool)).all()


def test_group_is_those_up_to_the_elbow_among_who_is_present():
    scores = np.array([0.1, 9.0, 8.8, 0.0, 8.9, 99.0, 0.2])
    present = np.array([1, 1, 1, 1, 1, 0, 1], bool)
    assert np.flatnonzero(cofedrec.similar(scores, present)).tolist() == [1, 2, 4]
    assert np.flatnonzero(cofedrec.similar(scores, present, size=2)).tolist() == [1, 4]
    assert np.array_equal(cofedrec.similar(scores, present, size=50), present)


def test_likeness_is_the_sum_of_cosines_on_the_category():
    core = jnp.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    mine = cofedrec.Upload(jnp.array([[3.0, 3.0], [0.0, -1.0], [5.0, 5.0]]), [])
    assert float(cofedrec.likeness(mine, core, jnp.array([True, True, False]))) == pytest.approx(2**-0.5 - 1)


# -- a federation ---------------------------------------------------------------------------------------------


def run(rounds=2, conduct=None, data=None, protocol="loo-full", **settings):
    data = data or synthetic.make(users=40, items=60, interactions_per_user=12)
    sim = Simulation(
        algorithms.get("cofedrec"),
        {"clusters": 5, "embedding_dim": 8, **settings},
        protocols.prepare(data, protocol),
        Conduct(rounds=max(rounds, 1), **(conduct or {})),
        buckets=1,
    )
    for _ in range(rounds):
        sim.advance()
    return sim


def tables(sim):
    """Item tables by client number."""
    where = [(int(n), b, r) for b, each in enumerate(sim.plan.layouts) for r, n in enumerate(each.bucket.client)]
    return np.stack([np.asarray(sim.state.stores[b].items[r]) for _, b, r in sorted(where)])


def test_members_have_the_groups_table_and_the_others_their_own():
    sim = run(1)
    server, mine = sim.state.server, tables(sim)
    member = np.asarray(server.member)
    assert 0 < member.sum() < len(member) and member[int(server.core)]
    np.testing.assert_array_equal(mine[member], np.broadcast_to(server.group, mine[member].shape))
    assert all((table != np.asarray(server.group)).any() for table in mine[~member])


def test_ledger_counts_the_table_for_members_only():
    sim = run(3)
    n, d, clients = 60, 8, 40
    members = [record.metrics["group_size"] for record in sim.history]
    assert len(set(members)) > 1
    assert sim.ledger.up == 3 * clients * n * d * 4
    assert sim.ledger.down == 3 * clients * (n * 4 + 1) + sum(members) * n * d * 4


def test_who_is_absent_keeps_its_table():
    sim = run(1, conduct={"participation": "fraction", "fraction": 0.5})
    first = tables(sim)
    sim.advance()
    second, absent = tables(sim), ~np.asarray(sim.state.server.present)
    assert absent.sum() == 20
    np.testing.assert_array_equal(first[absent], second[absent])
    assert not np.asarray(sim.state.server.member)[absent].any()


def test_without_partition_the_group_is_everybody():
    sim = run(1, partition=False)
    assert np.asarray(sim.state.server.member).all()
    np.testing.assert_allclose(sim.state.server.group, sim.state.server.mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("backbone", "item_term"),
    [("pfedrec", "similarity"), ("pfedrec", "none"), ("fedmf", "contrast"), ("fedncf", "contrast")],
)
def test_backbones_and_terms_stay_finite(backbone, item_term):
    sim = run(2, backbone=backbone, item_term=item_term, item_lr=5.0, layers=(16, 8))
    assert np.isfinite(sim.history[-1].metrics["loss"])
    assert np.isfinite(tables(sim)).all()


def test_store_on_disk_gives_the_same_model():
    memory, disk = run(3, conduct={"store": "memory"}), run(3, conduct={"store": "disk"})
    assert isinstance(jax.tree.leaves(disk.state.stores)[0], np.memmap)
    np.testing.assert_array_equal(tables(memory), tables(disk))
    assert memory.best.record.test == disk.best.record.test


def test_categories_of_numbers_that_are_none_are_an_error_that_says_what_to_do():
    with pytest.raises(CoterieError, match="lower lr or item_lr"):
        cofedrec.kmeans(jax.random.key(0), np.full((5, 2), np.nan), 2)


def test_tables_that_are_no_longer_finite_are_refused():
    sim = run(1, lr=1e30)
    assert len(sim.history[0].refused) == sim.plan.n_clients and sim.history[0].clients == 0
    assert np.isfinite(sim.state.server.mean).all()


def test_group_is_mostly_the_community_of_the_core():
    data = synthetic.make(users=120, items=240, interactions_per_user=50, communities=4, noise=0.0)
    sim = run(0, data=data, clusters=4, embedding_dim=16, item_term="none")
    community, shares = data.truth.user_community, []
    for _ in range(6):
        sim.advance()
        member = np.asarray(sim.state.server.member)
        shares.append((community[member] == community[int(sim.state.server.core)]).mean())
    assert np.median(shares) > 0.8, "a quarter would be chance"
