"""From columns of text to numbered interactions, with the line of the first bad value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coterie.data.interactions import UNKNOWN_TIME, FloatArray, IntArray, Interactions
from coterie.data.tables import Table
from coterie.errors import CoterieError

PART_NAMES = {"trn": "train", "val": "validation", "valid": "validation", "tst": "test"}
PART_NAMES |= {part: part for part in ("train", "validation", "test")}
MAX_SECONDS = 2.0**53  # beyond this a float no longer holds every whole second


@dataclass(frozen=True)
class ItemTexts:
    """Titles and categories by item id; `complete` when every item must be listed."""

    source: str
    titles: Mapping[str, str]
    categories: Mapping[str, tuple[str, ...]]
    complete: bool = False


def assemble(table: Table, name: str, texts: ItemTexts | None = None, parts: Table | None = None) -> Interactions:
    """Number the columns `user`, `item` and, where there are any, `rating`, `timestamp` and `platform` of a table."""
    users, user_ids = _number(table, "user")
    items, item_ids = _number(table, "item")
    platforms, platform_ids = _number(table, "platform") if "platform" in table.frame else (None, ())
    titles, categories, notes = _texts_of(table, items, item_ids, texts) if texts else (None, None, ())
    return Interactions(
        name=name,
        users=users,
        items=items,
        ratings=_ratings(table),
        timestamps=_timestamps(table),
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
        categories=categories,
        split=None if parts is None else _parts(table, parts),
        platforms=platforms,
        platform_ids=platform_ids,
        notes=notes,
    )


def _number(table: Table, column: str) -> tuple[IntArray, tuple[str, ...]]:
    """Number the ids from 0: by value where all are whole numbers, else by spelling."""
    codes, found = pd.factorize(table.frame[column].to_numpy())
    spelled = [str(value) for value in found]
    _refuse_missing(table, column, codes, spelled)
    ids = sort_ids(set(spelled))
    number = {text: k for k, text in enumerate(ids)}
    return np.array([number[text] for text in spelled], dtype=np.int32)[codes], ids


def _refuse_missing(table: Table, column: str, codes: NDArray[np.intp], spelled: list[str]) -> None:
    # Code -1 is a missing value of a frame; it picks the last entry, which is added for it.
    missing = np.array([text.strip().lower() in ("", "nan") for text in spelled] + [True])[codes]
    if missing.any():
        raise CoterieError(
            f"{table.place(int(missing.argmax()))}: the {column} id is empty; fill it in or remove the row."
        )


def sort_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Sort ids by value where all are whole numbers, else by spelling.

    >>> sort_ids(["10", "9"]), sort_ids(["10", "9", "b"])
    (('9', '10'), ('10', '9', 'b'))
    """
    spelled = sorted(ids)
    whole = all(text.isascii() and text.removeprefix("-").isdigit() for text in spelled)
    return tuple(sorted(spelled, key=int) if whole else spelled)


def _ratings(table: Table) -> FloatArray:
    if "rating" not in table.frame:
        return np.ones(len(table.frame), dtype=np.float32)
    values = _floats(table.frame["rating"])
    with np.errstate(over="ignore"):
        ratings = values.astype(np.float32)
    _refuse(table, "rating", ~np.isfinite(ratings), "a finite number")
    return ratings


def _timestamps(table: Table) -> NDArray[np.int64] | None:
    if "timestamp" not in table.frame:
        return None
    column = table.frame["timestamp"]
    unknown = (column.isna() | (column == "")).to_numpy(dtype=bool)
    if unknown.all():
        return None
    values = _floats(column)
    _refuse(table, "timestamp", ~unknown & ~(np.abs(values) < MAX_SECONDS), "a number of Unix seconds")
    return np.where(unknown, UNKNOWN_TIME, np.floor(np.where(unknown, 0, values)).astype(np.int64))


def _floats(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Parse numbers, NaN where there is none; each distinct text is parsed once."""
    codes, found = pd.factorize(column.to_numpy())
    parsed = pd.to_numeric(pd.Series(found), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.append(parsed, np.nan)[codes]


def _refuse(table: Table, column: str, bad: NDArray[np.bool_], wanted: str) -> None:
    if bad.any():
        position = int(bad.argmax())
        value = table.frame[column].iloc[position]
        shown = "" if pd.isna(value) else " ".join(str(value).split())[:60]
        problem = f"'{shown}' is not {wanted}" if shown else "is empty"
        raise CoterieError(f"{table.place(position)}: the {column} {problem}; correct it or remove the row.")


def _texts_of(
    table: Table, items: IntArray, item_ids: tuple[str, ...], texts: ItemTexts
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...] | None, tuple[str, ...]]:
    unlisted = np.array([item not in texts.titles for item in item_ids])
    if unlisted.all():
        raise CoterieError(
            f"No item id of {texts.source} occurs in {table.source}: the first are "
            f"'{next(iter(texts.titles), '')}' and '{item_ids[0]}'; choose the titles of these items."
        )
    if texts.complete and unlisted.any():
        position = int(unlisted[items].argmax())
        raise CoterieError(
            f"{table.place(position)}: item '{item_ids[items[position]]}' is not in {texts.source}; "
            "add it there or remove the row."
        )
    titles = tuple(texts.titles.get(item) or item for item in item_ids)
    categories = tuple(texts.categories.get(item, ()) for item in item_ids) if texts.categories else None
    note = f"{unlisted.sum():,} of {len(item_ids):,} items have no title in {texts.source}"
    return titles, categories, (note,) if unlisted.any() else ()


def _parts(table: Table, parts: Table) -> NDArray[np.str_]:
    """Return the part of each row; the split file lists the same pairs in the same order."""
    rows, split = table.frame[["user", "item"]], parts.frame
    if len(rows) != len(split):
        raise CoterieError(f"{parts.source} has {len(split):,} rows and {table.source} has {len(rows):,}.")
    differs = (rows.to_numpy() != split[["user", "item"]].to_numpy()).any(axis=1)
    if differs.any():
        raise CoterieError(
            f"{parts.place(int(differs.argmax()))} names another (user, item) pair than {table.source}; "
            "list the same rows in the same order."
        )
    named = split["split"].map(PART_NAMES)
    if named.isna().any():
        position = int(named.isna().to_numpy().argmax())
        raise CoterieError(
            f"{parts.place(position)}: the part '{split['split'].iloc[position]}' is unknown; "
            "use train, validation or test."
        )
    return named.to_numpy(dtype=np.str_)
