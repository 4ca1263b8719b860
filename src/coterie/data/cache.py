"""Where named sets lie on this machine, and how one is written there."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from platformdirs import user_cache_path

from coterie.data.interactions import UNKNOWN_TIME, Interactions
from coterie.errors import CoterieError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def folder_of(name: str) -> Path:
    """Return the folder in the user's cache that a named set is written to."""
    return user_cache_path("coterie") / "data" / name


def find(name: str) -> Path | None:
    """Return the folder of a named set: first below `$COTERIE_DATA`, then in the user's cache."""
    if not NAME.fullmatch(name):
        return None
    return next((root / name for root in _roots() if (root / name).is_dir()), None)


def names() -> list[str]:
    """Return the names of the sets on this machine."""
    found = {path.name for root in _roots() if root.is_dir() for path in root.iterdir() if path.is_dir()}
    return sorted(name for name in found if NAME.fullmatch(name))


def _roots() -> list[Path]:
    own = os.environ.get("COTERIE_DATA")
    return [*([Path(own)] if own else []), folder_of("x").parent]


def write(folder: Path, data: Interactions) -> None:
    """Write a set as `ratings.csv.gz`, with `items.csv.gz` and `split.csv.gz` where it has them.

    A set whose rows belong to platforms has a column that names them.

    The folder appears whole or not at all; one that is there already is replaced.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            fresh = Path(temporary) / "new"
            fresh.mkdir()
            _write_files(fresh, data)
            if folder.exists():
                folder.replace(Path(temporary) / "old")
            fresh.replace(folder)
    except OSError as error:
        raise CoterieError(f"{folder} cannot be written ({error.strerror}); choose another place.") from None


def checksum(data: Interactions) -> str:
    """Return the SHA-256 of the rows, whatever their order and the source's file format.

    Each row is the line `user<TAB>item<TAB>rating<TAB>timestamp` in UTF-8: ids as the source spells them,
    the rating in its shortest form (`3`, `3.5`), the timestamp in whole seconds or empty. The lines are
    sorted and joined by newlines.
    """
    columns = _columns(data).to_numpy().T
    lines = sorted(map("\t".join, zip(*columns, strict=True)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _columns(data: Interactions) -> pd.DataFrame:
    times = np.full(len(data), UNKNOWN_TIME) if data.timestamps is None else data.timestamps
    return pd.DataFrame(
        {
            "user": np.array(data.user_ids, dtype=object)[data.users],
            "item": np.array(data.item_ids, dtype=object)[data.items],
            "rating": _spelled(data.ratings),
            "timestamp": _spelled(times),
        }
    )


def _spelled(values: NDArray[np.float32] | NDArray[np.int64]) -> NDArray[np.object_]:
    """Spell numbers in their shortest form, each distinct one once."""
    codes, found = pd.factorize(values)
    texts = ["" if value == UNKNOWN_TIME else str(value).removesuffix(".0") for value in found]
    return np.array(texts, dtype=object)[codes]


def _write_files(folder: Path, data: Interactions) -> None:
    rows = _columns(data)
    if data.platforms is not None:
        rows = rows.assign(platform=np.array(data.platform_ids, dtype=object)[data.platforms])
    _write_csv(folder / "ratings.csv.gz", rows)
    if data.titles:
        genres = ["|".join(parts) for parts in data.categories or [()] * data.n_items]
        items = pd.DataFrame({"item": data.item_ids, "title": data.titles, "genres": genres})
        _write_csv(folder / "items.csv.gz", items)
    if data.split is not None:
        _write_csv(folder / "split.csv.gz", rows[["user", "item"]].assign(split=data.split))


def _write_csv(path: Path, frame: pd.DataFrame) -> None:
    text = io.StringIO(newline="")
    frame.to_csv(text, index=False, lineterminator="\n")
    path.write_bytes(gzip.compress(text.getvalue().encode(), compresslevel=6, mtime=0))
