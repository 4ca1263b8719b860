import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.data import cache, catalogue
from coterie.data.entries import ENTRIES
from coterie.data.filters import Filters
from coterie.data.interactions import UNKNOWN_TIME
from coterie.data.synthetic import make
from coterie.errors import CoterieError

REAL = os.environ.get("COTERIE_DATA")
USED = {  # users, items, interactions after the default filters
    "ml-100k": (943, 1682, 100_000),
    "filmtrust": (1227, 2059, 34_886),
    "lastfm-2k": (1222, 12_274, 69_595),
    "amazon-video": (8072, 11_830, 63_836),
    "amazon-book": (11_000, 9332, 200_860),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give the test a cache folder of its own and no other place to look."""
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    return tmp_path / "coterie" / "data"


@pytest.mark.skipif(not REAL, reason="the real sets are not in $COTERIE_DATA")
@pytest.mark.parametrize("name", USED)
def test_real_set(name):
    assert REAL is not None
    if not (Path(REAL) / name).is_dir():
        pytest.skip(f"{name} is not in $COTERIE_DATA")
    data = catalogue.load(name)
    assert (data.n_users, data.n_items, len(data)) == USED[name]
    raw = catalogue.load(name, filters=Filters(deduplicate=False))
    assert cache.checksum(raw) == ENTRIES[name].checksum


def small(**changes):
    return replace(make(users=20, items=30, communities=2, interactions_per_user=6), **changes)


def test_import_and_load_again(home):
    data = small(name="mine", split=np.array(["train", "test"] * 500)[: len(small())])
    times = data.timestamps.copy()
    times[3] = UNKNOWN_TIME
    data = replace(data, timestamps=times, ratings=data.ratings + np.float32(0.5))
    assert catalogue.import_file("mine", data) == home / "mine"
    again = catalogue.load("mine", filters=Filters(deduplicate=False))
    assert cache.checksum(again) == cache.checksum(data)
    assert again.timestamps.tolist() == times.tolist() and again.split.tolist() == data.split.tolist()
    assert set(again.titles) <= set(data.titles)
    assert cache.names() == ["mine"] and [path.name for path in home.iterdir()] == ["mine"]


def test_import_replaces_whole(home):
    catalogue.import_file("mine", small())
    catalogue.import_file("mine", small(titles=None, categories=None))
    assert [path.name for path in (home / "mine").iterdir()] == ["ratings.csv.gz"]


def test_failed_write_leaves_the_old_set(home, monkeypatch):
    catalogue.import_file("mine", small())

    def no_space(path, frame):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write_csv", no_space)
    with pytest.raises(CoterieError, match=r"mine cannot be written \(No space left on device\)"):
        catalogue.import_file("mine", small())
    assert len(catalogue.load("mine")) == len(small())
    assert [path.name for path in home.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "says"),
    [("../up", "cannot name a set"), ("ml-100k", "of the catalogue"), ("demo", "of the catalogue")],
)
def test_names_that_are_refused(home, name, says):
    with pytest.raises(CoterieError, match=says):
        catalogue.import_file(name, small())
    assert not home.exists()


def test_checksum_ignores_row_order_and_sees_every_column():
    data = small()
    order = np.argsort(data.items, kind="stable")
    columns = ("users", "items", "ratings", "timestamps")
    shuffled = replace(data, **{name: getattr(data, name)[order] for name in columns})
    assert cache.checksum(shuffled) == cache.checksum(data)
    for name in columns:
        changed = getattr(data, name).copy()
        changed[0] = changed[0] + 1 if changed[0] < 5 else 0
        assert cache.checksum(replace(data, **{name: changed})) != cache.checksum(data)


def test_demo():
    data = catalogue.load("demo:users=50,items=80,interactions_per_user=10", seed=2)
    assert data.name == "demo:users=50,items=80,interactions_per_user=10"
    assert (data.n_users, data.n_items) == (50, 80)
    wanted = make(users=50, items=80, interactions_per_user=10, seed=2)
    assert data.fingerprint() == wanted.fingerprint()


def test_path(home, tmp_path):
    (tmp_path / "log.csv").write_text("user_id,item_id\n1,2\n1,2\n1,3\n")
    data = catalogue.load(tmp_path / "log.csv")
    assert (data.name, len(data)) == ("log", 2)


def test_own_folder_comes_first(home, tmp_path, monkeypatch):
    catalogue.import_file("mine", small())
    cache.write(tmp_path / "own" / "mine", make(users=10, items=30, communities=2, interactions_per_user=6))
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "own"))
    assert catalogue.load("mine").n_users == 10


def test_wrong_counts_are_refused(home):
    cache.write(home / "ml-100k", small())
    with pytest.raises(CoterieError, match=r"has 20 users, .* instead of 943 users, 1,682 items and 100,000"):
        catalogue.load("ml-100k")


def test_published_files_of_a_set_with_two_tables(home):
    folder = home / "lastfm-2k-plays"
    folder.mkdir(parents=True)
    (folder / "user_artists.dat").write_text("userID\tartistID\tweight\n2\t5\t13\n")
    (folder / "user_taggedartists.dat").write_text("userID\tartistID\ttagID\tday\tmonth\tyear\n2\t5\t1\t1\t1\t2009\n")
    with pytest.raises(CoterieError, match="has 1 users, 1 items and 1 interactions instead of 1,892"):
        catalogue.load("lastfm-2k-plays")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ml-100k", "ml-100k is not on this machine; run: coterie data get ml-100k"),
        (
            "amazon-video",
            r"amazon-video is not on this machine; write the rows .* \$COTERIE_DATA/amazon-video",
        ),
        ("ml-100", "There is no data set 'ml-100'; did you mean 'ml-100k'"),
        ("gone.csv", "The file gone.csv does not exist"),
        ("demo:user=3", "There is no option of the demo set 'user'; did you mean 'users'"),
        ("demo:users=few", "users is 'few'; write a number"),
    ],
)
def test_names_that_cannot_be_loaded(home, name, says):
    with pytest.raises(CoterieError, match=says):
        catalogue.load(name)
