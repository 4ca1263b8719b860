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

FREE = 1 << 30
"""What a slot holds that nobody has taken."""


class Rows(NamedTuple):
    """The rows of one client: `ids[i]` is the item of row i, `own[i]` whether row i stands for its item.

    `slot[item] - base` is the row of an item; where it is beyond the rows the client has none.
    """

    ids: Array
    own: Array
    slot: Array
    base: Array

    def place(self, items: Array) -> tuple[Array, Array]:
        """Return the row of each item, and whether there is one."""
        place = self.slot[items] - self.base
        return place, place < len(self.ids)


def renumber(slot: Array, turn: Array | int, data: Samples) -> tuple[Rows, Samples]:
    """Give each item of the samples the place of its first occurrence as row number, without a sort.

    `slot` is a buffer over the catalogue that serves one client after the other: each turn, counted from 0, writes
    smaller numbers than the one before, so what earlier ones left needs no clearing. A client with more samples than
    there are items gets whole tables, which are smaller.
    """
    if data.items.shape[0] >= slot.shape[0]:
        return _whole(slot, data)
    place = jnp.arange(data.items.shape[0], dtype=jnp.int32)
    base = -(turn + 1) * data.items.shape[0]
    real = place < data.count
    slot = slot.at[data.items].min(jnp.where(real, place + base, FREE))
    local = slot[data.items] - base
    rows = Rows(data.items, real & (local == place), slot, jnp.asarray(base, jnp.int32))
    return rows, data._replace(items=jnp.where(real, local, 0))


def _whole(slot: Array, data: Samples) -> tuple[Rows, Samples]:
    """Give each item its own number as row number."""
    real = jnp.arange(data.items.shape[0]) < data.count
    items = jnp.arange(slot.shape[0], dtype=jnp.int32)
    own = jnp.zeros(slot.shape[0], bool).at[data.items].max(real)
    rows = Rows(items, own, jnp.where(own, items, FREE), jnp.int32(0))
    return rows, data._replace(items=jnp.where(real, data.items, 0))


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
    place, there = rows.place(ids)

    def changed(name: str) -> Array:
        mine = getattr(upload, name).at[place].get(mode="clip")
        return jnp.where(there.reshape(-1, *[1] * (mine.ndim - 1)), mine, 0)

    return upload._replace(**{name: changed(name) for name in fields(upload, tables)})


def whole_changes(upload: Message, rows: Rows, tables: Sequence[str], n_items: int) -> Message:
    """Return a client's upload with whole item tables; zero where it has trained none."""

    def spread(name: str) -> Array:
        mine = getattr(upload, name)
        ids = jnp.where(rows.own, rows.ids, n_items)
        return jnp.zeros((n_items, *mine.shape[1:]), mine.dtype).at[ids].set(mine, mode="drop")

    return upload._replace(**{name: spread(name) for name in fields(upload, tables)})
