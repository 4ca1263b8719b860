"""One seed, several independent streams of random numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from coterie.errors import CoterieError


class Stream(IntEnum):
    """What a draw is for; the number is part of the seed, so it never changes."""

    SYNTHETIC = 1
    SPLIT = 2
    CLIENTS = 3


def generator(seed: int, stream: Stream) -> np.random.Generator:
    """Return the generator of one stream."""
    if seed < 0:
        raise CoterieError(f"The seed is {seed}; use a whole number from 0.")
    return np.random.default_rng([seed, int(stream)])
