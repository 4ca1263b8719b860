"""The single uploads of a step, for a server that must look at more than their sum.

They may be larger than memory, so they stay in the parts the engine keeps them in; a server works through them with
`map` and `sum`, a part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

Message = Any


@dataclass(frozen=True)
class Uploads:
    """Uploads in parts, each a message whose leaves have a leading axis of clients.

    `place[c]` is where client c stands in the parts laid end to end. What an absent client has there is zero.
    """

    parts: Sequence[Message]
    place: NDArray[np.int64]

    def map(self, function: Callable[..., Any], *shared: Any) -> Any:
        """Return `function(upload, *shared)` of every client, stacked in the order of client numbers.

        The function is compiled once: give one that is defined at the top of a module.
        """
        found = [_each(function)(part, *shared) for part in self.parts]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[self.place], *found)

    def sum(self, weights: Array | NDArray[Any]) -> Message:
        """Return the sum of the uploads, each times the weight of its client."""
        spread = np.zeros(len(self.place), np.float32)
        spread[self.place] = np.asarray(weights, np.float32)
        ends = np.cumsum([len(jax.tree.leaves(part)[0]) for part in self.parts])
        sums = [_weighted(part, some) for part, some in zip(self.parts, np.split(spread, ends[:-1]), strict=True)]
        return jax.tree.map(lambda *leaves: jnp.sum(jnp.stack(leaves), 0), *sums)

    def one(self, client: int) -> Message:
        """Return the upload of one client."""
        place = int(self.place[client])
        for part in self.parts:
            length = len(jax.tree.leaves(part)[0])
            if place < length:
                return jax.tree.map(lambda leaf, row=place: jnp.asarray(leaf[row]), part)
            place -= length
        raise IndexError(client)

    def stack(self) -> Message:
        """Return all uploads as one message with a leading axis of clients; they must fit into memory."""
        order = np.argsort(self.place)
        return jax.tree.map(lambda *leaves: jnp.asarray(_gathered(leaves, order)), *self.parts)


def _gathered(leaves: Sequence[Any], order: NDArray[np.int64]) -> np.ndarray:
    """Return leaves laid end to end as rows `order` of one array, copied once."""
    out = np.empty((len(order), *leaves[0].shape[1:]), leaves[0].dtype)
    start = 0
    for leaf in leaves:
        out[order[start : start + len(leaf)]] = leaf
        start += len(leaf)
    return out


@cache
def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    def over(part: Message, *shared: Any) -> Any:
        return jax.vmap(lambda upload: function(upload, *shared))(part)

    return jax.jit(over)


@jax.jit
def _weighted(part: Message, weights: Array) -> Message:
    def grow(i: Array, total: Message) -> Message:
        return jax.tree.map(lambda old, leaf: old + weights[i] * leaf[i], total, part)

    def one(i: Array, total: Message) -> Message:
        # Whoever does not count is not even read, so a number that is none cannot reach the sum by way of 0 * NaN.
        return jax.lax.cond(weights[i] != 0, lambda total: grow(i, total), lambda total: total, total)

    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), part)
    return jax.lax.fori_loop(0, len(weights), one, start)
