"""Residual quantisation: a vector as a sum of one code from each level.

`codes` has levels x codes x dimensions, `ids` items x levels. Ids are found by k-means on what the levels before have
left over; codes are fitted to vectors by least squares while ids stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array


class Quantised(NamedTuple):
    """The code of each item at each level, and the centres of the codes."""

    ids: Array
    centres: Array


def reconstruct(codes: Array, ids: Array) -> Array:
    """Sum the codes of each item."""
    return sum((codes[level][ids[:, level]] for level in range(1, len(codes))), codes[0][ids[:, 0]])


def gathered(rows: Array, ids: Array, size: int) -> Array:
    """Sum the rows of the items that share a code, for each code: the transpose of `reconstruct`."""
    empty = jnp.zeros((size, rows.shape[1]), rows.dtype)
    return jnp.stack([empty.at[ids[:, level]].add(rows) for level in range(ids.shape[1])])


def unit(rows: Array) -> Array:
    """Scale rows to length 1; a row of zeros stays."""
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


# -- ids ----------------------------------------------------------------------------------------------------------


def quantise(key: Array, points: Array, start: Array, cold: Array | bool, most: int) -> Quantised:
    """Residual k-means: `most` steps at most in each level, from the centres `start`, or, if `cold`, from k-means++."""

    def level(left: Array, given: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        key, centres = given
        draw = lambda: seeds(key, left, len(centres))  # noqa: E731
        ids, centres = kmeans(left, jax.lax.cond(cold, draw, lambda: centres), most)
        return left - centres[ids], (ids, centres)

    _, (ids, centres) = jax.lax.scan(level, points, (jax.random.split(key, len(start)), start))
    return Quantised(ids.T, centres)


def distances(points: Array, centres: Array) -> Array:
    """Squared distance of each point to each centre."""
    inner = points @ centres.T
    return jnp.sum(points**2, 1)[:, None] - 2 * inner + jnp.sum(centres**2, 1)[None, :]


def seeds(key: Array, points: Array, count: int) -> Array:
    """Draw centres among the points, each with a chance that grows with its squared distance to those before."""

    def pick(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        chosen, near = state
        draw = jnp.log(jnp.maximum(near, 1e-30)) + jax.random.gumbel(jax.random.fold_in(key, i), near.shape)
        found = jnp.argmax(draw)
        away = jnp.sum((points - points[found][None, :]) ** 2, 1)
        return chosen.at[i].set(found), jnp.minimum(near, away)

    start = jnp.zeros(count, jnp.int32), jnp.full(len(points), 1e30, points.dtype)
    return points[jax.lax.fori_loop(0, count, pick, start)[0]]


def kmeans(points: Array, centres: Array, most: int) -> tuple[Array, Array]:
    """Lloyd's steps until no point changes its cluster, `most` at most; returns clusters (eq. 2) and centres.

    A centre that has lost its points moves to the point that is farthest from its own, the next one to the second
    farthest, and so on.
    """
    size = len(centres)

    def nearest(centres: Array) -> tuple[Array, Array]:
        away = distances(points, centres)
        return jnp.argmin(away, 1).astype(jnp.int32), jnp.min(away, 1)

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        centres, ids, away, number = state[0], *nearest(state[0]), state[3]
        moved = jnp.any(ids != state[1])
        held = jnp.zeros(size).at[ids].add(1.0)
        means = jnp.zeros_like(centres).at[ids].add(points) / jnp.maximum(held, 1)[:, None]
        empty = held == 0
        far = jax.lax.top_k(away, min(size, len(points)))[1]
        spare = points[far[jnp.clip(jnp.cumsum(empty) - 1, 0, len(far) - 1)]]
        return jnp.where(empty[:, None], spare, means), ids, moved, number + 1

    def goes_on(state: tuple[Array, Array, Array, Array]) -> Array:
        return state[2] & (state[3] < most)

    start = centres, jnp.full(len(points), -1, jnp.int32), jnp.bool_(True), jnp.int32(0)
    centres = jax.lax.while_loop(goes_on, step, start)[0]
    return nearest(centres)[0], centres


def hashed(key: Array, n_items: int, levels: int, size: int) -> Array:
    """Ids that know nothing of the items: a bucket at random in each level."""
    return jax.random.randint(key, (n_items, levels), 0, size)


# -- codes --------------------------------------------------------------------------------------------------------


class Channel(NamedTuple):
    """Ids of some items, and the weight with which their codes enter the reconstruction."""

    ids: Array
    weight: Array | float


def ridge(
    channels: Sequence[Channel], size: int, wanted: Array, here: Array, penalty: float, steps: int
) -> list[Array]:
    """Return the change D of the codes, by channel, with which reconstructions best change by `wanted`.

    Minimises |wanted - sum_x w_x A_x D_x|^2 + penalty sum_x w_x sum_c n_c |D_xc|^2 over the items that are `here`: A_x
    picks the codes of an item, and n_c items have the code c. With N the diagonal of these numbers, D_x = N^-1 A_x^T z,
    where (sum_x w_x A_x N^-1 A_x^T + penalty) z = wanted. The matrix averages over items that share a code, level by
    level, so conjugate gradients need few steps; a code that no item has stays exactly as it is, and so does a channel
    of weight 0. The penalty has the weight of the channel, so that channels move alike whatever their weights, as they
    do under Adam: what one learns the other knows when the weights change.
    """

    # Many clients at once leave the processor's cache: that is three times slower than one after the other.
    @jax.custom_batching.sequential_vmap
    def solved(channels: list[Channel], wanted: Array, here: Array) -> list[Array]:
        counts = [jnp.maximum(gathered(here[:, None], each.ids, size), 1) for each in channels]

        def spread(z: Array) -> list[Array]:
            pairs = zip(channels, counts, strict=True)
            return [(each.weight > 0) * gathered(z, each.ids, size) / count for each, count in pairs]

        def apply(z: Array) -> Array:
            pairs = zip(channels, spread(z), strict=True)
            parts = (each.weight * reconstruct(codes, each.ids) for each, codes in pairs)
            return here[:, None] * sum(parts, penalty * z)

        return by_strips(lambda strip: spread(conjugate_gradients(apply, strip, steps)), here[:, None] * wanted)

    return solved(list(channels), wanted, here)


STRIP = 64
"""Columns that are solved for together: what a step works on then stays in the processor's cache."""


