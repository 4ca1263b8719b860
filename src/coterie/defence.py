"""The contract of defences: how a server that does not trust single uploads combines them.

A defence gets the uploads of a step, rows of item tables apart, and returns what it takes their sum to be; every
aggregation rule then goes on with that. A robust average of a row is multiplied by the number of clients that sent
the row, so rates mean the same with and without a defence. Where aggregation is weighted, clients are equal within the
average, because a weight is only what a client claims; the average is multiplied by the sum of their weights.

It may keep a memory from step to step: a tree of float32 and int32 arrays whose shapes never change. It comes back as
JAX arrays, and is replaced, never written into.

It runs outside compiled programs, on NumPy arrays: how many rows arrive differs from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import ModuleType
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from coterie.algorithm import Message, Settings

Floats = NDArray[np.float32]


class DefenceConfig(Settings):
    """Settings of a defence; each adds its own."""


@dataclass(frozen=True)
class DefenceInfo:
    """What a defence declares about itself; a `reconstruction` follows a description, because there is no code."""

    name: str
    summary: str
    paper: str = ""
    reconstruction: bool = False


@dataclass(frozen=True)
class Defence:
    """The functions of one defence file.

    `init(config, like)` returns its memory, given a message of zeros; `combine(config, uploads, memory)` what it takes
    the sum of the uploads to be, and the memory after that.
    """

    info: DefenceInfo
    Config: type[DefenceConfig]
    init: Callable[..., Any]
    combine: Callable[..., tuple[Message, Any]]

    @classmethod
    def from_module(cls, module: ModuleType) -> Defence:
        """Collect the functions of a defence file."""
        return cls(module.info, module.Config, module.init, module.combine)


@dataclass(frozen=True)
class RowUploads:
    """The uploads of a step. Row r of every table in `rows` is what client `sender[r]` sent for item `item[r]`.

    Rows are sorted by item; a client sends an item at most once. `rest` has the other fields of the message, with a
    leading axis of clients, and None in place of tables. `weight` is what each client counts in the sums.
    """

    item: NDArray[np.int64]
    sender: NDArray[np.int64]
    rows: dict[str, Floats]
    rest: Message
    weight: Floats
    n_items: int

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.weight)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows of each item that has some begin."""
        return np.flatnonzero(np.diff(self.item, prepend=-1))

    def total(self, name: str, weight: Floats) -> Floats:
        """Return a whole table: of every item the weighted sum of its rows, zero where nobody sent any."""
        bounds = np.searchsorted(self.item, np.arange(self.n_items + 1))
        picks = csr_array((weight, np.arange(len(weight)), bounds), shape=(self.n_items, len(weight)))
        return (picks @ flat(self.rows[name])).reshape(self.n_items, *self.rows[name].shape[1:])

    def message(self, tables: dict[str, Floats], rest: Callable[[Floats], Floats]) -> Message:
        """Return a message of `tables`, and of `rest(stacked)` for every other array."""
        return jax.tree.map(rest, self.rest)._replace(**tables)

    def by_count(self, name: str, most: int = 1 << 20) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Group the items by how many clients sent them; yields the items and their rows.

        Rows are (items, clients, ...), exact: no padding. At most about `most` numbers come at a time.
        """
        starts, table = self.starts, self.rows[name]
        counts = np.diff(starts, append=len(self.item))
        for count in np.unique(counts):
            places = np.flatnonzero(counts == count)
            step = max(1, most // max(1, int(count) * prod(table.shape[1:])))
            for some in np.split(places, range(step, len(places), step)):
                yield self.item[starts[some]], table[starts[some][:, None] + np.arange(count)[None, :]]


def flat(stacked: Floats) -> Floats:
    """Return arrays that are stacked along the first axis as vectors."""
    return stacked.reshape(len(stacked), prod(stacked.shape[1:]))


def over(factors: Floats, stacked: Floats) -> Floats:
    """Return factors of the first axis in a shape that multiplies all of it."""
    return factors.reshape(-1, *[1] * (stacked.ndim - 1))


def by_row(uploads: RowUploads, average: Callable[[Floats], Floats]) -> Message:
    """Combine each item's rows, and each array of the rest, by a robust `average` over clients (axis 1 of its input).

    It counts once for every client that sent the row: it is multiplied by the sum of their weights, 1 each if
    aggregation is not weighted.
    """
    weight = np.bincount(uploads.item, uploads.weight[uploads.sender], uploads.n_items).astype(np.float32)
    tables = {name: np.zeros((uploads.n_items, *rows.shape[1:]), np.float32) for name, rows in uploads.rows.items()}
    for name, table in tables.items():
        for items, rows in uploads.by_count(name):
            table[items] = average(rows) * over(weight[items], table)
    return uploads.message(tables, lambda leaf: average(leaf[None])[0] * uploads.weight.sum())


def in_order(rows: Floats) -> Floats:
    """Sort the numbers of each coordinate over clients (axis 1), which come last: there sorting is fast."""
    numbers = np.ascontiguousarray(np.moveaxis(rows, 1, -1))
    numbers.sort(axis=-1)
    return numbers


def lengths(uploads: RowUploads) -> Message:
    """Return the Euclidean length of each row of the tables and, of the rest, of each client's arrays."""
    return uploads.message({name: norms(rows) for name, rows in uploads.rows.items()}, norms)


def norms(stacked: Floats) -> Floats:
    """Return the Euclidean length of each array along the first axis."""
    vectors = flat(stacked)
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors))


def within(sizes: Floats, bound: float) -> Floats:
    """Return the factors that shorten vectors of such lengths to the bound; 1 for those that are no longer."""
    least = np.maximum(np.float32(bound), np.finfo(np.float32).tiny)
    return least / np.maximum(sizes, least)


def sums(uploads: RowUploads, shares: Message) -> Message:
    """Return the weighted sum of uploads of which only a share counts.

    `shares` has a factor for each row of the tables and, for every other array, one for each client.
    """
    weight = uploads.weight
    tables = {name: uploads.total(name, weight[uploads.sender] * getattr(shares, name)) for name in uploads.rows}
    others = shares._replace(**dict.fromkeys(tables))
    rest = jax.tree.map(lambda leaf, share: np.tensordot(weight * share, leaf, 1), uploads.rest, others)
    return rest._replace(**tables)
