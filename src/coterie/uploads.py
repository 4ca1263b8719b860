"""The single uploads of a step, for a server that must look at more than their sum.

They may be larger than memory, so they stay in the parts the engine keeps them in; a server works through them a
part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
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

    def products(self, centre: Message) -> NDArray[np.float32]:
        """Return the inner product of each pair of uploads, taken as one long vector each.

        `centre` is a point near all of them, their mean, say. What each has besides it is multiplied in bfloat16: that
        is twice as fast where the processor knows it, and the error is one of small numbers, averaged over many. So
        much of the uploads must fit into memory, half of their bytes.
        """
        apart = [_apart(part, centre) for part in self.parts]
        ends = np.cumsum([0, *(len(along) for _, along in apart)])
        along = np.concatenate([along for _, along in apart])
        found = along[:, None] + along[None, :] + sum(float(np.vdot(leaf, leaf)) for leaf in jax.tree.leaves(centre))
        for i, j in combinations_with_replacement(range(len(apart)), 2):
            rows, columns = slice(*ends[i : i + 2]), slice(*ends[j : j + 2])
            block = np.asarray(_crossed(apart[i][0], apart[j][0]))
            found[rows, columns] += block
            if i != j:
                found[columns, rows] += block.T
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


@jax.jit
def _apart(part: Message, centre: Message) -> tuple[list[Array], Array]:
    """Return what uploads have besides the centre, and how far that goes along it."""
    rest = jax.tree.map(lambda leaf, mean: (leaf - mean[None]).reshape(len(leaf), -1), part, centre)
    along = jax.tree.map(lambda leaf, mean: leaf @ jnp.ravel(mean), rest, centre)
    return [leaf.astype(jnp.bfloat16) for leaf in jax.tree.leaves(rest)], jax.tree.reduce(jnp.add, along)


@jax.jit
def _crossed(left: list[Array], right: list[Array]) -> Array:
    one = lambda a, b: jax.lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)  # noqa: E731
    return jax.tree.reduce(jnp.add, list(map(one, left, right)))
