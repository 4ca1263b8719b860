"""Every published layout, written by hand, gives the same small table."""

import gzip
import zipfile

import numpy as np
import pandas as pd
import pytest

from coterie.data.interactions import UNKNOWN_TIME
from coterie.data.readers import from_frame, read

# The same four interactions in every layout: users 2 and 10, items 7 and 30.
PAIRS = [("10", "7"), ("2", "30"), ("2", "7"), ("10", "30")]

ROWS = "10,7,3,100\n2,30,4,200\n2,7,5,300\n10,30,1,400\n"
TABBED = ROWS.replace(",", "\t")

LAYOUTS = {
    "csv": {"some.csv": "user_id,item_id,rating,timestamp\n" + ROWS},
    "tsv": {"some.tsv": "user\titem\trating\ttimestamp\n" + TABBED},
    "ml-100k": {"u.data": TABBED},
    "ml-1m": {"ratings.dat": ROWS.replace(",", "::")},
    "ml-csv": {"ratings.csv": "userId,movieId,rating,timestamp\n" + ROWS},
    "recbole": {"x.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + TABBED},
}

# The 19 flags of u.item: comedy is the sixth genre, drama the ninth, action the second.
COMEDY_DRAMA, ACTION = "|0" * 5 + "|1|0|0|1" + "|0" * 10, "|0|1" + "|0" * 17
TEXTS = {
    "ml-100k": (
        "u.item",
        f"7|Am\xe9lie (2001)|date||url{COMEDY_DRAMA}\n30|Heat (1995)|date||url{ACTION}\n",
    ),
    "ml-1m": ("movies.dat", "7::Am\xe9lie (2001)::Comedy|Drama\n30::Heat (1995)::Action\n"),
    "ml-csv": (
        "movies.csv",
        'movieId,title,genres\n7,Am\xe9lie (2001),Comedy|Drama\n30,"Heat (1995)",Action\n',
    ),
    "recbole": (
        "x.item",
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "7\tAm\xe9lie\t2001\tComedy Drama\n30\tHeat\t1995\tAction\n",
    ),
}
LATIN = {"ml-100k", "ml-1m"}


def write(folder, files, packed=False, encoding="utf-8"):
    for name, text in files.items():
        raw = text.encode(encoding)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


def pairs_of(data):
    return [(data.user_ids[u], data.item_ids[i]) for u, i in zip(data.users, data.items, strict=True)]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout(tmp_path, layout, packed):
    data = read(write(tmp_path, LAYOUTS[layout], packed))
    assert pairs_of(data) == PAIRS
    assert data.user_ids == ("2", "10") and data.item_ids == ("7", "30")  # by value, not by spelling
    assert data.ratings.tolist() == [3, 4, 5, 1]
    assert data.timestamps.tolist() == [100, 200, 300, 400]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("layout", TEXTS)
def test_item_text_beside_it(tmp_path, layout, packed):
    encoding = "latin-1" if layout in LATIN else "utf-8"
    write(tmp_path, LAYOUTS[layout] | dict([TEXTS[layout]]), packed, encoding)
    data = read(tmp_path)
    assert data.name == tmp_path.name
    assert data.titles == ("Am\xe9lie (2001)", "Heat (1995)")
    assert data.categories == (("Comedy", "Drama"), ("Action",))


def test_filmtrust(tmp_path):
    data = read(write(tmp_path, {"ratings.txt": "1 1 2\n1 2 3.5\n2  1 4 \n"}))
    assert pairs_of(data) == [("1", "1"), ("1", "2"), ("2", "1")]
    assert data.ratings.tolist() == [2, 3.5, 4]
    assert data.timestamps is None


def test_lastfm(tmp_path):
    write(tmp_path, {"artists.dat": 'id\tname\turl\tpictureURL\n5\tThe "Band"\tu\tp\n6\tOther\tu\tp\n'})
    plays = write(tmp_path, {"user_artists.dat": "userID\tartistID\tweight\n2\t5\t13883\n"})
    rows = "userID\tartistID\ttagID\tday\tmonth\tyear\n2\t5\t13\t1\t4\t2009\n3\t9\t1\t2\t1\t1970\n"
    tagged = write(tmp_path, {"user_taggedartists.dat": rows})
    assert read(plays).ratings.tolist() == [13883]
    data = read(tagged)
    assert data.timestamps.tolist() == [1238544000, 86400]
    assert data.titles == ('The "Band"', "9")
    assert data.notes == ("1 of 2 items have no title in artists.dat",)


def test_own_layout_with_items_and_split(tmp_path):
    write(
        tmp_path,
        {
            "ratings.csv": "user,item,rating,timestamp\nb,x,1,\na,y,1,5\na,x,1,\n",
            "items.csv": 'item,title,genres\nx,"Salt, Pepper",A|B\ny,,\nnever,Unused,C\n',
            "split.csv": "user,item,split\nb,x,trn\na,y,val\na,x,tst\n",
        },
        packed=True,
    )
    data = read(tmp_path, name="mine")
    assert (data.name, data.user_ids, data.item_ids) == ("mine", ("a", "b"), ("x", "y"))
    assert data.titles == ("Salt, Pepper", "y") and data.categories == (("A", "B"), ())
    assert data.split.tolist() == ["train", "validation", "test"]
    assert data.timestamps.tolist() == [UNKNOWN_TIME, 5, UNKNOWN_TIME]


def test_other_columns_separator_and_titles(tmp_path):
    write(tmp_path, {"names.csv": "item_id,title\n007,Bond\n7,Seven\n"})
    path = write(tmp_path, {"log.txt": "who;what;stars\nann;007;2\nbob;7;3\n"})
    data = read(path, user="who", item="what", rating="stars", sep=";", titles=tmp_path / "names.csv")
    assert data.item_ids == ("007", "7") and data.titles == ("Bond", "Seven")
    assert data.ratings.tolist() == [2, 3]


def test_without_ratings_and_with_blank_lines(tmp_path):
    data = read(write(tmp_path, {"a.csv": "user_id,item_id\r\n1,2\r\n\r\n1,3\r\n\r\n"}))
    assert data.ratings.tolist() == [1, 1] and data.timestamps is None


def test_several_characters_as_separator(tmp_path):
    data = read(write(tmp_path, {"a.txt": "user_id##item_id\n1##2\n"}), sep="##")
    assert pairs_of(data) == [("1", "2")]


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"user_id": [10, 2], "item_id": ["b", "a"], "rating": [1.5, 2.0]})
    frame.to_parquet(tmp_path / "some.parquet")
    data = read(tmp_path / "some.parquet")
    assert pairs_of(data) == [("10", "b"), ("2", "a")] and data.ratings.tolist() == [1.5, 2.0]


