"""Lists of different lengths in two flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """List `i` is `values[offsets[i]:offsets[i + 1]]`."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def group(cls, keys: NDArray[np.integer], values: NDArray[Any], n: int) -> Ragged:
        """Collect `values` by `keys` in 0..n-1, keeping the order of rows within a key.

        >>> lists = Ragged.group(np.array([1, 0, 1]), np.array([7, 8, 9]), n=3)
        >>> [lists[i].tolist() for i in range(3)]
        [[8], [7, 9], []]
        """
        order = np.argsort(keys, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n))])
        return cls(np.asarray(values)[order], offsets.astype(np.int64))

    def sorted(self) -> Ragged:
        """Return the same lists, each in ascending order."""
        keys = np.repeat(np.arange(len(self)), self.lengths)
        order = np.lexsort((self.values, keys))
        return Ragged(self.values[order], self.offsets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each list."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        return self.values[self.offsets[i] : self.offsets[i + 1]]