def by_strips(solve: Callable[[Array], list[Array]], wanted: Array) -> list[Array]:
    """Solve for a few columns of `wanted` after the others; each is solved for by itself anyway."""
    rows, columns = wanted.shape
    count = -(-columns // STRIP)
    width = -(-columns // count)
    filled = jnp.pad(wanted, [(0, 0), (0, count * width - columns)])
    found = jax.lax.map(solve, filled.reshape(rows, count, width).swapaxes(0, 1))
    return [jnp.moveaxis(each, 0, -2).reshape(*each.shape[1:-1], -1)[..., :columns] for each in found]


def conjugate_gradients(apply: Callable[[Array], Array], wanted: Array, steps: int) -> Array:
    """Solve `apply(z) = wanted` for each column; `apply` is symmetric and positive."""

    def inner(left: Array, right: Array) -> Array:
        return jnp.sum(left * right, 0, keepdims=True)

    def step(_: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, left, way, energy = state
        moved = apply(way)
        rate = energy / jnp.maximum(inner(way, moved), 1e-30)
        z, left = z + rate * way, left - rate * moved
        now = inner(left, left)
        return z, left, left + now / jnp.maximum(energy, 1e-30) * way, now

    start = jnp.zeros_like(wanted), wanted, wanted, inner(wanted, wanted)
    return jax.lax.fori_loop(0, steps, step, start)[0]


def descend(channels: Sequence[Channel], size: int, wanted: Array, here: Array, lr: float, steps: int) -> list[Array]:
    """The same fit by Adam on the mean squared error, without a penalty."""
    optimiser, shape = optax.adam(lr), (channels[0].ids.shape[1], size, wanted.shape[1])

    def loss(changes: list[Array]) -> Array:
        pairs = zip(channels, changes, strict=True)
        left = wanted - sum(each.weight * reconstruct(change, each.ids) for each, change in pairs)
        return jnp.sum(here[:, None] * left**2) / jnp.maximum(jnp.sum(here), 1)

    def step(_: Array, state: tuple[list[Array], optax.OptState]) -> tuple[list[Array], optax.OptState]:
        changes, moments = state
        move, moments = optimiser.update(jax.grad(loss)(changes), moments)
        return optax.apply_updates(changes, move), moments

    start = [jnp.zeros(shape, wanted.dtype) for _ in channels]
    return jax.lax.fori_loop(0, steps, step, (start, optimiser.init(start)))[0]
