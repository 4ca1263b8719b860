"""Whatever is wrong with a file is one sentence that names the file, the line and the way out."""

import gzip
import zipfile

import pandas as pd
import pytest

from coterie.data.readers import from_frame, read
from coterie.errors import CoterieError

HEADER = "user_id,item_id,rating,timestamp\n"


def refused(path, **options):
    with pytest.raises(CoterieError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".")
    return message


def wrong(folder, text, name="a.csv", **options):
    path = folder / name
    path.write_text(text)
    return refused(path, **options)


def test_missing_file(tmp_path):
    assert "gone.csv does not exist" in refused(tmp_path / "gone.csv")
    assert "gone.zip does not exist" in refused(tmp_path / "gone.zip")


@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_empty_file(tmp_path, text):
    assert "a.csv is empty" in wrong(tmp_path, text)


def test_header_only(tmp_path):
    assert "no rows below its header" in wrong(tmp_path, HEADER)


def test_wrong_separator(tmp_path):
    message = wrong(tmp_path, "user_id;item_id;rating\n1;2;3\n")
    assert "read with ',' as separator" in message
    assert "'user_id;item_id;rating'" in message and "separated by ';'" in message


def test_wrong_separator_of_a_known_layout(tmp_path):
    message = wrong(tmp_path, "1,2,3,4\n", name="u.data")
    assert "a tab as separator" in message and "separated by ','" in message


def test_missing_column(tmp_path):
    message = wrong(tmp_path, "who,item_id\n1,2\n")
    assert "no user column (one of user_id, user, userId)" in message
    assert "it has the columns who, item_id" in message and "--user" in message


def test_mapped_column_missing(tmp_path):
    message = wrong(tmp_path, HEADER + "1,2,3,4\n", rating="stars")
    assert "no column 'stars'" in message and "user_id, item_id, rating, timestamp" in message


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,2,good,4", "line 4: the rating 'good' is not a finite number"),
        ("1,2,inf,4", "line 4: the rating 'inf' is not a finite number"),
        ("1,2,1e300,4", "line 4: the rating '1e300' is not a finite number"),
        ("1,2,nan,4", "line 4: the rating 'nan' is not a finite number"),
        ("1,2,,4", "line 4: the rating is empty"),
        ("1,2", "line 4: the rating is empty"),
        ("1,2,3,today", "line 4: the timestamp 'today' is not a number of Unix seconds"),
        ("1,2,3,inf", "line 4: the timestamp 'inf' is not a number of Unix seconds"),
        (",2,3,4", "line 4: the user id is empty"),
        ("NaN,2,3,4", "line 4: the user id is empty"),
        ("1, ,3,4", "line 4: the item id is empty"),
        ("1,2,3,4,5", "line 4, saw 5"),
    ],
)
def test_bad_row(tmp_path, row, says):
    # The empty third line is passed over but counted.
    assert says in wrong(tmp_path, f"{HEADER}8,9,5,1\n\n{row}\n7,7,1,1\n")


def test_more_fields_than_columns(tmp_path):
    assert "more fields than it has columns" in wrong(tmp_path, "user_id,item_id\n1,2,3\n4,5,6\n")


def test_open_quote(tmp_path):
    assert "cannot be read as a table" in wrong(tmp_path, 'user_id,item_id\n"1,2\n')


def test_not_utf8(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"user_id,item_id\n\xff,1\n")
    assert "is not text in UTF-8" in refused(path)


@pytest.mark.parametrize("cut", [5, 20, -4])
def test_truncated_gzip(tmp_path, cut):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "1,2,3,4\n" * 50).encode())[:cut])
    assert "a.csv.gz is not a whole gzip file" in refused(path)


def test_text_called_gzip(tmp_path):
    assert "is not a whole gzip file" in wrong(tmp_path, HEADER, name="a.csv.gz")


