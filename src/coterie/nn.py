"""The small parts that algorithms share: losses, layers, mini-batches, row updates, aggregation rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from coterie.algorithm import Message, Received, Rule, Samples
from coterie.shuffling import WORDS, shuffled


class Batch(NamedTuple):
    """A mini-batch; `weights` is 1 for real samples and 0 for padding, `place` where they stand in the data."""

    users: Array
    items: Array
    labels: Array
    weights: Array
    place: Array | None = None

    @property
    def empty(self) -> Array:
        """Whether the batch is padding only."""
        return self.weights[0] == 0


def passes(
    key: Array,
    data: Samples,
    *,
    batch_size: int,
    epochs: int,
    step: Callable[[Any, Batch], tuple[Any, Array]],
    state: Any,
) -> tuple[Any, Array]:
    """Run `step(state, batch) -> state, loss` over shuffled mini-batches, `epochs` times.

    Returns the state and the mean loss of the last pass. A padding-only batch has weight 0 everywhere; a step
    must then leave its state as it is (plain gradient steps do, see `weighted_mean`).
    """
    size = min(batch_size, data.items.shape[0])
    capacity = -(-data.items.shape[0] // size) * size
    steps = -(-data.most // size)
    words = jax.random.bits(key, (epochs, WORDS), jnp.uint32)

    def one_batch(order: Array, number: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        place = jax.lax.dynamic_slice(order, (number * size,), (size,))
        real = place < data.count
        place = jnp.where(real, place, 0)
        weights = real.astype(data.labels.dtype)
        batch = Batch(data.users[place], data.items[place], data.labels[place], weights, place)
        state, loss = step(carry[0], batch)
        return state, carry[1] + loss * batch.weights.sum()

    def one_pass(epoch: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        order = shuffled(words[epoch], data.count, capacity)
        start = (carry[0], jnp.zeros(()))
        return jax.lax.fori_loop(0, steps, lambda number, carry: one_batch(order, number, carry), start)

    state, loss = jax.lax.fori_loop(0, epochs, one_pass, (state, jnp.zeros(())))
    return state, loss / jnp.maximum(data.count, 1)


def local_items(data: Samples, n_rows: int) -> tuple[Array, Array]:
    """Return every local item once, in the order of the samples, and 1 for each of them, 0 for what fills up."""
    place = jnp.arange(data.items.shape[0])
    first = jnp.full(n_rows, len(place)).at[data.items].min(jnp.where(place < data.count, place, len(place)))
    new = first[data.items] == place
    most = min(len(place), n_rows)
    chosen = jnp.nonzero(new, size=most, fill_value=0)[0]
    return data.items[chosen], (jnp.arange(most) < new.sum()).astype(data.labels.dtype)


def weighted_mean(values: Array, weights: Array) -> Array:
    """Mean over the real samples; 0, and so a zero gradient, where there are none."""
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), 1)


@jax.custom_jvp
def bce(logits: Array, labels: Array) -> Array:
    """Binary cross-entropy of each sample, from the logit.

    Its slope is `sigmoid(logit) - label`; taken through the absolute value it would be wrong at a logit of 0.
    """
    return jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits)))


@bce.defjvp
def _bce_slope(values: tuple[Array, Array], changes: tuple[Array, Array]) -> tuple[Array, Array]:
    (logits, labels), (of_logits, of_labels) = values, changes
    return bce(logits, labels), (jax.nn.sigmoid(logits) - labels) * of_logits - logits * of_labels


def squared(predictions: Array, labels: Array) -> Array:
    """Squared error of each sample."""
    return (predictions - labels) ** 2


LOSSES: dict[str, Callable[[Array, Array], Array]] = {"bce": bce, "squared": squared}
OPTIMISERS = {"sgd": optax.sgd, "adam": optax.adam}


def pick(table: Array, users: Array) -> Array:
    """Rows of a user table; a table of one user is left to broadcast, which is much cheaper."""
    return table if table.shape[0] == 1 else table[users]


def descend(params: Any, grads: Any, lr: float) -> Any:
    """One plain gradient step."""
    return jax.tree.map(lambda p, g: p - lr * g, params, grads)


def difference(new: Any, old: Any) -> Any:
    """`new - old`, leaf by leaf."""
    return jax.tree.map(jnp.subtract, new, old)


def add(left: Any, right: Any) -> Any:
    """`left + right`, leaf by leaf."""
    return jax.tree.map(jnp.add, left, right)


class Layer(NamedTuple):
    """A linear layer."""

    weight: Array
    bias: Array


def dense(layer: Layer, x: Array) -> Array:
    """Apply a linear layer."""
    return x @ layer.weight + layer.bias.reshape(*[1] * (x.ndim - 1), -1)


def init_neumf(key: Array, dim: int, hidden: Sequence[int], gmf: bool) -> list[Layer]:
    """Tower over two vectors of `dim` with `hidden` layers and one output, which also sees `p * q` if `gmf`.

    Weights are He-uniform, biases zero.
    """
    inputs = [2 * dim, *hidden[:-1], hidden[-1] + (dim if gmf else 0)]
    shapes = list(zip(inputs, [*hidden, 1], strict=True))
    draw = jax.nn.initializers.he_uniform()
    keys = jax.random.split(key, len(shapes))
    return [Layer(draw(k, shape), jnp.zeros(shape[1])) for k, shape in zip(keys, shapes, strict=True)]


def neumf(tower: list[Layer], users: Array, items: Array, gmf: bool) -> Array:
    """NeuMF logits of rows `[p', p]` and `[q', q]` (without `gmf`: `p'` and `q'`); one user row may stand for all."""
    return dense(tower[-1], neumf_features(tower, users, items, gmf))[..., 0]


def neumf_features(tower: list[Layer], users: Array, items: Array, gmf: bool) -> Array:
    """Return what the output layer of NeuMF sees."""
    dim, users = tower[0].weight.shape[0] // 2, jnp.atleast_2d(users)
    # Two products instead of one over the concatenation: the part of a single user is then computed once.
    mine = dense(Layer(tower[0].weight[:dim], tower[0].bias), users[..., :dim])
    hidden = jax.nn.relu(items[..., :dim] @ tower[0].weight[dim:] + mine)
    for layer in tower[1:-1]:
        hidden = jax.nn.relu(dense(layer, hidden))
    return jnp.concatenate([hidden, users[..., dim:] * items[..., dim:]], -1) if gmf else hidden


def guarded(skip: Array, old: Any, new: Any) -> Any:
    """`old` where `skip` holds, else `new`: what keeps a padding-only batch from moving an optimiser."""
    return jax.tree.map(lambda a, b: jnp.where(skip, a, b), old, new)


class RowAdam(NamedTuple):
    """Moments of the lazy Adam over a table: a row moves only in a batch that holds it."""

    step: Array
    first: Array
    second: Array
    total: Array

    @classmethod
    def zeros(cls, table: Array) -> RowAdam:
        """Return the state before the first step."""
        return cls(jnp.zeros((), jnp.int32), *(jnp.zeros_like(table) for _ in range(3)))


def adam_rows(table: Array, state: RowAdam, ids: Array, grads: Array, lr: float, batch: Batch) -> tuple[Array, RowAdam]:
    """One Adam step on the rows `ids` of a batch; a row that stands there twice moves once, by the sum.

    The cost follows the batch, not the table. Padding samples are written nowhere.
    """
    ids = jnp.where(batch.weights > 0, ids, table.shape[0])
    total = state.total.at[ids].set(0, mode="drop").at[ids].add(grads, mode="drop")
    gradient = total.at[ids].get(mode="clip")
    first = 0.9 * state.first.at[ids].get(mode="clip") + 0.1 * gradient
    second = 0.999 * state.second.at[ids].get(mode="clip") + 0.001 * gradient**2
    step = state.step + jnp.where(batch.empty, 0, 1)
    power = jnp.maximum(step, 1).astype(jnp.float32)
    move = first / (1 - 0.9**power) / (jnp.sqrt(second / (1 - 0.999**power)) + 1e-8)
    table = table.at[ids].set(table.at[ids].get(mode="clip") - lr * move, mode="drop")
    write = lambda old, new: old.at[ids].set(new, mode="drop")  # noqa: E731
    return table, RowAdam(step, write(state.first, first), write(state.second, second), total)


def combine(rule: Rule, received: Received, tables: Sequence[str] = ()) -> Message:
    """Turn weighted sums into one update, by the aggregation rule.

    `mean` and `weighted` divide by the summed weights; `per_item_mean` divides each row of an item table by the
    number of clients that trained it, and the rest by the number of clients.
    """
    if rule == "sum":
        return received.total
    mean = jax.tree.map(lambda leaf: leaf / jnp.maximum(received.weight, 1), received.total)
    if rule != "per_item_mean":
        return mean
    assert received.touched is not None
    count = jnp.maximum(received.touched, 1)
    rows = {name: getattr(received.total, name) for name in tables}
    return mean._replace(**{name: leaf / count.reshape(-1, *[1] * (leaf.ndim - 1)) for name, leaf in rows.items()})


def others(key: Array, some: Array, n_items: int, count: int) -> Array:
    """Draw `count` items, uniformly, from those that are not among `some`."""
    drawn = jax.random.randint(key, (count,), 0, n_items - len(some))
    gaps = jnp.sort(some) - jnp.arange(len(some))
    return drawn + jnp.searchsorted(gaps, drawn, side="right").astype(jnp.int32)


def permutation(key: Array, n: int) -> Array:
    """Draw an order of the numbers below `n`."""
    return shuffled(jax.random.bits(key, (WORDS,), jnp.uint32), n, n)
