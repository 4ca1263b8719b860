"""Negatives drawn uniformly from everything outside a sorted list, without rejection.

The items outside a sorted list `known` are counted through: the r-th of them is `r` plus the number of known
items before it, which one binary search over `known[j] - j` (the gaps) finds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from coterie.algorithm import Samples
from coterie.shuffling import scale


def distinct(words: Array, pool: Array) -> Array:
    """Turn a row of m random words into m distinct numbers of 0..pool-1 (pool >= m), for each row.

    The j-th number is drawn from the pool - j that are left, then stepped past the smaller ones already taken.
    """
    width = words.shape[1]
    left = jnp.maximum(pool[:, None] - jnp.arange(width)[None, :], 1)
    numbers = scale(words, left.astype(jnp.uint32)).astype(jnp.int32)
    taken: list[Array] = []
    drawn: list[Array] = []
    for j in range(width):
        number = numbers[:, j]
        for other in taken:
            number = number + (number >= other)
        drawn.append(number)
        for k, other in enumerate(taken):
            taken[k], number = jnp.minimum(other, number), jnp.maximum(other, number)
        taken.append(number)
    return jnp.stack(drawn, 1) if drawn else numbers


def outside(rank: Array, gaps: Array, start: Array, stop: Array) -> Array:
    """Return the `rank`-th item outside the known list whose gaps are `gaps[start:stop]`."""

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) >> 1
        right = (low < high) & (gaps.at[middle].get(mode="clip") <= rank)
        return jnp.where(right, middle + 1, low), jnp.where(right | (low >= high), high, middle)

    start, stop = jnp.broadcast_to(start, rank.shape), jnp.broadcast_to(stop, rank.shape)
    low, _ = jax.lax.fori_loop(0, gaps.shape[0].bit_length(), halve, (start, stop))
    return rank + low - start


def draw(
    key: Array,
    negatives: int,
    n_items: int,
    users: Array,
    items: Array,
    labels: Array,
    count: Array,
    gaps: Array,
    bounds: Array,
) -> Samples:
    """Return a client's interactions, each followed by its own distinct negatives (as far as there are so many).

    `gaps[bounds[u]:bounds[u + 1]]` belongs to local user u. Labels of negatives are 0.
    """
    start, stop = bounds[users], bounds[users + 1]
    words = jax.random.bits(key, (items.shape[0], negatives), jnp.uint32)
    pool = n_items - (stop - start)
    # A user who has left fewer items than negatives gets some of them more than once.
    ranks = distinct(words, pool) % jnp.maximum(pool, 1)[:, None]
    drawn = outside(ranks, gaps, start[:, None], stop[:, None])
    width = 1 + negatives
    total = count * width
    return Samples(
        users=jnp.repeat(users, width),
        items=jnp.concatenate([items[:, None], drawn], 1).reshape(-1),
        labels=jnp.pad(labels[:, None], ((0, 0), (0, negatives))).reshape(-1),
        count=total,
        most=total,
    )
