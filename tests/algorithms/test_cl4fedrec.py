"""FedSGD, SimGCL, UNION and CL4FedRec against numbers worked out by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms, fedsgd, nn
from coterie.algorithm import Catalogue, Client, Received, Samples
from coterie.algorithms import cl4fedrec, union
from coterie.algorithms import fedsgd as original

KEY = jax.random.key(0)
CATALOGUE = Catalogue(6, 3, 3, jnp.array([5, 4, 3, 2, 1, 0], jnp.int32))


def samples(items, labels, padding=0):
    n, blank = len(items), [0] * padding
    return Samples(
        jnp.zeros(n + padding, jnp.int32),
        jnp.array([*items, *blank], jnp.int32),
        jnp.array([*labels, *blank], jnp.float32),
        n,
        n + padding,
    )


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


# -- the recommender ------------------------------------------------------------------------------------------


def test_mf_gradients_by_hand():
    config = original.Config(backbone="mf", embedding_dim=2, user_optimiser="sgd", lr=0.5)
    table = jnp.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    private = fedsgd.Private(jnp.array([[1.0, -1.0]]), fedsgd.optimiser(config).init(jnp.zeros((1, 2))))
    data = samples([0, 1], [1, 0], padding=3)
    upload, after, measured = original.local_update(KEY, config, fedsgd.Server(table, []), private, data)
    # Scores 1 and -2; slopes (sigma(1) - 1) / 2 and (sigma(-2) - 0) / 2.
    first, second = (sigmoid(1) - 1) / 2, sigmoid(-2) / 2
    np.testing.assert_allclose(upload.items, [[first, -first], [second, -second], [0, 0]], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(after.users, [[1 - 0.5 * first, -1 - 0.5 * 2 * second]], rtol=1e-5)
    assert float(measured["loss"]) == pytest.approx((-math.log(sigmoid(1)) - math.log(1 - sigmoid(-2))) / 2, rel=1e-5)


def test_an_item_that_stands_twice_counts_twice():
    config = original.Config(backbone="mf", embedding_dim=1)
    private = fedsgd.init_client(KEY, config, CATALOGUE, Client(0, 1))
    server = fedsgd.Server(jnp.array([[1.0], [2.0]]), [])
    once = original.local_update(KEY, config, server, private, samples([0, 1], [1, 0]))[0]
    twice = original.local_update(KEY, config, server, private, samples([0, 0, 1], [1, 1, 0]))[0]
    np.testing.assert_allclose(twice.items[0] * 3, once.items[0] * 2 * 2, rtol=1e-5)


def test_server_subtracts_what_the_rule_combines():
    config = original.Config(backbone="mf", aggregation="sum")
    received = Received(fedsgd.Server(jnp.ones((6, 32)), []), weight=4.0, clients=4)
    after = fedsgd.server_update(None, config, fedsgd.Server(jnp.zeros((6, 32)), []), received)
    np.testing.assert_array_equal(after.items, -np.ones((6, 32)))
    mean = fedsgd.server_update(
        None, original.Config(backbone="mf", aggregation="mean"), fedsgd.Server(jnp.zeros((6, 32)), []), received
    )
    np.testing.assert_array_equal(mean.items, -0.25 * np.ones((6, 32)))


def test_every_local_item_counts_once():
    data = samples([4, 2, 4, 2, 5], [1, 0, 1, 0, 0], padding=2)
    items, real = nn.local_items(data, 6)
    np.testing.assert_array_equal(items[:3], [4, 2, 5])
    np.testing.assert_array_equal(real, [1, 1, 1, 0, 0, 0])


def test_uniformity_is_least_where_dimensions_are_not_correlated():
    real = jnp.array([1.0, 1, 1, 1, 0])
    apart = jnp.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1], [9, 9]])
    alike = jnp.array([[1.0, 1], [2, 2], [-1, -1], [-2, -2], [5, -9]])
    # Correlations: the identity, of norm sqrt(2), and all ones, of norm 2; over two dimensions.
    assert float(original.correlation(apart, real)) == pytest.approx(math.sqrt(2) / 2, rel=1e-4)
    assert float(original.correlation(alike, real)) == pytest.approx(1.0, rel=1e-4)


# -- views ----------------------------------------------------------------------------------------------------


def test_noise_has_its_length_and_the_sign_of_the_vector():
    users = jax.random.normal(KEY, (50, 8))
    noise = fedsgd.signed_noise(jax.random.key(1), users, 0.1)
    np.testing.assert_allclose(jnp.linalg.norm(noise, axis=1), 0.1, rtol=1e-5)
    np.testing.assert_array_equal(jnp.sign(noise), jnp.sign(users))
    other = fedsgd.signed_noise(jax.random.key(2), users, 0.1)
    assert float(jnp.abs(noise - other).max()) > 0.01


def test_user_term_by_hand():
    first, second = jnp.array([[3.0, 0.0]]), jnp.array([[2.0, 2.0]])
    synthetic = jnp.array([[0.0, 1.0], [-5.0, 0.0]])
    found = cl4fedrec.user_contrast(first, second, synthetic, jnp.ones(1), 0.5)
    own, others = math.sqrt(0.5) / 0.5, (0.0, -1 / 0.5)
    expected = -math.log(math.exp(own) / (math.exp(own) + sum(map(math.exp, others))))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_user_term_moves_no_synthetic_user():
    slope = jax.grad(lambda s: cl4fedrec.user_contrast(jnp.ones((1, 2)), jnp.ones((1, 2)), s, jnp.ones(1), 0.2))
    np.testing.assert_array_equal(slope(jnp.array([[1.0, -2.0]])), np.zeros((1, 2)))


def test_item_term_by_hand():
    left = fedsgd.unit(jnp.array([[2.0, 0.0], [0.0, 3.0], [7.0, 7.0]]))
    right = fedsgd.unit(jnp.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
    found = fedsgd.info_nce(left, right, jnp.array([1.0, 1.0, 0.0]), 0.5)
    half = math.sqrt(0.5)
    first = -math.log(math.exp(half / 0.5) / (math.exp(half / 0.5) + math.exp(0)))
    second = -math.log(math.exp(1 / 0.5) / (math.exp(half / 0.5) + math.exp(1 / 0.5)))
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-5)


@pytest.mark.parametrize(("size", "at_once"), [(3, 128), (4, 1), (100, 128), (100, 2)])
def test_item_term_and_its_gradient_follow_the_loops(size, at_once, monkeypatch):
    monkeypatch.setattr(fedsgd, "AT_ONCE", at_once)
    left, right = (jax.random.normal(jax.random.key(i), (9, 4)) for i in (1, 2))
    real = jnp.array([1.0, 1, 0, 1, 1, 1, 1, 0, 1])

    def looped(left, right):
        parts, width = -(-9 // size), -(-9 // -(-9 // size))
        total = 0.0
        for part in range(parts):
            rows = [i for i in range(part * width, min(9, (part + 1) * width)) if real[i]]
            for k in rows:
                cosines = [left[k] @ right[j] / jnp.linalg.norm(left[k]) / jnp.linalg.norm(right[j]) for j in rows]
                scores = jnp.stack(cosines) / 0.3
                total += jax.nn.logsumexp(scores) - scores[rows.index(k)]
        return total / real.sum()

    ours = jax.value_and_grad(lambda a, b: fedsgd.item_contrast(a, b, real, 0.3, size), (0, 1))(left, right)
    theirs = jax.value_and_grad(looped, (0, 1))(left, right)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_item_view_is_a_clipped_gradient_step():
    config = cl4fedrec.Config(backbone="mf", embedding_dim=2, noise=0.3, view_lr=1.0)
    public = cl4fedrec.Download(jnp.array([[1.0, 0.0], [0.0, 2.0]]), [], jnp.zeros((1, 2)))
    step = cl4fedrec.item_step(config, jnp.array([[0.1, -0.1]]), public, samples([0, 1], [1, 0], padding=1))
    # Slopes of the summed loss: (sigma(0.1) - 1) u and sigma(-0.2) u, both shorter than 0.3.
    np.testing.assert_allclose(step[0], (1 - sigmoid(0.1)) * np.array([0.1, -0.1]), rtol=1e-4)
    np.testing.assert_allclose(step[1], -sigmoid(-0.2) * np.array([0.1, -0.1]), rtol=1e-4)
    far = cl4fedrec.item_step(config, jnp.array([[5.0, -5.0]]), public, samples([0, 1], [1, 0]))
    np.testing.assert_allclose(jnp.linalg.norm(far[0]), 5 * math.sqrt(2) * (1 - sigmoid(5)), rtol=1e-3)
    longer = cl4fedrec.item_step(config, jnp.array([[2.0, 0.0]]), public, samples([1, 1], [0, 0]))
    np.testing.assert_allclose(jnp.linalg.norm(longer, axis=1), [0, 0.3], rtol=1e-5)


def test_steps_of_views_are_constants():
    config = cl4fedrec.Config(backbone="mf", embedding_dim=2)
    data = samples([0, 1], [1, 0])

    def first(items):
        public = cl4fedrec.Download(items, [], jnp.zeros((1, 2)))
        return cl4fedrec.item_views(KEY, config, [jnp.ones((1, 2))] * 2, public, data, data.items)[0].sum()

    np.testing.assert_array_equal(jax.grad(first)(jnp.array([[1.0, 0.0], [0.0, 2.0]])), np.ones((2, 2)))


# -- synthetic users ------------------------------------------------------------------------------------------


def test_synthetic_users_take_distinct_items_by_popularity():
    config = cl4fedrec.Config(synthetic_users=2000, synthetic_items=2)
    drawn = np.asarray(cl4fedrec.profiles(KEY, config, CATALOGUE))
    assert (drawn[:, 0] != drawn[:, 1]).all() and not np.isin(drawn, 5).any()
    first = np.bincount(drawn[:, 0], minlength=6) / 2000
    np.testing.assert_allclose(first[:5], np.array([5, 4, 3, 2, 1]) / 15, atol=0.04)
    uniform = cl4fedrec.profiles(
        KEY, cl4fedrec.Config(synthetic_users=2000, synthetic_items=2, synthetic="uniform"), CATALOGUE
    )
    assert np.bincount(np.asarray(uniform)[:, 0], minlength=6)[5] > 200


def test_negatives_of_a_synthetic_user_are_none_of_its_items():
    drawn = np.asarray(nn.others(KEY, jnp.array([4, 1]), 6, 400))
    assert set(drawn) == {0, 2, 3, 5} and len(drawn) == 400


def test_refitting_moves_synthetic_users_and_nothing_public():
    config = cl4fedrec.Config(
        backbone="mf", embedding_dim=4, synthetic_users=3, synthetic_items=2, local_epochs=9, lr=0.1
    )
    server = cl4fedrec.init_server(KEY, config, CATALOGUE)
    after = cl4fedrec.end_round(jax.random.key(1), config, server)
    for name in ("items", "tower", "profiles"):
        for a, b in zip(jax.tree.leaves(getattr(server, name)), jax.tree.leaves(getattr(after, name)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert float(jnp.abs(after.synthetic - server.synthetic).min()) > 0

    def preferred(state):
        """How much higher than all items a synthetic user scores its own, on average."""
        scores = np.stack([fedsgd.logits(state.tower, user[None], state.items) for user in state.synthetic])
        return np.mean(np.take_along_axis(scores, np.asarray(state.profiles), 1)) - scores.mean()

    assert preferred(after) > preferred(server)


# -- UNION ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [2, 5])
def test_union_term_by_hand(most):
    # Two interacted items, each the other's positive; the only rival is item 2, drawn every time.
    items = jnp.array([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    found = union.union(KEY, items, samples([0, 1, 2], [1, 1, 0], padding=2), 3, most)
    first = -math.log(math.exp(2) / (math.exp(2) + 3 * math.exp(0)))
    second = -math.log(math.exp(2) / (math.exp(2) + 3 * math.exp(1)))
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-5)


def test_union_leaves_a_user_with_one_item_alone():
    assert float(union.union(KEY, jnp.ones((3, 2)), samples([0, 1, 2], [1, 0, 0]), 3, 3)) == 0


def test_rcl4fedrec_is_cl4fedrec_with_the_regulariser():
    both = [algorithms.get(name) for name in ("cl4fedrec", "rcl4fedrec")]
    assert [algorithm.Config().regulariser for algorithm in both] == ["none", "popularity"]
    assert both[1].info.name == "rcl4fedrec" and both[1].local_update is both[0].local_update
