"""Negatives drawn uniformly from everything outside a sorted list, without rejection.

The items outside a sorted list `known` are counted through: the r-th of them is `r` plus the number of known
items before it, which one binary search over `known[j] - j` (the gaps) finds.

Virtual ratings come from the same pool: items with a label at random, among which a client hides what it has rated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from coterie.algorithm import Samples
from coterie.shuffling import WORDS, mix, permuted, scale


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
    virtual: float = 0.0,
) -> Samples:
    """Return a client's interactions, each followed by its own distinct negatives (as far as there are so many).

    `gaps[bounds[u]:bounds[u + 1]]` belongs to local user u. Labels of negatives are 0. After the last real sample
    come the virtual ratings, `virtual` times as many as there are interactions.
    """
    start, stop = bounds[users], bounds[users + 1]
    words = jax.random.bits(key, (items.shape[0], negatives), jnp.uint32)
    pool = n_items - (stop - start)
    # A user who has left fewer items than negatives gets some of them more than once.
    ranks = distinct(words, pool) % jnp.maximum(pool, 1)[:, None]
    drawn = outside(ranks, gaps, start[:, None], stop[:, None])
    width = 1 + negatives
    total = count * width
    samples = Samples(
        users=jnp.repeat(users, width),
        items=jnp.concatenate([items[:, None], drawn], 1).reshape(-1),
        labels=jnp.pad(labels[:, None], ((0, 0), (0, negatives))).reshape(-1),
        count=total,
        most=total,
    )
    room = math.ceil(virtual * items.shape[0])
    if room == 0:
        return samples
    more = draw_virtual(jax.random.fold_in(key, 1), room, n_items, users, count, gaps, bounds)
    return append(samples, more, n_samples(count, negatives, virtual))


def n_samples(count: Array, negatives: int, virtual: float = 0.0) -> Array:
    """Return how many samples `draw` makes of `count` interactions."""
    total = count * (1 + negatives)
    return total + jnp.round(virtual * count).astype(jnp.int32) if virtual else total


class Ratings(NamedTuple):
    """Ratings of a client, one in each place."""

    users: Array
    items: Array
    labels: Array


def draw_virtual(
    key: Array, room: int, n_items: int, users: Array, count: Array, gaps: Array, bounds: Array
) -> Ratings:
    """Return `room` virtual ratings: items from outside the known ones, with label 0 or 1 by the toss of a coin.

    They are dealt out to the users of interactions in random order, so in proportion. A user gets no item twice
    before its pool is used up. The first ones are the same whatever the room.
    """
    whose, which, coin = jax.random.split(key, 3)
    place = jnp.arange(room, dtype=jnp.uint32)
    turn = place % jnp.maximum(count, 1).astype(jnp.uint32)
    order = permuted(jax.random.bits(whose, (WORDS,), jnp.uint32), turn, jnp.asarray(count, jnp.uint32))
    mine = users[order]
    start, stop = bounds[mine], bounds[mine + 1]
    pool = jnp.maximum(n_items - (stop - start), 1).astype(jnp.uint32)
    # Users must not go through their pools in the same order.
    words = jax.random.bits(which, (WORDS, 1), jnp.uint32) + mix(mine.astype(jnp.uint32))[None, :]
    rank = permuted(words, occurrence(mine, bounds.shape[0] - 1) % pool, pool)
    labels = jax.random.bits(coin, (room,), jnp.uint32) & 1
    return Ratings(mine, outside(rank, gaps, start, stop), labels.astype(jnp.float32))


def occurrence(users: Array, n_users: int) -> Array:
    """Return how often the user of each place stands before it.

    >>> occurrence(jnp.array([0, 2, 0, 0, 2]), 3).tolist()
    [0, 0, 1, 2, 1]
    """
    place = jnp.arange(users.shape[0], dtype=jnp.uint32)
    if n_users == 1:
        return place
    order = jnp.argsort(users, stable=True)
    first = jnp.searchsorted(users[order], users[order])
    return jnp.zeros_like(place).at[order].set(place - first.astype(jnp.uint32))


def append(samples: Samples, more: Ratings, total: Array) -> Samples:
    """Put ratings after the real samples; `total` are real in all."""

    def put(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice(jnp.pad(old, (0, len(new))), new.astype(old.dtype), (samples.count,))

    users, items, labels = (put(getattr(samples, name), column) for name, column in more._asdict().items())
    return Samples(users, items, labels, count=total, most=total)
