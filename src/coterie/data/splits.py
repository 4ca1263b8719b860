"""Which rows are trained on, which choose the round, and which are asked at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.data.interactions import UNKNOWN_TIME, Interactions
from coterie.data.streams import Stream, generator
from coterie.errors import CoterieError

Rows = NDArray[np.int64]

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Row numbers of each part; together they are all rows."""

    train: Rows
    validation: Rows
    test: Rows


def leave_one_out(data: Interactions) -> Split:
    """Hold out each user's latest row for the test and the second latest for validation.

    `test[u]` and `validation[u]` belong to user u.
    """
    counts = np.bincount(data.users, minlength=data.n_users)
    _require_three(data, counts)
    order = _by_user_and_time(data)
    ends = np.cumsum(counts)
    held_out = np.zeros(len(data), dtype=bool)
    held_out[ends - 1] = held_out[ends - 2] = True
    return Split(np.sort(order[~held_out]), order[ends - 2], order[ends - 1])


def _require_three(data: Interactions, counts: NDArray[np.int64]) -> None:
    if len(counts) and counts.min() < 3:
        user = int(np.argmax(counts < 3))
        plural = "" if counts[user] == 1 else "s"
        raise CoterieError(
            f"In {data.name}, user '{data.user_ids[user]}' has {counts[user]} interaction{plural}; "
            "leave-one-out needs at least 3: set min_user=3."
        )


def _by_user_and_time(data: Interactions) -> Rows:
    """Sort rows by user, then from the earliest to the latest."""
    rows = np.arange(len(data), dtype=np.int64)
    if data.timestamps is None:
        return np.lexsort((rows, data.users))
    # Published splits rank times downwards with method="first": of equal times the earlier row counts as
    # the later one. Rows without a time have no tie to break: they follow the order of the file.
    tie = np.where(data.timestamps == UNKNOWN_TIME, rows, -rows)
    return np.lexsort((tie, data.timestamps, data.users))


def user_ratio(data: Interactions, test: float = 0.2, validation: float = 0.1, seed: int = 0) -> Split:
    """Hold out a random share of each user's rows, then a share of what remains for validation.

    Shares are rounded to the nearest row. A user with two rows or more has at least one in the test and
    one in training; a user with a single row has it in training.
    """
    _check_shares(test, validation)
    counts = np.bincount(data.users, minlength=data.n_users)
    n_test = np.clip(_share(counts, test), 1, np.maximum(counts - 1, 0))
    n_validation = np.minimum(_share(counts - n_test, validation), np.maximum(counts - n_test - 1, 0))
    order = np.lexsort((generator(seed, Stream.SPLIT).random(len(data)), data.users))
    users = data.users[order]
    place = np.arange(len(data)) - (np.cumsum(counts) - counts)[users]
    return _cut(order, place, n_test[users], n_validation[users])


def global_ratio(data: Interactions, test: float = 0.2, validation: float = 0.1, seed: int = 0) -> Split:
    """Hold out a random share of all rows, then a share of what remains for validation."""
    _check_shares(test, validation)
    n = np.array(len(data))
    n_test = _share(n, test)
    order = generator(seed, Stream.SPLIT).permutation(len(data))
    split = _cut(order, np.arange(len(data)), n_test, _share(n - n_test, validation))
    _require_rows(data, split)
    return split


def given(data: Interactions) -> Split:
    """Take the parts that the source itself names."""
    if data.split is None:
        raise CoterieError(f"{data.name} has no split of its own; choose leave-one-out or a ratio.")
    train, validation, test = (np.flatnonzero(data.split == part) for part in PARTS)
    split = Split(train, validation, test)
    _require_rows(data, split)
    return split


def _check_shares(test: float, validation: float) -> None:
    if not 0 < test < 1:
        raise CoterieError(f"The test share is {test}; use a number between 0 and 1.")
    if not 0 <= validation < 1:
        raise CoterieError(f"The validation share is {validation}; use a number from 0 to below 1.")


def _share(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    return np.floor(counts * share + 0.5).astype(np.int64)


def _cut(order: Rows, place: Rows, n_test: NDArray[np.int64], n_validation: NDArray[np.int64]) -> Split:
    """Cut shuffled rows by their place: first the test, then validation, then training."""
    is_test = place < n_test
    is_train = place >= n_test + n_validation
    return Split(np.sort(order[is_train]), np.sort(order[~is_test & ~is_train]), np.sort(order[is_test]))


def _require_rows(data: Interactions, split: Split) -> None:
    for part, rows in (("training", split.train), ("test", split.test)):
        if not len(rows):
            raise CoterieError(
                f"{data.name} has {len(data):,} interactions and this split leaves none for the {part} part; "
                "use more data or another split."
            )
