"""`coterie robustness` on the command line."""

import csv
import json
import signal
from io import StringIO
from pathlib import Path

import pytest

from coterie.cli.progress import Watch
from coterie.cli.robustness import repeated
from coterie.experiment import grid as running
from coterie.papers import drawing

pytestmark = pytest.mark.xdist_group("cli")

DATA = "demo:users=40,items=120,interactions_per_user=12"
SMALL = ("--data", DATA, "--rounds", "2", "--set", "embedding_dim=4", "--set", "fedsgd.layers=[8]")
GRID = ("--algorithms", "fedsgd", "fedmf", "--attacks", "a_ra", "--defences", "none", "trimmed_mean", *SMALL)
ONE = ("--algorithms", "fedsgd", "--attacks", "a_ra", *SMALL)
NAME = "demo-users-40-items-120-interactions_per_user-12-ratio-full"
NOTHING = "\N{EN DASH}"


def kept(folder="results"):
    return [json.loads(path.read_text()) for path in sorted(Path(folder, "robustness").rglob("*-s?.json"))]


def cells(answer):
    """The rows of the printed table by their names."""
    lines = (line.split() for line in answer.out.splitlines())
    return {tuple(line[:3]): line[3:] for line in lines if len(line) == 8 and line[0] != "algorithm"}


def never(*_, **__):
    raise AssertionError("nothing is left to run")


def test_a_grid_from_nothing_and_again_from_what_is_kept(coterie, monkeypatch):
    before = coterie("robustness", *GRID, "--report-only")
    assert before.code == 0 and not Path("results").exists() and before.err == ""
    assert len(cells(before)) == 4 and {word for row in cells(before).values() for word in row} == {NOTHING}
    first = coterie("robustness", *GRID)
    assert first.code == 0 and "[1/4] fedsgd, a_ra, none on demo" in first.err and ", er@5 0." in first.err
    rows = cells(first)
    assert list(rows) == [(a, "a_ra", d) for a in ("fedsgd", "fedmf") for d in ("none", "trimmed_mean")]
    assert all(0 <= float(value) <= 1 for row in rows.values() for value in row[:3])
    assert rows["fedsgd", "a_ra", "none"][-1] == "sum"
    assert "1 malicious client promotes item" in first.out and "One seed" in first.out
    assert len(kept()) == 4 and list(Path("results/.running").iterdir()) == []
    monkeypatch.setattr(running, "execute", never)
    again = coterie("robustness", *GRID)
    assert again.out == first.out and again.err.count("(from before)") == 4
    shown = coterie("robustness", *GRID, "--report-only")
    assert shown.out == first.out and "[1/4]" not in shown.err
    _check_figures(shown)
    _check_forms(coterie, rows)


def _check_figures(answer):
    figures = Path("results/robustness/figures")
    assert {path.name for path in figures.iterdir()} == {
        "plotly.min.js",
        *(f"{NAME}-{part}.{kind}" for part in ("heat-map", "curves-a_ra") for kind in ("png", "html")),
    }
    assert all(path.stat().st_size > 5_000 for path in figures.iterdir())
    assert answer.err.count("drawn as ") == 2


def _check_forms(coterie, rows):
    markdown = coterie("robustness", *GRID, "--format", "markdown").out
    assert "| fedsgd | a_ra | trimmed_mean | " in markdown
    assert r"\begin{tabular}{lrrrrrrr}" in coterie("robustness", *GRID, "--format", "latex").out
    table = list(csv.DictReader(StringIO(coterie("robustness", *GRID, "--format", "csv").out)))
    assert len(table) == 4 and {row["seeds"] for row in table} == {"1"}
    for row in table:
        shown = rows[row["algorithm"], row["attack"], row["defence"]]
        means = [float(row[f"{name} mean"]) for name in ("er@5", "control er@5", "recall@20")]
        assert means == pytest.approx([float(value) for value in shown[:3]], abs=1e-4)
        assert float(row["seconds mean"]) > 0 and row["er@5 reach"] == ""


