"""Rows in place of whole tables: numbered without a sort, taken out and put back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.algorithm import Samples
from coterie.engine import tables

ITEMS, ROOM = 15, 12


class Message(NamedTuple):
    items: jax.Array
    other: jax.Array


def samples(items, count):
    padded = jnp.asarray([*items, *[0] * (ROOM - len(items))], jnp.int32)
    return Samples(jnp.zeros(ROOM, jnp.int32), padded, jnp.zeros(ROOM), count, count)


@given(st.lists(st.integers(0, ITEMS - 1), max_size=ROOM), st.data())
def test_renumber_gives_each_item_one_row(items, data):
    count = data.draw(st.integers(0, len(items)))
    rows, local = tables.renumber(jnp.full(ITEMS, tables.FREE), 0, samples(items, jnp.int32(count)))
    own, ids, number = np.asarray(rows.own), np.asarray(rows.ids), np.asarray(local.items)
    real = np.array(items[:count], int)
    distinct, first = np.unique(real, return_index=True)
    np.testing.assert_array_equal(np.flatnonzero(own), np.sort(first))
    assert set(ids[own]) == set(distinct)
    np.testing.assert_array_equal(ids[number[:count]], real)
    assert own[number[:count]].all(), "a real sample points at the row that stands for its item"
    assert not number[count:].any()


def test_slots_serve_one_client_after_the_other():
    slot = jnp.full(ITEMS, tables.FREE)
    for turn, items in enumerate(([4, 7, 4, 0], [7, 1], [], [4])):
        rows, local = tables.renumber(slot, turn, samples(items, max(len(items) - 1, 0)))
        place, there = rows.place(jnp.arange(ITEMS))
        mine = items[:-1]
        assert np.flatnonzero(there).tolist() == sorted(set(mine)), f"turn {turn}"
        assert [int(place[item]) for item in mine] == [mine.index(item) for item in mine]
        assert local.items[: len(mine)].tolist() == [mine.index(item) for item in mine]
        slot = rows.slot


def test_more_samples_than_items_are_whole_tables():
    rows, local = tables.renumber(jnp.full(6, tables.FREE), 3, samples([4, 2, 4, 1], 3))
    assert rows.ids.tolist() == [0, 1, 2, 3, 4, 5] and np.flatnonzero(rows.own).tolist() == [2, 4]
    assert local.items.tolist() == [4, 2, 4, *[0] * 9]
    place, there = rows.place(jnp.arange(6))
    assert np.flatnonzero(there).tolist() == [2, 4] and place[jnp.array([2, 4])].tolist() == [2, 4]


def test_take_takes_item_tables_only():
    message = Message(jnp.arange(18.0).reshape(9, 2), jnp.arange(3.0))
    taken = tables.take(message, ("items", "absent"), jnp.array([7, 0]))
    np.testing.assert_array_equal(taken.items, [[14, 15], [0, 1]])
    np.testing.assert_array_equal(taken.other, message.other)


def test_take_stored_takes_one_client():
    store = Message(jnp.arange(36.0).reshape(2, 9, 2), jnp.arange(6.0).reshape(2, 3))
    whole = tables.take_stored(store, ("items",), jnp.int32(1), None)
    np.testing.assert_array_equal(whole.items, store.items[1])
    np.testing.assert_array_equal(whole.other, [3, 4, 5])
    by_row = tables.take_stored(store, ("items",), jnp.int32(1), jnp.array([8, 2]))
    np.testing.assert_array_equal(by_row.items, store.items[1, jnp.array([8, 2])])
    np.testing.assert_array_equal(by_row.other, [3, 4, 5])


def test_take_changes_is_zero_where_nothing_was_trained():
    rows, _ = tables.renumber(jnp.full(ITEMS, tables.FREE), 0, samples([4, 7, 4], 3))
    upload = Message(rows.ids[:, None] + 100.0, jnp.ones(1))
    taken = tables.take_changes(upload, ("items",), rows, jnp.array([7, 3, 4, 0]))
    np.testing.assert_array_equal(taken.items[:, 0], [107, 0, 104, 0])
    np.testing.assert_array_equal(taken.other, [1])
