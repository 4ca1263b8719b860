"""The table that everything starts from: who touched which item, how, and when."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coterie.errors import CoterieError

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]

UNKNOWN_TIME = np.iinfo(np.int64).max
"""The timestamp of a row without one, in a source that has them elsewhere: it sorts last."""


@dataclass(frozen=True)
class Truth:
    """What a synthetic set knows about itself."""

    user_community: IntArray
    item_community: IntArray
    item_bias: FloatArray


@dataclass(frozen=True)
class Interactions:
    """Interactions with users and items numbered from 0; row order is the order of the source.

    `ratings` is 1 where the source is implicit. `timestamps` is None where the source has none; a single
    row without one has `UNKNOWN_TIME`.
    `split` names the part ("train", "validation", "test") of each row where the source gives one, and
    `platforms` is the number of the platform that owns it, where the source says so.
    """

    name: str
    users: IntArray
    items: IntArray
    ratings: FloatArray
    timestamps: NDArray[np.int64] | None
    user_ids: tuple[str, ...]
    item_ids: tuple[str, ...]
    titles: tuple[str, ...] | None = None
    categories: tuple[tuple[str, ...], ...] | None = None
    split: NDArray[np.str_] | None = None
    platforms: IntArray | None = None
    platform_ids: tuple[str, ...] = ()
    truth: Truth | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def n_users(self) -> int:
        """Number of users in the numbering."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items in the numbering."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.users)

    def user_number(self, user_id: str | int) -> int:
        """Return the number of a user id as the source spells it."""
        return self._number("User", user_id, self.user_ids)

    def item_number(self, item_id: str | int) -> int:
        """Return the number of an item id as the source spells it."""
        return self._number("Item", item_id, self.item_ids)

    def _number(self, kind: str, wanted: str | int, ids: Sequence[str]) -> int:
        try:
            return ids.index(str(wanted))
        except ValueError:
            raise CoterieError(
                f"{kind} '{wanted}' is not in {self.name}, which has {len(ids):,} {kind.lower()}s "
                f"(the first is '{ids[0]}')."
            ) from None

    def title(self, item: int) -> str:
        """Return the title of an item number, or its id where no title is known."""
        return self.titles[item] if self.titles else self.item_ids[item]

    def fingerprint(self) -> str:
        """Return a short digest of the rows; equal data gives an equal digest."""
        digest = hashlib.sha256()
        for array in (self.users, self.items, self.ratings, self.timestamps, self.platforms):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]
