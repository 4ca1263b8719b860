"""The single uploads of a step, for a server that must look at more than their sum.

They may be larger than memory, so they stay in the parts the engine keeps them in; a server works through them a
part at a time.
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

    `place[c]` is where client c stands in the parts laid end to end. What stands there for an absent one means nothing.
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

    def products(self) -> NDArray[np.float32]:
        """Return the inner product of each pair of uploads, taken as one long vector each."""
        flat = [[np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(part)] for part in self.parts]
        found = np.zeros((len(self.place), len(self.place)), np.float32)
        ends = np.cumsum([0, *(len(part[0]) for part in flat)])
        for i, left in enumerate(flat):
            for j, right in enumerate(flat[: i + 1]):
                block = sum(a @ b.T for a, b in zip(left, right, strict=True))
                rows, columns = slice(*ends[i : i + 2]), slice(*ends[j : j + 2])
                found[rows, columns], found[columns, rows] = block, np.transpose(block)
        return found[np.ix_(self.place, self.place)]

    def mix(self, weights: NDArray[np.float32]) -> Message:
        """Return, for each row of weights (one for each client), the sum of the uploads so weighted."""
        spread = np.zeros(weights.shape, np.float32)
        spread[:, self.place] = weights
        return _mixed(list(self.parts), spread)

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
        return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)[self.place]), *self.parts)


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


@jax.jit
def _mixed(parts: list[Message], weights: Array) -> Message:
    return jax.tree.map(lambda *leaves: jnp.tensordot(weights, jnp.concatenate(leaves), 1), *parts)
