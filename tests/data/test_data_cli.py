import pytest
from typer.testing import CliRunner

from coterie.cli.data import app
from coterie.data import cache, catalogue
from coterie.errors import CoterieError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "user_cache_path", lambda name: tmp_path / name)
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "coterie" / "data"


def coterie(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, CoterieError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_list(home):
    (home / "mine").mkdir(parents=True)
    lines = coterie("list").splitlines()
    assert any("ml-1m" in line and "1,000,209" in line and "get" in line for line in lines)
    assert any("amazon-book" in line and "by hand" in line for line in lines)
    assert any("mine" in line and "your own" in line for line in lines)


def test_import_and_info(home, tmp_path):
    (tmp_path / "log.csv").write_text("who;what;when\na;x;0\nb;x;86400\nb;x;90000\n")
    output = coterie(
        "import", tmp_path / "log.csv", "--name", "mine", "--sep", ";",
        "--user", "who", "--item", "what", "--timestamp", "when",
    )  # fmt: skip
    assert "2 users, 1 items, 3 interactions are in" in output
    output = coterie("info", "mine")
    assert "1970-01-01 to 1970-01-02" in output and "100.000%" in output
    assert "dropped 1 repeated (user, item) pair" in output
    assert cache.checksum(catalogue.load("mine")) in output


def test_make(home, tmp_path):
    sizes = ("--users", "20", "--items", "30", "--communities", "2", "--interactions", "6")
    coterie("make", *sizes, "--name", "toy")
    coterie("make", *sizes, "--out", tmp_path / "toy")
    assert catalogue.load("toy").fingerprint() == catalogue.load(tmp_path / "toy").fingerprint()
    with pytest.raises(CoterieError, match="toy exists already"):
        coterie("make", *sizes, "--out", tmp_path / "toy")
    with pytest.raises(CoterieError, match="--out FOLDER or --name NAME"):
        coterie("make", *sizes)


def test_get_of_an_unknown_set(home):
    with pytest.raises(CoterieError, match="did you mean 'ml-100k'"):
        coterie("get", "ml-100")


def test_import_a_file_for_each_platform(home, tmp_path):
    (tmp_path / "strict.csv").write_text("user_id,item_id,rating\na,x,1\nb,x,2\n")
    (tmp_path / "mild.csv").write_text("user_id,item_id,rating\nb,y,5\nc,x,4\n")
    files = [tmp_path / "strict.csv", tmp_path / "mild.csv"]
    assert "3 users, 2 items, 4 interactions are in" in coterie("import", *files, "--name", "both")
    assert "mild, strict" in coterie("info", "both")
    data = catalogue.load("both")
    assert [data.platform_ids[number] for number in data.platforms] == ["strict", "strict", "mild", "mild"]
    assert data.ratings.tolist() == [1, 2, 5, 4]


def test_import_a_column_of_platforms(home, tmp_path):
    (tmp_path / "log.csv").write_text("user_id,item_id,rating,shop\na,x,1,north\nb,x,2,south\na,y,3,south\n")
    coterie("import", tmp_path / "log.csv", "--name", "shops", "--platform", "shop")
    data = catalogue.load("shops")
    assert data.platform_ids == ("north", "south") and data.platforms.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("second", "words", "sentence"),
    [
        ("user_id,item_id,rating\na,x,good\n", (), "b.csv, line 2: the rating 'good' is not a finite number"),
        ("user_id,item_id\na,x\n", (), "all need the same"),
        ("user_id,item_id,rating\na,x,2\n", ("--platform", "shop"), "one for each platform"),
        (None, (), "does not exist"),
    ],
)
def test_platforms_that_do_not_fit(home, tmp_path, second, words, sentence):
    (tmp_path / "a.csv").write_text("user_id,item_id,rating\na,x,1\n")
    if second:
        (tmp_path / "b.csv").write_text(second)
    with pytest.raises(CoterieError, match=sentence):
        coterie("import", tmp_path / "a.csv", tmp_path / "b.csv", "--name", "both", *words)
    assert not (home / "both").exists()


def test_platforms_need_names_of_their_own(home, tmp_path):
    (tmp_path / "more").mkdir()
    for file in (tmp_path / "a.csv", tmp_path / "more" / "a.csv"):
        file.write_text("user_id,item_id,rating\na,x,1\n")
    with pytest.raises(CoterieError, match="Two of the files are called a"):
        coterie("import", tmp_path / "a.csv", tmp_path / "more" / "a.csv", "--name", "both")