def test_truncated_zip(tmp_path):
    path = tmp_path / "ml.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("u.data", "1\t2\t3\t4\n" * 100)
    path.write_bytes(path.read_bytes()[:200])
    assert "ml.zip is not a whole zip file" in refused(path)


def test_damaged_zip(tmp_path):
    path = tmp_path / "ml.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("u.data", "1\t2\t3\t4\n" * 100)
    raw = bytearray(path.read_bytes())
    raw[60] ^= 0xFF  # inside the member: its check sum no longer fits
    path.write_bytes(bytes(raw))
    assert "ml.zip is not a whole zip file" in refused(path)


def test_zip_without_ratings(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "x.zip has no rating file" in refused(path)


def test_truncated_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    pd.DataFrame({"user_id": [1], "item_id": [2]}).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    assert "a.parquet is not a whole Parquet file" in refused(path)


def test_folder_without_ratings(tmp_path):
    assert "has no rating file" in refused(tmp_path)


def test_folder_with_two_rating_files(tmp_path):
    for name in ("u.data", "ratings.csv"):
        (tmp_path / name).write_text("1\t2\t3\t4\n")
    assert "several rating files (ratings.csv, u.data)" in refused(tmp_path)


def test_titles_of_other_items(tmp_path):
    (tmp_path / "t.csv").write_text("item,title\nx,X\n")
    message = wrong(tmp_path, HEADER + "1,2,3,4\n", titles=tmp_path / "t.csv")
    assert "No item id of t.csv occurs in a.csv: the first are 'x' and '2'" in message


def test_item_not_in_the_titles(tmp_path):
    (tmp_path / "t.csv").write_text("item,title\n2,Two\n")
    message = wrong(tmp_path, HEADER + "1,2,3,4\n1,3,3,4\n", titles=tmp_path / "t.csv")
    assert "a.csv, line 3: item '3' is not in t.csv" in message


def test_titles_without_a_title_column(tmp_path):
    (tmp_path / "t.csv").write_text("item,label\n2,Two\n")
    message = wrong(tmp_path, HEADER + "1,2,3,4\n", titles=tmp_path / "t.csv")
    assert "t.csv has no title column; it has item, label" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user,item,split\n1,2,train\n", "split.csv has 1 rows and ratings.csv has 2"),
        ("user,item,split\n1,2,train\n9,3,test\n", "split.csv, line 3 names another (user, item) pair"),
        ("user,item,split\n1,2,train\n1,3,later\n", "split.csv, line 3: the part 'later' is unknown"),
    ],
)
def test_bad_split_file(tmp_path, text, says):
    (tmp_path / "split.csv").write_text(text)
    assert says in wrong(tmp_path, "user,item\n1,2\n1,3\n", name="ratings.csv")


def test_bad_day(tmp_path):
    text = "userID\tartistID\ttagID\tday\tmonth\tyear\n2\t5\t13\t31\t2\t2009\n"
    message = wrong(tmp_path, text, name="user_taggedartists.dat")
    assert "user_taggedartists.dat, line 2: the day, month and year are not a date" in message


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ({"user": [1, None], "item": [1, 2]}, "frame, row 1: the user id is empty"),
        (
            {"user": [1, 2], "item": [1, 2], "rating": [1.0, float("nan")]},
            "frame, row 1: the rating is empty",
        ),
        ({"user": [1], "item": [1], "timestamp": ["x"]}, "frame, row 0: the timestamp 'x' is not"),
        ({"user": [], "item": []}, "frame has no rows"),
        ({"user": [1]}, "frame has no item column"),
    ],
)
def test_bad_frame(frame, says):
    with pytest.raises(CoterieError) as caught:
        from_frame(pd.DataFrame(frame))
    assert says in str(caught.value)


def test_frame_with_a_column_twice():
    with pytest.raises(CoterieError, match="two columns called 'user'"):
        from_frame(pd.DataFrame([[1, 2, 3]], columns=["user", "item", "user"]))
