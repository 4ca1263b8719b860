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
