"""The shared parts by hand: aggregation rules, Adam by row, mini-batches."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import nn
from coterie.algorithm import Received, Samples


class Upload(NamedTuple):
    items: jax.Array
    head: jax.Array


def received():
    """Three clients, one of them of weight 2: sums of a 3 x 2 table and a vector; rows touched by 2, 1 and 0."""
    total = Upload(jnp.array([[8.0, 4.0], [6.0, 2.0], [0.0, 0.0]]), jnp.array([4.0, 12.0]))
    return Received(total, weight=jnp.float32(4), clients=3, touched=jnp.array([2.0, 1.0, 0.0]))


@pytest.mark.parametrize("logit", [-30.0, -1.0, 0.0, 2.0, 30.0])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_slope_of_the_cross_entropy(logit, label):
    slope = jax.grad(nn.bce)(logit, label)
    assert float(slope) == pytest.approx(1 / (1 + np.exp(-logit)) - label, abs=1e-6)


@pytest.mark.parametrize(
    ("rule", "items", "head"),
    [
        ("sum", [[8, 4], [6, 2], [0, 0]], [4, 12]),
        ("mean", [[2, 1], [1.5, 0.5], [0, 0]], [1, 3]),
        ("weighted", [[2, 1], [1.5, 0.5], [0, 0]], [1, 3]),
        ("per_item_mean", [[4, 2], [6, 2], [0, 0]], [1, 3]),
    ],
)
def test_combine(rule, items, head):
    update = nn.combine(rule, received(), ("items",))
    np.testing.assert_allclose(update.items, items)
    np.testing.assert_allclose(update.head, head)


@pytest.mark.parametrize("rule", ["mean", "weighted", "per_item_mean", "sum"])
def test_combine_of_nobody_is_zero(rule):
    nobody = Received(Upload(jnp.zeros((3, 2)), jnp.zeros(2)), jnp.float32(0), 0, touched=jnp.zeros(3))
    assert not any(np.asarray(leaf).any() for leaf in nn.combine(rule, nobody, ("items",)))


# -- Adam by row ----------------------------------------------------------------------------------------------


def batch(ids, weights=None):
    ids = jnp.asarray(ids, jnp.int32)
    weights = jnp.ones(len(ids)) if weights is None else jnp.asarray(weights, jnp.float32)
    return nn.Batch(ids, ids, jnp.zeros(len(ids)), weights)


def test_adam_rows_is_adam_where_every_row_is_in_every_batch():
    rng = np.random.default_rng(0)
    table = lazy = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
    optimiser = optax.adam(0.1)
    dense, state = optimiser.init(table), nn.RowAdam.zeros(table)
    for _ in range(5):
        grads = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
        moves, dense = optimiser.update(grads, dense)
        table = optax.apply_updates(table, moves)
        order = rng.permutation(4)
        lazy, state = nn.adam_rows(lazy, state, jnp.asarray(order), grads[order], 0.1, batch(order))
    np.testing.assert_allclose(lazy, table, rtol=1e-5)


def test_adam_rows_moves_a_repeated_row_once_by_the_sum():
    table = jnp.zeros((3, 1))
    moved, state = nn.adam_rows(
        table, nn.RowAdam.zeros(table), jnp.array([2, 0, 2]), jnp.array([[1.0], [-4.0], [2.0]]), 0.5, batch([2, 0, 2])
    )
    # The first step of Adam is lr * g / |g|, whatever the size of g; here g is 1 + 2 for row 2.
    np.testing.assert_allclose(moved[:, 0], [0.5, 0, -0.5], rtol=2e-5)
    np.testing.assert_allclose(state.first[:, 0], [-0.4, 0, 0.3], rtol=1e-6)
    np.testing.assert_allclose(state.second[:, 0], [0.016, 0, 0.009], rtol=1e-6)
    # Second step, row 2 alone, g = -1: m = 0.9 * 0.3 - 0.1 = 0.17, v = 0.999 * 0.009 + 0.001 = 0.009991;
    # m / (1 - 0.81) = 0.894737, v / (1 - 0.998001) = 4.997999, so it moves by -0.5 * 0.894737 / 2.235621.
    again, state = nn.adam_rows(moved, state, jnp.array([2]), jnp.array([[-1.0]]), 0.5, batch([2]))
    np.testing.assert_allclose(again[:, 0], [0.5, 0, -0.5 - 0.5 * 0.894737 / 2.235621], rtol=2e-5)
    assert int(state.step) == 2


def test_adam_rows_writes_padding_nowhere():
    table = jnp.arange(6.0).reshape(3, 2)
    grads = jnp.full((2, 2), 7.0)
    moved, state = nn.adam_rows(
        table, nn.RowAdam.zeros(table), jnp.array([1, 0]), grads, 0.1, batch([1, 0], weights=[1, 0])
    )
    np.testing.assert_array_equal(moved[0], table[0])
    assert not np.array_equal(moved[1], table[1])
    assert not state.first[0].any()
    empty, after = nn.adam_rows(moved, state, jnp.array([0, 0]), grads, 0.1, batch([0, 0], weights=[0, 0]))
    np.testing.assert_array_equal(empty, moved)
    assert int(after.step) == int(state.step) == 1
    np.testing.assert_array_equal(after.first, state.first)


# -- mini-batches ---------------------------------------------------------------------------------------------

ROOM = 24


def samples(count, most=None):
    place = jnp.arange(ROOM)
    count = jnp.int32(count)
    return Samples(place, place, jnp.ones(ROOM), count, count if most is None else jnp.int32(most))


@jax.jit
def visited(key, data):
    """How often each sample is visited, how often with weight 0, and how many batches held a real one."""

    def step(state, batch):
        seen, steps = state
        return (seen.at[batch.items].add(batch.weights), steps + ~batch.empty), jnp.sum(batch.weights)

    start = jnp.zeros(ROOM), jnp.int32(0)
    return nn.passes(key, data, batch_size=5, epochs=3, step=step, state=start)


@given(st.integers(0, ROOM), st.integers(0, 2**31 - 1))
def test_every_real_sample_is_visited_once_per_pass(count, seed):
    (seen, steps), _ = visited(jax.random.key(seed), samples(count))
    assert np.asarray(seen).tolist() == [3.0] * count + [0.0] * (ROOM - count)
    assert int(steps) == 3 * -(-count // 5), "full batches, then the rest"


def test_more_steps_for_a_larger_neighbour_change_nothing():
    def step(state, batch):
        gradient = nn.weighted_mean(batch.items.astype(jnp.float32) + state, batch.weights)
        return state - 0.1 * gradient, gradient

    def run(data):
        return nn.passes(jax.random.key(1), data, batch_size=5, epochs=2, step=step, state=jnp.float32(1))

    alone, among = run(samples(7)), run(samples(7, most=ROOM))
    np.testing.assert_array_equal(alone, among)
    nobody, loss = run(samples(0, most=ROOM))
    assert nobody == 1 and loss == 0


def test_loss_is_the_mean_over_the_samples_of_the_last_pass():
    def step(state, batch):
        return state + 1, nn.weighted_mean(batch.items.astype(jnp.float32), batch.weights) + 100 * (state >= 2)

    state, loss = nn.passes(jax.random.key(0), samples(7), batch_size=5, epochs=2, step=step, state=jnp.float32(0))
    assert state == 4
    np.testing.assert_allclose(loss, 3 + 100, rtol=1e-6)


def test_passes_are_shuffled_anew():
    def step(state, batch):
        return jnp.concatenate([state[1:], batch.items[:1]]), jnp.float32(0)

    first, _ = nn.passes(jax.random.key(0), samples(ROOM), batch_size=1, epochs=2, step=step, state=jnp.zeros(2 * ROOM))
    orders = np.asarray(first).reshape(2, ROOM)
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(ROOM))
    assert orders[0].tolist() != orders[1].tolist() and orders[0].tolist() != list(range(ROOM))


def test_a_batch_larger_than_the_data_is_one_step():
    def step(state, batch):
        return state + batch.weights.sum(), jnp.float32(0)

    state, _ = nn.passes(jax.random.key(0), samples(7), batch_size=1000, epochs=1, step=step, state=jnp.float32(0))
    assert state == 7


def test_pick_leaves_a_single_user_to_broadcast():
    table = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(nn.pick(table, jnp.array([2, 0])), [[4, 5], [0, 1]])
    assert nn.pick(table[:1], jnp.zeros(9, int)).shape == (1, 2)


def test_guarded_keeps_the_old_state_when_told_to():
    old, new = {"a": jnp.zeros(2)}, {"a": jnp.ones(2)}
    assert nn.guarded(jnp.bool_(True), old, new)["a"].tolist() == [0, 0]
    assert nn.guarded(jnp.bool_(False), old, new)["a"].tolist() == [1, 1]
