"""The command line in this process: words in; exit code, output and complaints out."""

from pathlib import Path
from typing import NamedTuple

import pytest
from small import SMALL

from coterie import cli


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def coterie(capsys, monkeypatch, tmp_path):
    """Call the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words):
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def refused(coterie):
    """Call the command line with something wrong: one sentence, exit code 2, and nothing new in the folder."""

    def call(*words):
        before = sorted(Path().rglob("*"))
        answer = coterie(*words)
        assert answer.code == 2, answer
        assert answer.err.count("\n") == 1 and answer.err.startswith("error: "), answer.err
        assert "Traceback" not in answer.out + answer.err
        assert sorted(Path().rglob("*")) == before
        return answer.err

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run of three rounds."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert cli.main(["run", "fedmf", *SMALL, "--rounds", "3", "--out", str(folder)]) == 0
    return folder
