"""The contract of defences: how a server that does not trust single uploads combines them.

A defence gets the uploads of a step, rows of item tables apart, and returns what it takes their sum to be; every
aggregation rule then goes on with that. A robust average of a row is multiplied by the number of clients that sent
the row, so rates mean the same with and without a defence. It may keep a memory from step to step.

It runs outside compiled programs, on NumPy arrays: how many rows arrive differs from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

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

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows of each item that has some begin."""
        return np.flatnonzero(np.diff(self.item, prepend=-1))

    def table(self, name: str, values: Floats) -> Floats:
        """Return a whole table with `values` for the items that have rows, zero for the others."""
        whole = np.zeros((self.n_items, *self.rows[name].shape[1:]), np.float32)
        whole[self.item[self.starts]] = values
        return whole

    def message(self, tables: dict[str, Floats], rest: Callable[[Floats], Floats]) -> Message:
        """Return a message of whole `tables`, and of `rest(stacked)` for every other array."""
        return jax.tree.map(rest, self.rest)._replace(**tables)

    def by_count(self, name: str, most: int = 1 << 24) -> Iterator[tuple[NDArray[np.int64], Floats]]:
        """Group the items by how many clients sent them; yields places among `starts` and their rows.

        Rows are (items, clients, ...), exact: no padding. At most about `most` numbers come at a time.
        """
        starts = self.starts
        counts = np.diff(starts, append=len(self.item))
        table = self.rows[name]
        for count in np.unique(counts):
            places = np.flatnonzero(counts == count)
            step = max(1, most // max(1, int(count) * int(np.prod(table.shape[1:]))))
            for some in np.split(places, range(step, len(places), step)):
                yield some, table[starts[some][:, None] + np.arange(count)[None, :]]


def sums(uploads: RowUploads) -> Message:
    """Return the plain weighted sum."""
    weight = uploads.weight
    tables = {
        name: uploads.table(name, np.add.reduceat(table * _over(weight[uploads.sender], table), uploads.starts))
        for name, table in uploads.rows.items()
        if len(uploads.item)
    }
    return uploads.message(tables or _empty(uploads), lambda leaf: np.tensordot(weight, leaf, 1).astype(np.float32))


def _empty(uploads: RowUploads) -> dict[str, Floats]:
    return {name: np.zeros((uploads.n_items, *table.shape[1:]), np.float32) for name, table in uploads.rows.items()}


def _over(weight: Floats, table: Floats) -> Floats:
    return weight.reshape(-1, *[1] * (table.ndim - 1))


def by_row(uploads: RowUploads, average: Callable[[Floats], Floats]) -> Message:
    """Combine each item's rows, and each array of the rest, by a robust `average` over clients (axis 1 of its input).

    The average counts once for every client that sent the row.
    """
    tables = _empty(uploads)
    for name, table in tables.items():
        owners = uploads.item[uploads.starts]
        for places, rows in uploads.by_count(name):
            table[owners[places]] = average(rows) * rows.shape[1]
    return uploads.message(tables, lambda leaf: average(leaf[None])[0] * uploads.clients)
