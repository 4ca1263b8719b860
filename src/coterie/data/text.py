"""Vectors of the items' text, kept by content: the same text in the same way is computed once on a machine.

tfidf       weighted words of title and categories, reduced by a truncated singular value decomposition
sentences   a small language model (extra `text`), see `sentences`
random      no text at all: a control
a path      an array of one's own, a row for each item
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from platformdirs import user_cache_path

from coterie.data.interactions import FloatArray, Interactions
from coterie.data.tables import read_parquet
from coterie.errors import CoterieError, unknown
from coterie.files import write_atomically

SOURCES = ("tfidf", "sentences", "random")
ITEM = "item"
"""The column of a Parquet file that has the items' ids."""


class Vectors(NamedTuple):
    """A row for each item, and a sentence that says where they come from."""

    rows: FloatArray
    source: str


def vectors(data: Interactions, source: str, dim: int, seed: int = 0) -> Vectors:
    """Return vectors of the items' text; `dim` is the length of those of `tfidf` and `random`."""
    if Path(source).suffix in (".npy", ".parquet"):
        return Vectors(_own(data, Path(source)), f"item vectors: {Path(source).name}, given by the user")
    if source not in SOURCES:
        raise unknown("source of item vectors", source, SOURCES)
    if source == "random":
        rows = np.random.default_rng([seed, 811]).standard_normal((data.n_items, dim), np.float32)
        return Vectors(rows, f"item vectors: random, {dim} dimensions, no text used")
    texts = texts_of(data)
    if source == "tfidf":
        rows = _kept(f"tfidf-{dim}", texts, lambda: tfidf(texts, dim))
        return Vectors(rows, f"item vectors: TF-IDF of titles and categories, {rows.shape[1]} dimensions")
    from coterie.data import sentences

    rows = _kept(sentences.NAME, texts, lambda: sentences.embed(texts))
    return Vectors(rows, f"item vectors: sentence embeddings of titles and categories, {sentences.NAME}")


def texts_of(data: Interactions) -> list[str]:
    """Return what is known of each item in words.

    >>> from coterie.data import synthetic
    >>> texts_of(synthetic.make(users=9, items=60, interactions_per_user=5))[0].count(". ")
    1
    """
    if data.titles is None:
        raise CoterieError(
            f"{data.name} has no item text; put items.csv with item,title,genres beside its ratings, "
            "or choose text=random or a file of vectors."
        )
    categories = data.categories or [()] * data.n_items
    return [
        ". ".join(filter(None, (title, ", ".join(some)))) for title, some in zip(data.titles, categories, strict=True)
    ]


def tfidf(texts: Sequence[str], dim: int) -> FloatArray:
    """Weigh words by how rare they are, and reduce to `dim` dimensions at most; rows have length 1."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from threadpoolctl import threadpool_limits

    words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\b\w+\b").fit_transform(texts)
    with threadpool_limits(1):
        rows = TruncatedSVD(max(1, min(dim, min(words.shape) - 1)), random_state=0).fit_transform(words)
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def _kept(name: str, texts: Sequence[str], compute: Callable[[], FloatArray]) -> FloatArray:
    """Return what was computed before for the same texts in the same way, or compute and keep it."""
    mark = hashlib.sha256("\0".join((name, *texts)).encode()).hexdigest()[:32]
    path = user_cache_path("coterie") / "text" / f"{mark}.npy"
    if path.exists():
        return _read_npy(path)
    rows = compute()
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.save(file, rows, allow_pickle=False)

    write_atomically(path, write)
    return rows


def _own(data: Interactions, path: Path) -> FloatArray:
    """Read an array: by place from .npy, by the id in the column `item` from .parquet."""
    rows = _read_npy(path) if path.suffix == ".npy" else _read_columns(data, path)
    if rows.ndim != 2 or len(rows) != data.n_items:
        shape = " x ".join(map(str, rows.shape))
        raise CoterieError(f"{path} has an array of {shape}; {data.name} needs {data.n_items} rows, one for each item.")
    if not np.issubdtype(rows.dtype, np.number) or not np.all(np.isfinite(rows)):
        raise CoterieError(f"{path} holds something that is no finite number; write numbers only.")
    return rows.astype(np.float32)


def _read_npy(path: Path) -> FloatArray:
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise CoterieError(f"The file {path} does not exist; check the path.") from None
    except (OSError, ValueError, EOFError):
        raise CoterieError(f"{path} is not a whole .npy file of numbers; write it again.") from None


def _read_columns(data: Interactions, path: Path) -> FloatArray:
    frame = read_parquet(path).frame
    if ITEM not in frame:
        raise CoterieError(f"{path} has no column '{ITEM}' with the items' ids; add it.")
    frame = frame.assign(**{ITEM: frame[ITEM].astype(str)}).drop_duplicates(ITEM).set_index(ITEM)
    missing = [item for item in data.item_ids if item not in frame.index]
    if missing:
        raise CoterieError(f"{path} has no row for item '{missing[0]}' of {data.name}; add it.")
    return frame.loc[list(data.item_ids)].to_numpy()
