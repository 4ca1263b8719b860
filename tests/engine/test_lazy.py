"""Lazy rows: a row that was left alone catches up exactly, so a table is what the dense optimiser makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import lazy

ROWS, DIM, BATCH, STEPS = 40, 3, 6, 1000


def batches(seed=0):
    """Random batches, some of them short; rows 30 and up are hardly ever drawn, and some stand twice in a batch."""
    rng = np.random.default_rng(seed)
    ids = np.where(rng.random((STEPS, BATCH)) < 0.01, rng.integers(30, ROWS, (STEPS, BATCH)), 0)
    ids = np.where(ids == 0, rng.integers(0, 30, (STEPS, BATCH)), ids)
    real = np.arange(BATCH) < rng.integers(1, BATCH + 1, STEPS)[:, None]
    pulls = rng.normal(0, 1, (STEPS, BATCH, DIM)).astype(np.float32)
    return jnp.asarray(ids), jnp.asarray(pulls), jnp.asarray(real)


def lazily(rule, start, drawn):
    table = lazy.Table(start, rule, jnp.asarray(rule.powers(STEPS)))

    def step(rows, batch):
        number, ids, pulls, real = batch
        fetched = table.fetch(rows, ids, number)
        return table.push(rows, ids, fetched, pulls - 0.1 * fetched[:, 0], real, number), None

    rows, _ = jax.lax.scan(step, table.rows(), (jnp.arange(STEPS), *drawn))
    return table.settled(rows, jnp.int32(STEPS))


def densely(rule, start, drawn):
    """The same steps on every row in every step, in double precision: in single the weight decay is rounded away."""
    values, velocity = np.asarray(start, np.float64), np.zeros(start.shape)
    centre = rule.pull * values
    for ids, pulls, real in zip(*map(np.asarray, drawn), strict=True):
        gradient = rule.decay * (values - centre)
        np.add.at(gradient, ids[real], (pulls - 0.1 * values[ids])[real])
        velocity = rule.momentum * velocity + gradient
        values = values - rule.lr * velocity
    return values


@pytest.mark.parametrize(
    ("momentum", "weight_decay", "proximal"), [(0.9, 1e-5, 0.0), (0.9, 0.01, 0.0), (0.5, 1e-5, 2.0), (0.0, 0.1, 0.0)]
)
def test_a_thousand_steps_equal_the_dense_optimiser(momentum, weight_decay, proximal):
    rule = lazy.Rule.of(1e-3, momentum, weight_decay, proximal)
    start = 0.1 * jax.random.normal(jax.random.key(1), (ROWS, DIM))
    drawn = batches()
    found, expected = jax.jit(lazily, static_argnums=0)(rule, start, drawn), densely(rule, start, drawn)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(expected - start).max() > 0.01  # something moved


def test_powers_by_hand():
    # lr 0.1, momentum 0.5, decay 0.2: value and velocity (1, 0) become velocity 0.2, value 1 - 0.02, and so on.
    powers = lazy.Rule.of(0.1, 0.5, 0.2).powers(2)
    np.testing.assert_allclose(powers[0], 0)
    np.testing.assert_allclose(powers[1] @ [1, 0], [-0.02, 0.2], rtol=1e-6)
    # velocity 0.5 * 0.2 + 0.2 * 0.98 = 0.296, value 0.98 - 0.0296 = 0.9504
    np.testing.assert_allclose(powers[2] @ [1, 0], [-0.0496, 0.296], rtol=1e-6)


def test_the_pull_is_towards_the_start():
    rule = lazy.Rule.of(0.1, 0.0, weight_decay=0.5, proximal=1.5)
    value, velocity = rule.step(jnp.array(3.0), jnp.array(0.0), jnp.array(0.0), jnp.array(1.0))
    # 0.5 * 3 + 1.5 * (3 - 1) = 4.5
    assert float(velocity) == pytest.approx(4.5)
    assert float(value) == pytest.approx(3 - 0.45)
