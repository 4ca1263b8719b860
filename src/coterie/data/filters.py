"""Which rows of a set are used: a few settings, each of which says what it removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from coterie.data.interactions import IntArray, Interactions, Truth
from coterie.errors import CoterieError

Mask = NDArray[np.bool_]


class Filters(BaseModel):
    """What is kept, applied in this order: ratings, repeats, then users and items until nothing changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_rating: float | None = None
    deduplicate: bool = True
    min_user: int = Field(default=0, ge=0)
    min_item: int = Field(default=0, ge=0)
    binarise: bool = False


def apply(data: Interactions, filters: Filters) -> Interactions:
    """Return the rows that pass, with users and items numbered anew in the same order.

    `notes` gains one sentence for each filter that removed something.
    """
    keep = np.ones(len(data), dtype=bool)
    notes = []
    for setting, step in _steps(data, filters):
        kept, note = step(keep)
        if not kept.any():
            raise CoterieError(f"No interaction of {data.name} is left after {setting}; loosen that filter.")
        if note and not np.array_equal(kept, keep):
            notes.append(note)
        keep = kept
    if filters.binarise:
        notes.append("counted every interaction as 1")
    return _select(data, np.flatnonzero(keep), notes, filters.binarise)


Step = Callable[[Mask], tuple[Mask, str]]


def _steps(data: Interactions, filters: Filters) -> Iterator[tuple[str, Step]]:
    """Yield the filters that are set, each with its name and value."""
    low = filters.min_rating
    if low is not None:
        yield f"min_rating={low:g}", lambda keep: _rated(data, keep, low)
    if filters.deduplicate:
        yield "deduplicate", lambda keep: _deduplicated(data, keep)
    if filters.min_user or filters.min_item:
        name = f"min_user={filters.min_user}, min_item={filters.min_item}"
        yield name, lambda keep: _dense(data, keep, filters.min_user, filters.min_item)


def _rated(data: Interactions, keep: Mask, low: float) -> tuple[Mask, str]:
    kept = keep & (data.ratings >= low)
    return kept, f"kept {kept.sum():,} of {keep.sum():,} interactions rated {low:g} or more"


def _deduplicated(data: Interactions, keep: Mask) -> tuple[Mask, str]:
    """Keep the latest row of each (user, item) pair, the last one among equal times."""
    rows = np.flatnonzero(keep)
    times = np.zeros(len(rows)) if data.timestamps is None else data.timestamps[rows]
    users, items = data.users[rows], data.items[rows]
    order = np.lexsort((rows, times, items, users))
    same = (np.diff(users[order]) == 0) & (np.diff(items[order]) == 0)
    kept = keep.copy()
    kept[rows[order[:-1][same]]] = False
    n = int(same.sum())
    return kept, f"dropped {n:,} repeated (user, item) pair{'' if n == 1 else 's'}"


def _dense(data: Interactions, keep: Mask, min_user: int, min_item: int) -> tuple[Mask, str]:
    """Drop rare users and rare items in turn, since dropping one can make the other rare."""
    kept = keep
    while True:
        enough = kept & _frequent(data.users, kept, min_user) & _frequent(data.items, kept, min_item)
        if np.array_equal(enough, kept):
            break
        kept = enough
    parts = [
        _kept_of(ids, keep, kept, minimum, kind)
        for ids, minimum, kind in ((data.users, min_user, "users"), (data.items, min_item, "items"))
        if minimum
    ]
    return kept, "kept " + " and ".join(parts)


def _frequent(numbers: IntArray, keep: Mask, minimum: int) -> Mask:
    return np.bincount(numbers[keep], minlength=numbers.max() + 1)[numbers] >= minimum


def _kept_of(numbers: IntArray, before: Mask, after: Mask, minimum: int, kind: str) -> str:
    n_before, n_after = (np.count_nonzero(np.bincount(numbers[mask])) for mask in (before, after))
    return f"{n_after:,} of {n_before:,} {kind} with at least {minimum} interactions"


def _select(data: Interactions, rows: NDArray[np.int64], notes: list[str], binarise: bool) -> Interactions:
    users, user_numbers = _renumber(data.users[rows], data.n_users)
    items, item_numbers = _renumber(data.items[rows], data.n_items)
    return replace(
        data,
        users=users,
        items=items,
        ratings=np.ones(len(rows), dtype=np.float32) if binarise else data.ratings[rows],
        timestamps=None if data.timestamps is None else data.timestamps[rows],
        user_ids=tuple(data.user_ids[u] for u in user_numbers),
        item_ids=tuple(data.item_ids[i] for i in item_numbers),
        titles=data.titles and tuple(data.titles[i] for i in item_numbers),
        categories=data.categories and tuple(data.categories[i] for i in item_numbers),
        split=None if data.split is None else data.split[rows],
        platforms=None if data.platforms is None else data.platforms[rows],
        truth=data.truth and _select_truth(data.truth, user_numbers, item_numbers),
        notes=(*data.notes, *notes),
    )


def _renumber(numbers: IntArray, n: int) -> tuple[IntArray, NDArray[np.int64]]:
    """Return the numbers without gaps, and which of the old ones are left."""
    left = np.bincount(numbers, minlength=n) > 0
    return (np.cumsum(left) - 1).astype(np.int32)[numbers], np.flatnonzero(left)


def _select_truth(truth: Truth, users: NDArray[np.int64], items: NDArray[np.int64]) -> Truth:
    return Truth(truth.user_community[users], truth.item_community[items], truth.item_bias[items])
