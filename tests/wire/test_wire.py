"""Messages survive the wire, and what cannot be a message is refused."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import CoterieError
from coterie.wire import codec
from coterie.wire.ledger import Ledger


class Message(NamedTuple):
    table: jax.Array
    layers: list[tuple[jax.Array, jax.Array]]
    counts: jax.Array
    one: jax.Array


def message(scale=1.0):
    table = scale * jnp.arange(12.0).reshape(3, 4)
    return Message(table, [(jnp.ones((2, 2)), jnp.zeros(2))], jnp.arange(3), jnp.float32(-0.5))


def test_round_trip_gives_the_message_back():
    sent = message()
    received = codec.decode(codec.encode(sent), like=message(scale=0))
    assert jax.tree.structure(received) == jax.tree.structure(sent)
    for a, b in zip(jax.tree.leaves(sent), jax.tree.leaves(received), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_any_finite_numbers_survive(values):
    sent = np.array(values, np.float32)
    received = codec.decode(codec.encode(sent), sent)
    assert received.tobytes() == sent.tobytes()


def test_bytes_are_little_endian_leaves_in_order():
    payload = codec.encode((np.array([1, 2], ">i4"), np.array([1.0], "<f4")))
    assert payload == bytes.fromhex("01000000 02000000 0000803f")


def test_size_is_the_length_of_what_is_sent():
    shapes = jax.eval_shape(message)
    assert codec.size(message()) == codec.size(shapes) == len(codec.encode(message())) == 12 * 4 + 6 * 4 + 3 * 4 + 4


def test_a_message_without_fields_has_no_bytes():
    assert codec.encode(()) == b""
    assert codec.decode(b"", ()) == ()


@pytest.mark.parametrize("change", [-1, 1, 4])
def test_wrong_length_is_refused(change):
    payload = codec.encode(message())
    wrong = payload[:change] if change < 0 else payload + bytes(change)
    with pytest.raises(CoterieError, match=f"{len(wrong)} bytes arrived where {len(payload)}"):
        codec.decode(wrong, message())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    bad = message()._replace(one=jnp.float32(value))
    with pytest.raises(CoterieError, match="not finite"):
        codec.decode(codec.encode(bad), message())


def test_ledger_adds_up_messages():
    ledger = Ledger(bytes_per_download=100, bytes_per_upload=7)
    ledger.count(downloads=5, uploads=3)
    ledger.count(downloads=2, uploads=2)
    assert (ledger.down, ledger.up) == (700, 35)
