"""Item tables, whole or by row.

Where an algorithm touches only the rows of its own samples, the engine hands it just those rows, renumbered, and
scatters the result back: cost follows interactions, not clients x items. The algorithm cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from coterie.algorithm import Message, Samples

FREE = jnp.iinfo(jnp.int32).max


class Rows(NamedTuple):
    """The rows of one client: `ids[i]` is the item of row i, `own[i]` whether row i stands for its item.

    `slot` maps an item to its row, FREE where the client has none.
    """

    ids: Array
    own: Array
    slot: Array


def renumber(slot: Array, data: Samples) -> tuple[Rows, Samples]:
    """Give each item of the samples the place of its first occurrence as row number, without a sort.

    `slot` is a buffer over the catalogue that is FREE everywhere; `release` hands it back that way.
    """
    place = jnp.arange(data.items.shape[0], dtype=jnp.int32)
    real = place < data.count
    slot = slot.at[data.items].min(jnp.where(real, place, FREE))
    local = slot[data.items]
    rows = Rows(data.items, real & (local == place), slot)
    return rows, data._replace(items=jnp.where(real, local, 0))


def release(rows: Rows) -> Array:
    """Free the slots that the rows took."""
    return rows.slot.at[rows.ids].set(FREE)


def fields(message: Message, tables: Sequence[str]) -> list[str]:
    """Return the names of the item tables that a message has."""
    return [name for name in tables if name in message._fields]


def take(message: Message, tables: Sequence[str], ids: Array) -> Message:
    """Return the message with only the rows `ids` of its item tables."""
    return message._replace(**{name: getattr(message, name)[ids] for name in fields(message, tables)})


def take_stored(store: Message, tables: Sequence[str], client: Array, ids: Array | None) -> Message:
    """Return one client's private state out of the store, its item tables by row unless `ids` is None."""
    by_row = fields(store, tables) if ids is not None else []
    rest = {
        name: jax.tree.map(lambda leaf: leaf[client], getattr(store, name))
        for name in store._fields
        if name not in by_row
    }
    return store._replace(**rest, **{name: getattr(store, name)[client, ids] for name in by_row})


def take_changes(upload: Message, tables: Sequence[str], rows: Rows, ids: Array) -> Message:
    """Return a client's upload with the rows `ids` of its item tables; zero where it has trained none."""
    place = rows.slot[ids]

    def changed(name: str) -> Array:
        mine = getattr(upload, name).at[place].get(mode="clip")
        return jnp.where((place != FREE).reshape(-1, *[1] * (mine.ndim - 1)), mine, 0)

    return upload._replace(**{name: changed(name) for name in fields(upload, tables)})
