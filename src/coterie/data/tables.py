"""Files as tables of text; whatever is wrong with a file is said here in one sentence."""

from __future__ import annotations

import gzip
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from csv import QUOTE_MINIMAL, QUOTE_NONE
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from coterie.errors import CoterieError

WHITESPACE = r"\s+"
SEPARATORS = {"\t": "a tab", ";": "';'", "::": "'::'", "|": "'|'", ",": "','", " ": "a space"}
# pandas reads a separator of several characters with its slow engine, so it is replaced by one character
# that no text contains.
UNIT_SEPARATOR = "\x1f"
# What zipfile raises on a damaged file (ValueError: an offset that leads nowhere) or one with a password.
BAD_ZIP = (zipfile.BadZipFile, EOFError, zlib.error, ValueError, RuntimeError)


@dataclass(frozen=True)
class Table:
    """Columns of a file or frame; the index of `frame` is the line (or row) number that errors name."""

    source: str
    frame: pd.DataFrame
    unit: str = "line"

    def place(self, position: int) -> str:
        """Name the row at a position as a person finds it."""
        return f"{self.source}, {self.unit} {self.frame.index[position]}"


def bare_name(path: Path) -> str:
    """Return the file's name without `.gz`."""
    return path.name.removesuffix(".gz")


def existing(folder: Path, name: str) -> Path | None:
    """Return a file of a folder, plain or gzipped."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_bytes(path: Path) -> bytes:
    """Return what a file holds, unpacked where its name ends in `.gz`."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except FileNotFoundError:
        raise CoterieError(f"The file {path} does not exist; check the path.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise CoterieError(f"The file {path} is not a whole gzip file; download or pack it again.") from None
    except OSError as error:
        raise CoterieError(f"The file {path} cannot be read ({error.strerror}).") from None


def read_text(
    path: Path,
    *,
    sep: str,
    names: Sequence[str] | None = None,
    encoding: str = "utf-8-sig",
    quoted: bool = False,
) -> Table:
    """Read separated text as it is spelled; `names` are the columns of a file without a header.

    Empty lines are passed over, but count in the line numbers.
    """
    raw = read_bytes(path)
    _check_first_line(path, raw, sep, encoding)
    if len(sep) > 1 and sep != WHITESPACE:
        raw, sep = raw.replace(sep.encode(), UNIT_SEPARATOR.encode()), UNIT_SEPARATOR
    frame = _parse(path, raw, sep, names, encoding, quoted)
    frame.index = pd.RangeIndex(1 if names else 2, len(frame) + (1 if names else 2))
    frame = frame[(frame != "").any(axis=1)]
    if frame.empty:
        raise CoterieError(f"{path} has no rows below its header; choose a file with interactions.")
    return Table(path.name, frame)


def _check_first_line(path: Path, raw: bytes, sep: str, encoding: str) -> None:
    line = raw.split(b"\n", 1)[0].decode(encoding, "replace").rstrip("\r")
    if not raw.strip():
        raise CoterieError(f"{path} is empty; choose a file with interactions.")
    if re.search(WHITESPACE, line.strip()) if sep == WHITESPACE else sep in line:
        return
    used = "white space" if sep == WHITESPACE else SEPARATORS.get(sep, repr(sep))
    other = next((shown for s, shown in SEPARATORS.items() if s in line), None)
    hint = f"it looks separated by {other}: pass sep" if other else "pass the right one as sep"
    raise CoterieError(
        f"{path} was read with {used} as separator and has only one column, the first line is "
        f"'{line[:80]}'; {hint} (--sep on the command line)."
    )


def _parse(path: Path, raw: bytes, sep: str, names: Sequence[str] | None, encoding: str, quoted: bool) -> pd.DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.BytesIO(raw),
                sep=sep,
                names=None if names is None else list(names),
                header=0 if names is None else None,
                index_col=False,
                dtype=object,
                keep_default_na=False,
                skip_blank_lines=False,
                encoding=encoding,
                quoting=QUOTE_MINIMAL if quoted else QUOTE_NONE,
            )
    except UnicodeDecodeError:
        raise CoterieError(f"{path} is not text in {encoding[:5].upper()}; save it in that encoding.") from None
    except pd.errors.ParserWarning:
        raise CoterieError(f"{path} has rows with more fields than it has columns; check the separator.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = str(error).split("C error: ")[-1].strip().rstrip(".")
        raise CoterieError(f"{path} cannot be read as a table: {reason}; correct that line.") from None


def read_parquet(path: Path) -> Table:
    """Read a Parquet file; its rows count from 0."""
    raw = read_bytes(path)
    try:
        frame = pd.read_parquet(io.BytesIO(raw))
    except ImportError:
        raise CoterieError(f"Reading {path} needs pyarrow: pip install 'coterie[parquet]'.") from None
    except Exception as error:  # the Parquet engine raises its own kinds, and OSError for a truncated file
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise CoterieError(f"{path} is not a whole Parquet file ({reason}); write it again.") from None
    return frame_table(frame, path.name)


def frame_table(frame: pd.DataFrame, source: str) -> Table:
    """Wrap a frame; its rows count from 0 whatever its index says."""
    if frame.empty:
        raise CoterieError(f"{source} has no rows; give it at least one interaction.")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise CoterieError(f"{source} has two columns called '{twice}'; rename one of them.")
    return Table(source, frame.reset_index(drop=True), unit="row")
