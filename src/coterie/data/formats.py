"""The published layouts of rating and item files, each brought to the same columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from coterie.data.assemble import ItemTexts
from coterie.data.tables import WHITESPACE, Table, bare_name, existing, read_text
from coterie.errors import CoterieError

RATING_COLUMNS = ("user", "item", "rating", "timestamp")
USER_NAMES = ("user_id", "user", "userId")
ITEM_NAMES = ("item_id", "item", "movieId")
TITLE_NAMES = ("title", "movie_title", "name")
CATEGORY_NAMES = ("genres", "categories", "genre", "class")

GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """A rating file known by its name, and the name of the file with its items' text."""

    read: Callable[[Path], Table]
    texts: str | None


def layout_of(path: Path) -> Layout | None:
    """Return the published layout that a file's name stands for, if any."""
    name = bare_name(path)
    if name.endswith(".inter"):
        return Layout(_recbole, name.removesuffix(".inter") + ".item")
    return LAYOUTS.get(name)


def _movielens_100k(path: Path) -> Table:
    return read_text(path, sep="\t", names=RATING_COLUMNS, encoding="latin-1")


def _movielens_dat(path: Path) -> Table:
    return read_text(path, sep="::", names=RATING_COLUMNS, encoding="latin-1")


def _filmtrust(path: Path) -> Table:
    return read_text(path, sep=WHITESPACE, names=RATING_COLUMNS[:3])


def _lastfm_plays(path: Path) -> Table:
    table = read_text(path, sep="\t")
    return renamed(table, {"user": "userID", "item": "artistID", "rating": "weight"})


def _lastfm_tags(path: Path) -> Table:
    """Each assignment of a tag is an interaction on the given day."""
    table = read_text(path, sep="\t")
    parts = renamed(table, {part: part for part in ("year", "month", "day")}).frame
    frame = renamed(table, {"user": "userID", "item": "artistID"}).frame
    numbers = parts.apply(pd.to_numeric, errors="coerce")
    days = pd.to_datetime(numbers, errors="coerce")
    if days.isna().any():
        raise CoterieError(
            f"{table.place(int(days.isna().to_numpy().argmax()))}: the day, month and year are not a date; "
            "correct them or remove the row."
        )
    seconds = days.to_numpy().astype("datetime64[s]").astype(np.int64)
    return Table(table.source, frame.assign(timestamp=seconds))


def _recbole(path: Path) -> Table:
    table = _without_types(read_text(path, sep="\t"))
    found = [name for name in ("rating", "timestamp") if name in table.frame]
    return renamed(table, {"user": "user_id", "item": "item_id"} | {name: name for name in found})


LAYOUTS = {
    "u.data": Layout(_movielens_100k, "u.item"),
    "ratings.dat": Layout(_movielens_dat, "movies.dat"),
    "ratings.txt": Layout(_filmtrust, None),
    "user_artists.dat": Layout(_lastfm_plays, "artists.dat"),
    "user_taggedartists.dat": Layout(_lastfm_tags, "artists.dat"),
}


def _without_types(table: Table) -> Table:
    """Turn RecBole's `user_id:token` into `user_id`."""
    return Table(table.source, table.frame.rename(columns=lambda name: str(name).split(":")[0]), table.unit)


def renamed(table: Table, columns: dict[str, str]) -> Table:
    """Return the columns named by `columns` (role to name in the file) under their roles."""
    for role, name in columns.items():
        if name not in table.frame:
            raise missing_column(table, f"column '{name}'", role)
    frame = table.frame[list(columns.values())]
    return Table(table.source, frame.set_axis(list(columns), axis=1), table.unit)


def missing_column(table: Table, what: str, role: str) -> CoterieError:
    """Return the error for a column that a file lacks."""
    found = ", ".join(map(str, table.frame.columns))
    return CoterieError(
        f"{table.source} has no {what}; it has the columns {found}: name the right one with "
        f"{role}=... (--{role} on the command line)."
    )


def read_texts(path: Path, complete: bool = False) -> ItemTexts:
    """Read titles and categories of items from a file in any of the known layouts."""
    frame = _text_frame(path)
    titles = frame["title"].str.strip()
    genres = frame["genres"].str.replace("(no genres listed)", "", regex=False)
    split = [tuple(part for part in text.split("|") if part) for text in genres]
    categories = dict(zip(frame["item"], split, strict=True)) if any(split) else {}
    return ItemTexts(path.name, dict(zip(frame["item"], titles, strict=True)), categories, complete)


def _text_frame(path: Path) -> pd.DataFrame:
    """Return the columns item, title and genres (joined by `|`)."""
    name = bare_name(path)
    if name == "u.item":
        return _u_item(path)
    if name == "movies.dat":
        return read_text(path, sep="::", names=("item", "title", "genres"), encoding="latin-1").frame
    if name == "artists.dat":
        return renamed(read_text(path, sep="\t"), {"item": "id", "title": "name"}).frame.assign(genres="")
    if name.endswith(".item"):
        return _recbole_items(path)
    sep = "\t" if name.endswith((".tsv", ".tab")) else ","
    return _named_texts(read_text(path, sep=sep, quoted=True))


def _u_item(path: Path) -> pd.DataFrame:
    names = ("item", "title", "date", "video_date", "url", *GENRES_100K)
    frame = read_text(path, sep="|", names=names, encoding="latin-1").frame
    flags = frame[list(GENRES_100K)].to_numpy() == "1"
    genres = ["|".join(np.array(GENRES_100K)[row]) for row in flags]
    return frame[["item", "title"]].assign(genres=genres)


def _recbole_items(path: Path) -> pd.DataFrame:
    table = _without_types(read_text(path, sep="\t"))
    frame = _named_texts(table)
    frame["genres"] = frame["genres"].str.replace(" ", "|")
    if "release_year" in table.frame:
        year = table.frame["release_year"]
        frame["title"] += np.where(year.str.fullmatch(r"\d{4}"), " (" + year + ")", "")
    return frame


def _named_texts(table: Table) -> pd.DataFrame:
    item, title = (first_of(table, names) for names in (ITEM_NAMES, TITLE_NAMES))
    if item is None or title is None:
        what, wanted = ("item", ITEM_NAMES) if item is None else ("title", TITLE_NAMES)
        raise CoterieError(
            f"{table.source} has no {what} column; it has {', '.join(map(str, table.frame.columns))}: "
            f"rename one of them to {wanted[0]}."
        )
    genres = first_of(table, CATEGORY_NAMES)
    columns = {"item": item, "title": title} | ({"genres": genres} if genres else {})
    frame = renamed(table, columns).frame.copy()
    return frame if genres else frame.assign(genres="")


def first_of(table: Table, names: tuple[str, ...]) -> str | None:
    """Return the first of the names that the table has as a column."""
    return next((name for name in names if name in table.frame), None)


def companion(path: Path, name: str | None) -> Path | None:
    """Return a file beside another one, plain or gzipped."""
    return existing(path.parent, name) if name else None