def test_zip_reads_only_the_files_it_knows(tmp_path):
    path = tmp_path / "ml.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../outside.txt", "no")
        archive.writestr("ml/u.data", LAYOUTS["ml-100k"]["u.data"])
        archive.writestr("ml/u.item", TEXTS["ml-100k"][1].encode("latin-1"))
    data = read(path)
    assert (data.name, pairs_of(data), data.titles[1]) == ("ml", PAIRS, "Heat (1995)")
    (tmp_path / "own.csv").write_text("item,title\n7,Own\n30,Words\n")
    assert read(path, titles=tmp_path / "own.csv").titles == ("Own", "Words")


def test_frame():
    frame = pd.DataFrame(
        {
            "who": ["b", "a", "a"],
            "item": [3.0, 20.0, 3.0],  # whole numbers that pandas made floats
            "timestamp": pd.to_datetime(["1970-01-02T00:00:00.0", None, "1970-01-01T00:00:01.5"]),
        },
        index=[9, 9, 9],
    )
    data = from_frame(frame, user="who", titles={"3": "Three", "20": "Twenty"})
    assert pairs_of(data) == [("b", "3"), ("a", "20"), ("a", "3")]
    assert data.titles == ("Three", "Twenty")
    assert data.timestamps.tolist() == [86400, UNKNOWN_TIME, 1]
    assert data.ratings.dtype == np.float32
