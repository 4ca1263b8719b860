"""Single uploads of a step for a defence: what buckets and malicious clients sent, as rows sorted by item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.algorithm import Message
from coterie.defence import Floats, RowUploads
from coterie.engine import tables
from coterie.engine.round import Programs, Singles


class Part(NamedTuple):
    """Some uploads: row `place[r]` of every table is what client `sender[r]` of them sent for item `item[r]`."""

    item: NDArray[np.int64]
    sender: NDArray[np.int64]
    place: NDArray[np.int64]
    tables: dict[str, Floats]
    rest: Message
    weight: Floats


def gathered(
    parts: Sequence[Singles | None], evil: Sequence[Message], programs: Programs, claimed: float
) -> RowUploads:
    """Put the uploads of all buckets, and those of malicious clients, side by side."""
    taken = [_taken(part, programs) for part in parts if part is not None]
    taken += [_rows_of(upload, programs, claimed) for upload in evil]
    before = np.cumsum([0, *(len(part.weight) for part in taken[:-1])])
    item = np.concatenate([part.item for part in taken])
    sender = np.concatenate([part.sender + start for part, start in zip(taken, before, strict=True)])
    # NumPy sorts short integers several times faster than long ones.
    order = np.argsort(item.astype(np.min_scalar_type(programs.n_items)), kind="stable")
    return RowUploads(
        item=item[order],
        sender=sender[order],
        rows={name: _in_order([(part.tables[name], part.place) for part in taken], order) for name in taken[0].tables},
        rest=jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part.rest for part in taken)),
        weight=np.concatenate([part.weight for part in taken]),
        n_items=programs.n_items,
    )


def _in_order(parts: Sequence[tuple[Floats, NDArray[np.int64]]], order: NDArray[np.int64]) -> Floats:
    """Return rows of several tables in an order. Each is written straight to its place: most time is that of memory."""
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    table = parts[0][0]
    whole, start = np.empty((len(order), *table.shape[1:]), table.dtype), 0
    for table, place in parts:
        whole[rank[start : start + len(place)]] = table[place]
        start += len(place)
    return whole


def _apart(upload: Message, programs: Programs) -> tuple[dict[str, np.ndarray], Message]:
    """Take the item tables out of a message."""
    by_row = {name: np.asarray(getattr(upload, name)) for name in tables.fields(upload, programs.names)}
    return by_row, upload._replace(**dict.fromkeys(by_row))


def _taken(part: Singles, programs: Programs) -> Part:
    """Return the uploads of a bucket without padding."""
    sent, own = np.asarray(part.sent), np.asarray(part.own)
    place = np.flatnonzero(own)
    number = np.cumsum(sent) - 1
    by_row, rest = _apart(part.upload, programs)
    return Part(
        item=np.asarray(part.ids).reshape(-1)[place].astype(np.int64),
        sender=number[place // own.shape[1]],
        place=place,
        tables={name: table.reshape(-1, *table.shape[2:]) for name, table in by_row.items()},
        rest=jax.tree.map(lambda leaf: np.asarray(leaf)[sent], rest),
        weight=np.asarray(part.weight)[sent],
    )


def _rows_of(upload: Message, programs: Programs, claimed: float) -> Part:
    """Return one upload as the rows that it moves."""
    by_row, rest = _apart(upload, programs)
    item = np.flatnonzero(moved(upload, programs))
    return Part(
        item=item,
        sender=np.zeros(len(item), np.int64),
        place=item,
        tables=by_row,
        rest=jax.tree.map(lambda leaf: np.asarray(leaf)[None], rest),
        weight=np.array([claimed], np.float32),
    )


def moved(upload: Message, programs: Programs) -> NDArray[np.bool_]:
    """Whether the item tables of one upload say something of an item, for each item."""
    by_row, _ = _apart(upload, programs)
    return np.any([np.any(table.reshape(len(table), -1) != 0, axis=1) for table in by_row.values()], axis=0)
