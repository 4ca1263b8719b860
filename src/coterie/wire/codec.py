"""Messages as bytes.

Both sides know a message's type, so only the numbers travel: the leaves in order, little-endian, no header.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import numpy as np

from coterie.algorithm import Message
from coterie.errors import CoterieError


def encode(message: Message) -> bytes:
    """Return the bytes that a message puts on the wire."""
    leaves = (np.asarray(leaf) for leaf in jax.tree.leaves(message))
    return b"".join(leaf.astype(leaf.dtype.newbyteorder("<")).tobytes() for leaf in leaves)


def decode(payload: bytes, like: Message) -> Message:
    """Read a message whose leaves have the shapes and types of `like`; numbers must be finite."""
    if len(payload) != size(like):
        raise CoterieError(f"A message of {len(payload):,} bytes arrived where {size(like):,} were expected.")
    leaves, start = [], 0
    shapes, tree = jax.tree.flatten(like)
    for shape in shapes:
        kind = np.dtype(shape.dtype)
        stop = start + prod(shape.shape) * kind.itemsize
        leaf = np.frombuffer(payload[start:stop], kind.newbyteorder("<")).astype(kind).reshape(shape.shape)
        if not np.all(np.isfinite(leaf)):
            raise CoterieError("A message holds numbers that are not finite; it was refused.")
        leaves.append(leaf)
        start = stop
    return jax.tree.unflatten(tree, leaves)


def size(message: Any) -> int:
    """Return the number of bytes of a message, or of the shapes of one."""
    return sum(prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(message))
