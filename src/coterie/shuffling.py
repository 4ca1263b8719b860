"""A keyed shuffle without a sort.

XLA sorts slowly on a CPU. A small Feistel network over a grid of about `count` cells is a bijection that costs
a few integer operations a position; positions that land beyond `count` walk on until they are inside.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

WORDS = 8
"""Random words that a shuffle takes: one for each round of the network."""


def mix(x: Array) -> Array:
    """Scramble 32-bit words (two multiply-xorshift rounds)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def scale(word: Array, bound: Array) -> Array:
    """Map uniform 32-bit words to 0..bound-1: the high word of the product, free of overflow."""
    low, high = word & 0xFFFF, word >> 16
    bound_low, bound_high = bound & 0xFFFF, bound >> 16
    carry = (low * bound_low >> 16) + ((high * bound_low) & 0xFFFF) + ((low * bound_high) & 0xFFFF)
    middle = (high * bound_low >> 16) + (low * bound_high >> 16)
    return high * bound_high + middle + (carry >> 16)


def _step(words: Array, position: Array, tall: Array, wide: Array) -> Array:
    """Permute the cells of a `tall` x `wide` grid once."""
    row = position // wide
    column = position - row * wide
    for k in range(0, WORDS, 2):
        row = row + scale(mix(column + words[k]), tall)
        row = jnp.where(row >= tall, row - tall, row)
        column = column + scale(mix(row + words[k + 1]), wide)
        column = jnp.where(column >= wide, column - wide, column)
    return row * wide + column


def shuffled(words: Array, count: Array | int, size: int) -> Array:
    """Return `size` positions: an order of 0..count-1 drawn by `words`, then the numbers count..size-1 as they are.

    >>> order = shuffled(jax.random.bits(jax.random.key(0), (WORDS,)), 5, 8)
    >>> sorted(order[:5].tolist()), order[5:].tolist()
    ([0, 1, 2, 3, 4], [5, 6, 7])
    """
    start = jnp.arange(size, dtype=jnp.uint32)
    return permuted(words, start, jnp.asarray(count, jnp.uint32))


def permuted(words: Array, start: Array, count: Array) -> Array:
    """Return where the order drawn by `words` puts each position `start` of 0..count-1; beyond that it stays.

    `count` may be one number or one for each position, and so may each of the words.
    """
    wide = jnp.maximum(jnp.ceil(jnp.sqrt(count.astype(jnp.float32))), 1).astype(jnp.uint32)
    tall = jnp.maximum((count + wide - 1) // wide, 1)
    inside = start < count

    def walk(state: tuple[Array, Array]) -> tuple[Array, Array]:
        place, outside = state
        place = jnp.where(outside, _step(words, place, tall, wide), place)
        return place, outside & (place >= count)

    order, _ = jax.lax.while_loop(lambda state: jnp.any(state[1]), walk, (start, inside))
    return order.astype(jnp.int32)
