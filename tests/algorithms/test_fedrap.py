"""FedRAP against its equations, written out in NumPy with whole tables and decay of every row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms
from coterie.algorithm import Catalogue, Client, Received, Samples
from coterie.algorithms import fedrap
from coterie.errors import CoterieError

KEY = jax.random.key(0)
ALGORITHM = algorithms.get("fedrap")
PLAIN = {
    "embedding_dim": 2, "lr": 0.5, "item_lr": 3.0, "shared_lr": 1.0, "weight_decay": 0.01, "independence": 0.2,
    "sparsity": 0.3,
}  # fmt: skip
CATALOGUE = Catalogue(n_items=3, n_users=8, n_clients=8, popularity=jnp.zeros(3))

SHARED = np.array([[1.0, 0.0], [0.0, 2.0], [5.0, -5.0]])
PERSONAL = np.array([[0.5, 0.5], [-1.0, 0.0], [1.0, 1.0]])
WEIGHT, BIAS = np.array([0.5, -0.25]), 0.1


def settings(**changes):
    return ALGORITHM.configure(PLAIN | changes)


def samples(items, labels, users=None, most=None):
    users = jnp.zeros(len(items), jnp.int32) if users is None else jnp.array(users)
    return Samples(users, jnp.array(items), jnp.array(labels, jnp.float32), len(items), most or len(items))


def start(number=0, users=1):
    down = fedrap.Download(jnp.array(SHARED, jnp.float32), jnp.int32(number))
    scorer = jnp.tile(jnp.array(WEIGHT, jnp.float32), (users, 1)), jnp.full(users, BIAS)
    return down, fedrap.Private(*scorer, jnp.zeros(()), jnp.array(PERSONAL, jnp.float32))


def sigma(x):
    return 1 / (1 + np.exp(-x))


def personal_table(private):
    return np.exp(-private.decay) * np.asarray(private.personal)


def shared_table(down, upload):
    return (1 + upload.shrinkage) * np.asarray(down.items) + np.asarray(upload.items)


# -- by hand --------------------------------------------------------------------------------------------------


def test_one_step():
    down, private = start()
    config = settings(local_epochs=1, compat=True)
    upload, after, metrics = ALGORITHM.local_update(KEY, config, down, private, samples([0, 1], [1, 0]))
    # sums of the rows: (1.5, 0.5) and (-1, 2); logits 0.75 - 0.125 + 0.1 = 0.725 and -0.5 - 0.5 + 0.1 = -0.9
    entropy = (-np.log(sigma(0.725)) - np.log(1 - sigma(-0.9))) / 2
    # squared differences 0.25, 0.25, 1, 4 and sizes 1, 0, 0, 2, each of two rows with two entries
    assert metrics["loss"] == pytest.approx(entropy - 0.2 * 5.5 / 4 + 0.3 * 3 / 4, rel=1e-5)

    errors = np.array([sigma(0.725) - 1, sigma(-0.9)]) / 2
    kept = 1 - 0.5 * 0.01
    np.testing.assert_allclose(after.weight[0], kept * WEIGHT - 0.5 * errors @ [[1.5, 0.5], [-1, 2]], rtol=1e-5)
    np.testing.assert_allclose(after.bias[0], kept * BIAS - 0.5 * errors.sum(), rtol=1e-5)
    # lambda * 2 (D - C) / 4 = 0.1 (D - C) with D - C = (-0.5, 0.5), (-1, -2); mu * sign(C) / 4
    apart = 0.1 * np.array([[-0.5, 0.5], [-1, -2]])
    sign = 0.075 * np.array([[1, 0], [0, 1]])
    kept, moved = 1 - 3 * 0.01, np.outer(errors, WEIGHT)
    np.testing.assert_allclose(personal_table(after)[:2], kept * PERSONAL[:2] - 3 * (moved - apart), rtol=1e-5)
    np.testing.assert_allclose(
        shared_table(down, upload)[:2], kept * SHARED[:2] - 3 * (moved + apart + sign), rtol=1e-5
    )
    # the third item has no sample: it decays and is not written
    np.testing.assert_allclose(personal_table(after)[2], kept * PERSONAL[2], rtol=1e-6)
    np.testing.assert_allclose(shared_table(down, upload)[2], kept * SHARED[2], rtol=1e-6)
    np.testing.assert_array_equal(after.personal[2], PERSONAL[2])
    np.testing.assert_array_equal(upload.items[2], 0)


def test_weights_grow_from_round_to_round():
    config = settings()
    for number, growth in ((0, np.tanh(0.1)), (9, np.tanh(1)), (99, 1)):
        weights = fedrap.schedule(config, jnp.int32(number))
        np.testing.assert_allclose(weights, [0.2 * growth, 0.3 * growth], rtol=1e-6)
    np.testing.assert_allclose(fedrap.schedule(settings(compat=True), jnp.int32(0)), [0.2, 0.3])


def test_the_server_takes_the_mean_of_the_tables_and_counts_its_steps():
    down, _ = start(4)
    first = fedrap.Upload(jnp.zeros((3, 2)).at[0].set(1.0), jnp.float32(-0.1))
    second = fedrap.Upload(jnp.zeros((3, 2)).at[2].set(4.0), jnp.float32(-0.3))
    total = jax.tree.map(jnp.add, first, second)
    server = ALGORITHM.server_update(KEY, settings(), down, Received(total, weight=2.0, clients=2))
    tables = [shared_table(down, upload) for upload in (first, second)]
    np.testing.assert_allclose(server.items, np.mean(tables, 0), rtol=1e-6)
    assert server.round == 5
    faster = ALGORITHM.server_update(KEY, settings(shared_lr=3.0), down, Received(total, weight=2.0, clients=2))
    np.testing.assert_allclose(faster.items, 0.8 * SHARED + 3 * np.asarray(total.items) / 2, rtol=1e-6)


def test_the_server_multiplies_by_half_the_items_unless_told():
    for given, factor in (({"shared_lr": 0.0}, 1.5), ({"shared_lr": 0.0, "compat": True}, 1.0), ({}, 1.0)):
        assert ALGORITHM.resolve(settings(**given), CATALOGUE).shared_lr == factor


def test_scores_add_the_two_tables():
    down, private = start()
    private = private._replace(decay=jnp.log(2.0))
    found = ALGORITHM.score(settings(), down, private, 0, jnp.array([2, 0]))
    rows = np.array([[5.5, -4.5], [1.25, 0.25]])
    np.testing.assert_allclose(found, rows @ WEIGHT + BIAS, rtol=1e-6)


# -- against whole tables -------------------------------------------------------------------------------------


class Dense:
    """A client with one user that decays every row in every step."""

    def __init__(self, config):
        self.config, self.weight, self.bias, self.personal = config, WEIGHT.copy(), BIAS, PERSONAL.copy()

    def train(self, number, shared, items, labels):
        """Return the shared table after local training, and the number of passes."""
        config, shared, rate, losses = self.config, shared.copy(), 0.97**number, []
        growth = 1 if config.compat else np.tanh((number + 1) / 10)
        for passed in range(1, config.local_epochs + 1):
            losses.append(self.step(shared, items, np.asarray(labels), rate, growth))
            rate *= 0.95
            seen = np.cumsum(losses) / np.arange(1, passed + 1) if config.compat else losses
            if passed > 1 and abs(seen[-1] - seen[-2]) < config.tolerance * abs(seen[-2]):
                break
        return shared, passed

    def step(self, shared, items, labels, rate, growth):
        config, own, common = self.config, self.personal[items], shared[items]
        lam, mu, size = growth * config.independence, growth * config.sparsity, own.size
        logits = (own + common) @ self.weight + self.bias
        entropy = np.mean(np.log1p(np.exp(logits)) - labels * logits)
        loss = entropy - lam * np.mean((own - common) ** 2) + mu * np.mean(np.abs(common))
        errors = (sigma(logits) - labels) / len(items)
        away = 2 * lam * (own - common) / size
        by_item = np.outer(errors, self.weight)
        gradient_own, gradient_shared = np.zeros_like(shared), np.zeros_like(shared)
        np.add.at(gradient_own, items, by_item - away)
        np.add.at(gradient_shared, items, by_item + away + mu * np.sign(common) / size)
        lr, item_lr, pull = rate * config.lr, rate * config.item_lr, config.weight_decay
        self.weight -= lr * (errors @ (own + common) + pull * self.weight)
        self.bias -= lr * (errors.sum() + pull * self.bias)
        self.personal -= item_lr * (gradient_own + pull * self.personal)
        shared -= item_lr * (gradient_shared + pull * shared)
        return loss


@pytest.mark.parametrize("compat", [False, True])
def test_lazy_decay_equals_decay_of_every_row(compat):
    # Without the absolute value: around its kink two roundings soon go two ways.
    config = settings(compat=compat, local_epochs=4, tolerance=0.0, independence=0.05, sparsity=0.0)
    data = [([0, 1, 1], [1, 0, 0]), ([2, 0], [1, 0])]
    dense = [Dense(config) for _ in data]
    server, private = start()
    shared, privates = SHARED.copy(), [private for _ in data]
    for number in range(12):
        uploads = []
        for client, (items, labels) in enumerate(data):
            if client == number % 3:
                continue
            upload, privates[client], _ = ALGORITHM.local_update(
                KEY, config, server, privates[client], samples(items, labels)
            )
            uploads.append(upload)
        present = [client for client in range(2) if client != number % 3]
        shared = np.mean([dense[client].train(number, shared, *data[client])[0] for client in present], 0)
        total = jax.tree.map(lambda *leaves: sum(leaves), *uploads)
        received = Received(total, weight=float(len(uploads)), clients=len(uploads))
        server = ALGORITHM.server_update(KEY, config, server, received)
    np.testing.assert_allclose(server.items, shared, rtol=1e-4)
    for private, mine in zip(privates, dense, strict=True):
        assert private.decay > 0.1
        np.testing.assert_allclose(personal_table(private), mine.personal, rtol=1e-4)
        np.testing.assert_allclose(private.weight[0], mine.weight, rtol=1e-4)
        np.testing.assert_allclose(private.bias[0], mine.bias, rtol=1e-4)


@pytest.mark.parametrize(("compat", "tolerance"), [(False, 0.1), (False, 0.06), (True, 0.1), (True, 0.05)])
def test_training_ends_when_the_loss_stays(compat, tolerance):
    config = settings(compat=compat, tolerance=tolerance, local_epochs=30, independence=0.0, sparsity=0.0)
    down, private = start()
    dense = Dense(config)
    shared, passes = dense.train(0, SHARED, [0, 1], [1, 0])
    assert 2 < passes < 30
    upload, after, _ = ALGORITHM.local_update(KEY, config, down, private, samples([0, 1], [1, 0]))
    np.testing.assert_allclose(shared_table(down, upload), shared, rtol=1e-4)
    np.testing.assert_allclose(personal_table(after), dense.personal, rtol=1e-4)
    # The passes that follow change no bit.
    fewer = config.model_copy(update={"local_epochs": passes})
    again = ALGORITHM.local_update(KEY, fewer, down, private, samples([0, 1], [1, 0]))
    jax.tree.map(np.testing.assert_array_equal, (upload, after), again[:2])


def test_clients_stop_each_for_itself():
    config = settings(tolerance=0.1, local_epochs=30, independence=0.0, sparsity=0.0)
    down, private = start()
    data = [samples([0, 1], [1, 0]), samples([2, 2], [0, 0])]
    alone = [ALGORITHM.local_update(KEY, config, down, private, one) for one in data]
    assert alone[0][1].decay != alone[1][1].decay
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *data)
    together = jax.vmap(lambda one: ALGORITHM.local_update(KEY, config, down, private, one))(stacked)
    for client, mine in enumerate(alone):
        here = jax.tree.map(lambda leaf, client=client: leaf[client], together)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), here, mine)


# -- who is left alone ----------------------------------------------------------------------------------------


def test_no_samples_change_nothing():
    down, private = start()
    private = private._replace(decay=jnp.float32(0.3))
    nothing = samples([0, 1], [1, 0])._replace(count=0)
    upload, after, _ = ALGORITHM.local_update(KEY, settings(), down, private, nothing)
    assert not upload.items.any() and upload.shrinkage == 0
    jax.tree.map(np.testing.assert_array_equal, after, private)


def test_batches_of_padding_change_nothing():
    down, private = start()
    config = settings(batch_size=2, local_epochs=3)
    padded = samples([0, 1, 2, 2, 2, 2], [1, 0, 1, 1, 1, 1])._replace(count=2)
    short = ALGORITHM.local_update(KEY, config, down, private, samples([0, 1], [1, 0]))
    long = ALGORITHM.local_update(KEY, config, down, private, padded)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), short, long)


def test_every_user_of_a_client_has_a_scorer():
    down, private = start(users=2)
    config = settings(local_epochs=1, weight_decay=0.0)
    _, after, _ = ALGORITHM.local_update(KEY, config, down, private, samples([0, 1], [1, 0], users=[1, 1]))
    _, alone, _ = ALGORITHM.local_update(KEY, config, *start(), samples([0, 1], [1, 0]))
    np.testing.assert_array_equal(after.weight[0], private.weight[0])
    np.testing.assert_allclose(after.weight[1], alone.weight[0], rtol=1e-6)
    np.testing.assert_allclose(after.personal, alone.personal, rtol=1e-6)


def test_everybody_starts_from_one_draw():
    first, second = (ALGORITHM.init_client(KEY, settings(), CATALOGUE, Client(number, 1)) for number in (0, 7))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_a_decay_that_leaves_nothing_is_refused():
    with pytest.raises(CoterieError, match="weight_decay"):
        settings(item_lr=1000.0, weight_decay=1e-3)
