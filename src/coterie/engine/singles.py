"""Single uploads of a step for a defence: what buckets and malicious clients sent, as rows sorted by item."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from coterie.algorithm import Message
from coterie.defence import RowUploads
from coterie.engine import tables
from coterie.engine.round import Programs, Singles


def gathered(
    parts: Sequence[Singles | None], evil: Sequence[Message], programs: Programs, claimed: float
) -> RowUploads:
    """Put the uploads of all buckets, and those of malicious clients, side by side."""
    taken = [_taken(part, programs) for part in parts if part is not None]
    taken += [_rows_of(upload, programs, claimed) for upload in evil]
    before = np.cumsum([0, *(part.clients for part in taken[:-1])])
    item = np.concatenate([part.item for part in taken])
    order = np.argsort(item, kind="stable")
    sender = np.concatenate([part.sender + start for part, start in zip(taken, before, strict=True)])
    rows = {name: np.concatenate([part.rows[name] for part in taken])[order] for name in taken[0].rows}
    rest = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(part.rest for part in taken))
    weight = np.concatenate([part.weight for part in taken])
    return RowUploads(item[order], sender[order], rows, rest, weight, programs.n_items)


def _apart(upload: Message, programs: Programs) -> tuple[dict[str, np.ndarray], Message]:
    """Take the item tables out of a message."""
    by_row = {name: np.asarray(getattr(upload, name)) for name in tables.fields(upload, programs.names)}
    return by_row, upload._replace(**dict.fromkeys(by_row))


def _taken(part: Singles, programs: Programs) -> RowUploads:
    """Return the uploads of a bucket without padding."""
    sent = np.flatnonzero(np.asarray(part.sent))
    own = np.asarray(part.own)
    client, place = np.nonzero(own)
    by_row, rest = _apart(part.upload, programs)
    number = np.full(len(own), -1)
    number[sent] = np.arange(len(sent))
    return RowUploads(
        item=np.asarray(part.ids)[client, place].astype(np.int64),
        sender=number[client],
        rows={name: table[client, place] for name, table in by_row.items()},
        rest=jax.tree.map(lambda leaf: np.asarray(leaf)[sent], rest),
        weight=np.asarray(part.weight)[sent],
        n_items=programs.n_items,
    )


def _rows_of(upload: Message, programs: Programs, claimed: float) -> RowUploads:
    """Return one upload as the rows that it moves."""
    by_row, rest = _apart(upload, programs)
    moved = np.any([np.any(table.reshape(len(table), -1) != 0, axis=1) for table in by_row.values()], axis=0)
    item = np.flatnonzero(moved)
    return RowUploads(
        item=item,
        sender=np.zeros(len(item), np.int64),
        rows={name: table[item] for name, table in by_row.items()},
        rest=jax.tree.map(lambda leaf: np.asarray(leaf)[None], rest),
        weight=np.array([claimed], np.float32),
        n_items=programs.n_items,
    )
