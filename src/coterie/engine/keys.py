"""Randomness: one seed, and a key for every (stream, round, client).

A draw depends on what it is for and on whose it is, never on chunks, on the order of clients or on the runtime.
"""

from __future__ import annotations

import zlib

import jax
import numpy as np
from jax import Array


def stream(seed: int, name: str) -> Array:
    """Return the key of a named stream of draws."""
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))


def at(key: Array, *numbers: Array | int) -> Array:
    """Return the key of a place in a stream, such as (round, client)."""
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def host(seed: int, name: str, *numbers: int) -> np.random.Generator:
    """Return a NumPy generator for draws made outside compiled programs."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), *numbers])
