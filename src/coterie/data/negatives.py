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


def distinct(words: Array, pool: Array) -> list[Array]:
    """Turn m columns of random words into m distinct numbers of 0..pool-1 per row (pool >= m).

    The j-th number is drawn from the pool - j that are left, then stepped past the smaller ones already taken.
    """
    taken: list[Array] = []
    drawn: list[Array] = []
    for j in range(words.shape[1]):
        left = jnp.maximum(pool - j, 1).astype(jnp.uint32)
        number = scale(words[:, j], left).astype(jnp.int32)
        for other in taken:
            number = number + (number >= other)
        drawn.append(number)
        for k, other in enumerate(taken):
            taken[k], number = jnp.minimum(other, number), jnp.maximum(other, number)
        taken.append(number)
    return drawn


def outside(rank: Array, gaps: Array, start: Array, stop: Array) -> Array:
    """Return the `rank`-th item outside the known list whose gaps are `gaps[start:stop]`."""
    low, high = start, stop
    for _ in range(max(gaps.shape[0], 1).bit_length()):
        middle = (low + high) // 2
        right = (low < high) & (gaps.at[middle].get(mode="clip") <= rank)
        low, high = jnp.where(right, middle + 1, low), jnp.where(right, high, jnp.maximum(middle, low))
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
    """Return a client's interactions, each followed by its own distinct negatives.

    `gaps[bounds[u]:bounds[u + 1]]` belongs to local user u. Labels of negatives are 0.
    """
    start, stop = bounds[users], bounds[users + 1]
    words = jax.random.bits(key, (items.shape[0], negatives), jnp.uint32)
    ranks = distinct(words, n_items - (stop - start))
    columns = [items] + [outside(rank, gaps, start, stop) for rank in ranks]
    width = 1 + negatives
    zeros = [jnp.zeros_like(labels)] * negatives
    total = count * width
    return Samples(
        users=jnp.repeat(users, width),
        items=jnp.stack(columns, 1).reshape(-1),
        labels=jnp.stack([labels, *zeros], 1).reshape(-1),
        count=total,
        most=total,
    )
