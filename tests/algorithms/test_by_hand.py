"""One step of each algorithm, worked out by hand from its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms, nn
from coterie.algorithm import Catalogue, Client, Received, Samples

KEY = jax.random.key(0)
CATALOGUE = Catalogue(n_items=3, n_users=2, n_clients=2, popularity=jnp.array([1, 1, 0]))


def samples(users, items, labels):
    return Samples(jnp.array(users), jnp.array(items), jnp.array(labels, jnp.float32), len(items), len(items))


def sigma(x):
    return 1 / (1 + np.exp(-x))


# One user, one positive (item 0) and one negative (item 1): the batch has two samples.
ONE_BATCH = samples([0, 0], [0, 1], [1, 0])
TABLE = np.array([[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])


def test_fedmf_step():
    algorithm = algorithms.get("fedmf")
    config = algorithm.Config(embedding_dim=2, lr=0.5, item_lr=4.0, loss="bce")
    module = __import__("coterie.algorithms.fedmf", fromlist=["x"])
    user = np.array([1.0, 0.5])
    upload, private, metrics = algorithm.local_update(
        KEY, config, module.Download(jnp.array(TABLE)), module.Private(jnp.array([user])), ONE_BATCH
    )
    # logits: u.v0 = 1, u.v1 = 1; errors: sigma(1) - 1 and sigma(1) - 0, each divided by the batch of two
    errors = np.array([sigma(1) - 1, sigma(1)]) / 2
    np.testing.assert_allclose(private.users[0], user - 0.5 * (errors @ TABLE[:2]), rtol=1e-6)
    np.testing.assert_allclose(upload.items[:2], -4.0 * np.outer(errors, user), rtol=1e-6)
    np.testing.assert_array_equal(upload.items[2], 0)
    assert float(metrics["loss"]) == pytest.approx((-np.log(sigma(1)) - np.log(1 - sigma(1))) / 2, rel=1e-6)


def test_fedmf_squared_error_for_ratings():
    algorithm = algorithms.get("fedmf")
    config = algorithm.Config(embedding_dim=2, lr=0.5, item_lr=4.0, loss="squared")
    module = __import__("coterie.algorithms.fedmf", fromlist=["x"])
    user = np.array([1.0, 0.5])
    upload, _, _ = algorithm.local_update(
        KEY, config, module.Download(jnp.array(TABLE)), module.Private(jnp.array([user])), samples([0], [0], [3])
    )
    # prediction 1, rating 3: d(1 - 3)^2/dv = 2 * (-2) * u
    np.testing.assert_allclose(upload.items[0], 4.0 * 4.0 * user, rtol=1e-6)


def test_pfedrec_and_local_step_the_scorer_first():
    config = {"embedding_dim": 2, "lr": 0.1, "item_lr": 10.0, "loss": "bce"}
    weight, bias = np.array([0.5, -0.5]), 0.25
    logits = TABLE[:2] @ weight + bias
    errors = (sigma(logits) - [1, 0]) / 2
    new_weight, new_bias = weight - 0.1 * errors @ TABLE[:2], bias - 0.1 * errors.sum()
    again = (sigma(TABLE[:2] @ new_weight + new_bias) - [1, 0]) / 2
    change = -10.0 * np.outer(again, new_weight)

    for name in ("pfedrec", "local"):
        algorithm = algorithms.get(name)
        module = __import__(f"coterie.algorithms.{name}", fromlist=["x"])
        scorer = (jnp.array([weight]), jnp.array([bias]))
        personal = (jnp.array(TABLE),) if name == "local" else ()
        down = module.Download() if name == "local" else module.Download(jnp.array(TABLE))
        upload, private, _ = algorithm.local_update(
            KEY, algorithm.Config(**config), down, module.Private(*scorer, *personal), ONE_BATCH
        )
        items = private.items - TABLE if name == "local" else upload.items
        np.testing.assert_allclose(private.weight[0], new_weight, rtol=1e-5)
        np.testing.assert_allclose(private.bias[0], new_bias, rtol=1e-5)
        np.testing.assert_allclose(items[:2], change, rtol=1e-5)
        np.testing.assert_array_equal(items[2], 0)


def test_pfedrec_starts_everybody_from_one_draw():
    algorithm = algorithms.get("pfedrec")
    config = algorithm.Config()
    first, second = (algorithm.init_client(KEY, config, CATALOGUE, Client(n, 1)) for n in (0, 7))
    np.testing.assert_array_equal(first.weight, second.weight)
    assert np.abs(first.weight).max() <= 32**-0.5


def test_pfedrec_item_rate_is_the_product_of_the_published_code():
    algorithm = algorithms.get("pfedrec")
    catalogue = CATALOGUE._replace(n_items=1682)
    assert algorithm.resolve(algorithm.Config(), catalogue).item_lr == pytest.approx(0.1 * 1682 * 80)


def test_the_server_adds_the_mean_change():
    algorithm = algorithms.get("pfedrec")
    module = __import__("coterie.algorithms.pfedrec", fromlist=["x"])
    received = Received(module.Upload(jnp.full((3, 2), 6.0)), weight=3.0, clients=3)
    server = algorithm.server_update(KEY, algorithm.Config(), module.Server(jnp.ones((3, 2))), received)
    np.testing.assert_allclose(server.items, 3.0)


def test_neumf_by_hand():
    # d = 1, one hidden layer of 2: hidden = relu([p', q'] W + b), output over [hidden, p * q]
    tower = [
        nn.Layer(jnp.array([[1.0, -1.0], [2.0, 1.0]]), jnp.array([0.0, 1.0])),
        nn.Layer(jnp.array([[1.0], [10.0], [100.0]]), jnp.array([0.5])),
    ]
    user, item = jnp.array([3.0, 2.0]), jnp.array([[1.0, 0.5], [4.0, 1.0]])
    # item 0: [3 + 2, -3 + 1 + 1] -> [5, 0], p q = 1 -> 5 + 0 + 100 + 0.5
    # item 1: [3 + 8, -3 + 4 + 1] -> [11, 2], p q = 2 -> 11 + 20 + 200 + 0.5
    np.testing.assert_allclose(nn.neumf(tower, user, item, gmf=True), [105.5, 231.5])


def test_neumf_tower_is_64_32_16():
    tower = nn.init_neumf(KEY, 32, (64, 32, 16), gmf=False)
    assert [layer.weight.shape for layer in tower] == [(64, 64), (64, 32), (32, 16), (16, 1)]
    # 4160 + 2080 + 528 + 17: the size that the NCF of the published comparisons has
    assert sum(layer.weight.size + layer.bias.size for layer in tower) == 6785


@pytest.mark.parametrize("users", [1, 2])
def test_fedncf_first_adam_step_moves_every_row_of_the_batch_by_its_rate(users):
    algorithm = algorithms.get("fedncf")
    module = __import__("coterie.algorithms.fedncf", fromlist=["x"])
    config = algorithm.Config(embedding_dim=2, layers=(4,), lr=0.01, item_lr=0.03, loss="bce")
    server = algorithm.init_server(KEY, config, CATALOGUE)
    private = algorithm.init_client(KEY, config, CATALOGUE, Client(0, users))
    upload, after, _ = algorithm.local_update(KEY, config, module.Download(*server), private, ONE_BATCH)
    moved = np.abs(np.asarray(upload.items))
    # The first step of Adam is its rate wherever there is a gradient; a dead unit of the tower gives none.
    assert np.all(np.isclose(moved[:2], 0.03, rtol=1e-3) | (moved[:2] == 0)) and np.any(moved[:2] > 0)
    assert np.all(moved[2] == 0)
    step, *others = np.abs(np.asarray(after.users - private.users))
    assert np.all(np.isclose(step, 0.01, rtol=1e-3) | (step == 0)) and np.any(step > 0)
    assert np.all(np.array(others) == 0)


@pytest.mark.parametrize("name", ["mf", "ncf"])
def test_centralised_step_moves_only_who_is_in_the_batch(name):
    algorithm = algorithms.get(name)
    config = algorithm.Config(embedding_dim=2, lr=0.01, loss="bce")
    server = algorithm.init_server(KEY, config, CATALOGUE)
    after, _ = algorithm.train(KEY, config, server, ONE_BATCH)
    rows = np.abs(np.asarray(after.items - server.items)).max(1)
    np.testing.assert_allclose(rows[:2], 0.01, rtol=1e-3)
    assert rows[2] == 0
    users = np.abs(np.asarray(after.users - server.users)).max(1)
    assert users[0] == pytest.approx(0.01, rel=1e-3) and users[1] == 0


def test_mf_keeps_adams_moments_over_epochs():
    algorithm = algorithms.get("mf")
    config = algorithm.Config(embedding_dim=2, loss="bce")
    server = algorithm.init_server(KEY, config, CATALOGUE)
    after, _ = algorithm.train(KEY, config, server, ONE_BATCH)
    assert int(after.moments[1].step) == 1 and float(jnp.abs(after.moments[1].first).max()) > 0


def test_popularity_counts_real_samples_only():
    algorithm = algorithms.get("popularity")
    config = algorithm.Config()
    data = samples([0, 0, 0], [2, 2, 0], [1, 1, 1])._replace(count=2)
    server = algorithm.init_server(KEY, config, CATALOGUE)
    upload, _, _ = algorithm.local_update(KEY, config, server, (), data)
    np.testing.assert_array_equal(upload.counts, [0, 0, 2])
    twice = algorithm.server_update(KEY, config, server, Received(upload, 1.0, 1))
    np.testing.assert_array_equal(algorithm.score(config, twice, (), 0, jnp.arange(3)), [0, 0, 2])