def test_nobody_attacks_and_the_regulariser(coterie):
    words = ("--algorithms", "fedsgd", "--attacks", "none,a_ra", "--defences", "regulariser", *SMALL)
    answer = coterie("robustness", *words, "--malicious", "0.1", "--target", "3", "--seeds", "2", "--out", "mine")
    assert answer.code == 0, answer
    assert len(kept("mine")) == 4
    assert "interval over 2 seeds" in answer.out and "4 malicious clients promote item 3." in answer.out
    for result in kept("mine"):
        said, given = result["robustness"], result["given"]
        assert said["regulariser"] == "popularity" and said["defence"] == "none"
        assert (given["participation"], given["clients_per_step"]) == ("batches", 256)
        assert ("last_exposure" in said) == ("malicious" in given) == (given["attack"] == "a_ra")
    table = coterie("robustness", *words, "--seeds", "2", "--out", "mine", "--report-only", "--format", "csv")
    unattacked, _ = csv.DictReader(StringIO(table.out))
    assert unattacked["defence"] == "regulariser" and unattacked["seeds"] == "2"
    assert unattacked["er@5 mean"] == "" and float(unattacked["recall@20 reach"]) >= 0


def test_a_failing_run_is_said_in_its_place_and_the_code_is_1(coterie):
    answer = coterie("robustness", *ONE, "--algorithms", "mf")
    assert answer.code == 1 and len(kept()) == 1
    sentence = "changes or gradients that clients upload, and mf has none; choose another algorithm."
    assert sentence in answer.err and sentence in answer.out and "Traceback" not in answer.err
    assert cells(answer)["mf", "a_ra", "none"] == ["failed"] * 3 + [NOTHING] * 2
    assert float(cells(answer)["fedsgd", "a_ra", "none"][0]) >= 0


def test_interrupted_and_taken_up(coterie, monkeypatch):
    def strike(self, record, simulation):
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "round", strike)
        answer = coterie("robustness", *ONE)
    assert answer.code == 130
    assert answer.err.endswith("Interrupted; what was done is kept, the same command goes on.\n")
    begun, resume = [], running.resume
    monkeypatch.setattr(running, "resume", lambda folder, **words: begun.append(folder) or resume(folder, **words))
    assert coterie("robustness", *ONE).code == 0 and len(begun) == 1 and len(kept()) == 1


def test_without_what_draws_there_is_the_table(coterie, monkeypatch):
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    answer = coterie("robustness", *ONE, "--report-only")
    assert answer.code == 0 and "Figures need matplotlib and plotly" in answer.err and cells(answer)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--attacks", "a_hun"], "There is no attack 'a_hun'; did you mean 'a_hum'?"),
        (["--attacks", "a_hum", "a_rb"], "There is no attack 'a_rb'; did you mean 'a_ra'?"),
        (["--defences", "none,trimmed_men"], "There is no defence 'trimmed_men'; did you mean 'trimmed_mean'?"),
        (["--defences", "regularizer"], "There is no defence 'regularizer'; did you mean 'regulariser'?"),
        (["--algorithms", "fedsdg"], "There is no algorithm 'fedsdg'; did you mean 'fedsgd'?"),
        (["--algorithms", "./no.py"], "There is no file no.py"),
        (["--algorithms", "fedsgd,fedsgd"], "The algorithm fedsgd is there twice; name it once."),
        (["--defences", ","], "There is no defence in the grid; name at least one."),
        (["--attacks"], "'--attacks' requires an argument"),
        (["--protocol", "ratio-ful"], "There is no protocol 'ratio-ful'; did you mean 'ratio-full'?"),
        (["--data", "ml-100"], "There is no data set 'ml-100'; did you mean 'ml-100k'?"),
        (["--seeds", "0"], "The number of seeds is 0; use at least 1."),
        (["--format", "tex"], "There is no format 'tex'; did you mean 'latex'?"),
        (["--malicious", "2"], "malicious"),
        (["--set", "embeding_dim=4"], "There is no setting 'embeding_dim'; did you mean 'embedding_dim'?"),
        (["--set", "fedsdg.lr=1"], "There is no algorithm, attack or defence of the grid 'fedsdg'; did you mean"),
        (["--set", "attack=a_ra"], "The grid sets attack itself; use --attacks."),
        (["--rounds", "3", "--set", "rounds=4"], "rounds is given twice on the command line; give it once."),
        (["surplus"], "surplus"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_run(refused, words, sentence):
    assert sentence in refused("robustness", *words)


def test_lists_may_be_written_in_three_ways():
    assert repeated(["--attacks=a", "b", "--seeds", "2", "c"]) == ["--attacks=a", "--attacks", "b", "--seeds", "2", "c"]
    assert repeated(["--attacks", "a,b", "--attacks", "c"]) == ["--attacks", "a,b", "--attacks", "c"]
