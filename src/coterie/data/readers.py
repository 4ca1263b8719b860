"""Read interactions from a file, a folder, a zip or a data frame."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pandas as pd

from coterie.data.assemble import ItemTexts, assemble
from coterie.data.formats import (
    ITEM_NAMES,
    LAYOUTS,
    USER_NAMES,
    companion,
    first_of,
    layout_of,
    missing_column,
    read_texts,
    renamed,
)
from coterie.data.interactions import Interactions
from coterie.data.tables import BAD_ZIP, Table, bare_name, frame_table, read_bytes, read_parquet, read_text
from coterie.errors import CoterieError

RATING_FILES = ("ratings.csv", "ratings.tsv", "ratings.parquet", *LAYOUTS)
TEXT_FILES = ("items.csv", "movies.csv", "u.item", "movies.dat", "artists.dat", "split.csv")


def read(
    path: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    timestamp: str | None = None,
    platform: str | None = None,
    titles: str | Path | None = None,
    sep: str | None = None,
    name: str | None = None,
) -> Interactions:
    """Read a rating file, or the one in a folder or zip, and the item text that lies beside it.

    MovieLens, FilmTrust, HetRec Last.fm and RecBole files are known by their names. Any other CSV, TSV or
    Parquet file has the columns `user_id`, `item_id` and perhaps `rating`, `timestamp` and `platform`, or says
    with `user`, `item`, `rating`, `timestamp` and `platform` what its columns are called. Text may be gzipped.
    `titles` is a file with the columns `item` and `title` and perhaps `genres`; it then has to list every item.
    """
    path = Path(path)
    columns = {"user": user, "item": item, "rating": rating, "timestamp": timestamp, "platform": platform}
    with _folder_of(path) as place:
        file = _rating_file(place, str(path))
        layout = layout_of(file) if sep is None and not any(columns.values()) else None
        table = layout.read(file) if layout else _generic(file, columns, sep)
        beside = companion(file, layout.texts) if layout else _generic_texts(file)
        parts = None if layout else _given_parts(file)
        return assemble(table, name or _name_of(path), _texts(titles, beside), parts)


def read_platforms(
    paths: Sequence[str | Path],
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    timestamp: str | None = None,
    titles: str | Path | None = None,
    sep: str | None = None,
    name: str = "platforms",
) -> Interactions:
    """Read one file for each platform, all with the same columns; a platform is called like its file."""
    columns = {"user": user, "item": item, "rating": rating, "timestamp": timestamp, "platform": None}
    frames: dict[str, pd.DataFrame] = {}
    for path in map(Path, paths):
        platform, table = _name_of(path), _generic(path, columns, sep)
        assemble(table, platform)  # what is wrong is said of this file and its line
        if platform in frames:
            raise CoterieError(f"Two of the files are called {platform}, which names a platform; rename one of them.")
        frames[platform] = table.frame
        found, expected = (", ".join(map(str, frame)) for frame in (table.frame, next(iter(frames.values()))))
        if found != expected:
            raise CoterieError(f"{path} has the columns {found} and the first file {expected}; all need the same.")
    whole = pd.concat([frame.assign(platform=platform) for platform, frame in frames.items()], ignore_index=True)
    return assemble(Table(name, whole, "row"), name, _texts(titles, None))


def from_frame(
    frame: pd.DataFrame,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    timestamp: str | None = None,
    platform: str | None = None,
    titles: Mapping[str, str] | None = None,
    name: str = "frame",
) -> Interactions:
    """Take interactions from a data frame; columns are named as in `read`, times may be dates.

    `titles` maps item ids, spelled as text, to titles; it then has to list every item.
    """
    columns = {"user": user, "item": item, "rating": rating, "timestamp": timestamp, "platform": platform}
    texts = None if titles is None else ItemTexts("titles", titles, {}, complete=True)
    return assemble(_typed(_choose(frame_table(frame, name), columns)), name, texts)


def _name_of(path: Path) -> str:
    return path.name if path.is_dir() else bare_name(path).rsplit(".", 1)[0]


def _rating_file(path: Path, shown: str) -> Path:
    """Return the path itself, or the one rating file of a folder; `shown` is its name in errors."""
    if not path.is_dir():
        return path
    found = [file for file in sorted(path.iterdir()) if _is_rating_file(file)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise CoterieError(f"{shown} has several rating files ({names}); give the path of one.")
    raise CoterieError(
        f"{shown} has no rating file; expected one of {', '.join(RATING_FILES)} or a RecBole .inter file, "
        "plain or gzipped."
    )


def _is_rating_file(path: Path) -> bool:
    return path.is_file() and (bare_name(path) in RATING_FILES or bare_name(path).endswith(".inter"))


def _generic(path: Path, columns: dict[str, str | None], sep: str | None) -> Table:
    if path.suffix == ".parquet":
        return _typed(_choose(read_parquet(path), columns))
    if sep is None:
        sep = "\t" if bare_name(path).endswith((".tsv", ".tab")) else ","
    return _choose(read_text(path, sep="\t" if sep == r"\t" else sep, quoted=True), columns)


def _choose(table: Table, columns: dict[str, str | None]) -> Table:
    """Bring the named columns, or those with the usual names, to user, item, rating, timestamp and platform."""
    usual = {"user": USER_NAMES, "item": ITEM_NAMES} | {role: (role,) for role in ("rating", "timestamp", "platform")}
    chosen = {role: columns[role] or first_of(table, names) for role, names in usual.items()}
    for role in ("user", "item"):
        if chosen[role] is None:
            raise missing_column(table, f"{role} column (one of {', '.join(usual[role])})", role)
    return renamed(table, {role: name for role, name in chosen.items() if name is not None})


def _typed(table: Table) -> Table:
    """Turn dates into Unix seconds, and whole ids that pandas keeps as floats into whole numbers."""
    frame = table.frame.copy()
    for role in ("user", "item"):
        column = frame[role]
        if pd.api.types.is_float_dtype(column) and (column % 1 == 0).all():
            frame[role] = column.astype("int64")
    if "timestamp" in frame and pd.api.types.is_datetime64_any_dtype(frame["timestamp"]):
        epoch = pd.Timestamp(0, tz=frame["timestamp"].dt.tz)
        frame["timestamp"] = (frame["timestamp"] - epoch) / pd.Timedelta(seconds=1)
    return Table(table.source, frame, table.unit)


def _generic_texts(path: Path) -> Path | None:
    """Return the item text beside a file called ratings; other files may lie beside anything."""
    if bare_name(path).split(".")[0] != "ratings":
        return None
    return companion(path, "items.csv") or companion(path, "movies.csv")


def _texts(titles: str | Path | None, beside: Path | None) -> ItemTexts | None:
    if titles is not None:
        return read_texts(Path(titles), complete=True)
    return read_texts(beside) if beside else None


def _given_parts(path: Path) -> Table | None:
    file = companion(path, "split.csv") if bare_name(path) == "ratings.csv" else None
    columns = {column: column for column in ("user", "item", "split")}
    return renamed(read_text(file, sep=",", quoted=True), columns) if file else None


@contextmanager
def _folder_of(path: Path) -> Iterator[Path]:
    """Yield the path, or for a zip a folder with the files that matter, which is removed afterwards."""
    if path.suffix != ".zip":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        unpack(path, Path(folder))
        yield Path(folder)


def unpack(path: Path, folder: Path) -> None:
    """Write the rating and item files of a zip, and nothing else of it, into a folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
            for member in archive.namelist():
                file = folder / PurePosixPath(member).name
                if bare_name(file) in (*RATING_FILES, *TEXT_FILES) or file.suffix in (".inter", ".item"):
                    file.write_bytes(archive.read(member))
    except BAD_ZIP:
        raise CoterieError(f"The file {path} is not a whole zip file; download it again.") from None
