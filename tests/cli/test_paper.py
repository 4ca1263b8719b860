"""`coterie paper` on the command line."""

import csv
import json
import signal
from io import StringIO
from pathlib import Path

import pytest
from small import DATA

from coterie import papers
from coterie.cli.progress import Watch
from coterie.experiment import grid as running
from coterie.papers.chart import Chart, Panel, Series
from coterie.papers.declare import Figure, Grid, Paper, Probe, Quick, Row

pytestmark = pytest.mark.xdist_group("cli")


def fedmf(_):
    return {"algorithm": "fedmf", "rounds": 4, "embedding_dim": 4, "lr": 1.0, "item_lr": 100.0}


ROWS = (Row("Factors", fedmf), Row("Printed"))
TABLE = Grid("1", "Toys", ROWS, (DATA,), seeds=1)
BROKEN = Grid("2", "Broken", (Row("Typo", lambda _: {"algorithm": "fedmff"}), *ROWS), (DATA,), seeds=1)
LOSS = Probe("loss", lambda simulation, seen: {"loss": [record.metrics["loss"] for record in simulation.history]})


def chart(grid, samples):
    lines = (Series(each.form, list(range(len(each.measured["loss"]))), each.measured["loss"]) for each in samples)
    return Chart(grid.title, (Panel("loss", "round", "loss", tuple(lines)),))


TOY = Paper(
    "toy",
    "Toys for all",
    "here",
    (TABLE, BROKEN),
    (Figure(Grid("3", "Loss", ROWS[:1], (DATA,), seeds=1), chart, LOSS),),
    Quick(DATA, lambda settings: settings),
)


@pytest.fixture
def toy(coterie, monkeypatch):
    """Call the command line on a paper of toys."""
    monkeypatch.setattr(papers, "NAMES", ("toy",))
    monkeypatch.setattr(papers, "get", lambda name: TOY)
    return lambda *words: coterie("paper", "toy", *words)


def never(*_, **__):
    raise AssertionError("nothing is left to run")


def test_a_table_from_nothing_and_again_from_what_is_kept(toy, monkeypatch):
    before = toy("--table", "1", "--report-only")
    assert before.code == 0 and not Path("results").exists() and before.err == ""
    first = toy("--table", "1")
    assert first.code == 0 and "Table 1: Toys" in first.out and "published" in first.out
    assert "[1/2] Factors on demo" in first.err and "[2/2] Factors on demo" in first.err
    assert len(list(Path("results/toy").rglob("*-s0.json"))) == 2 and list(Path("results/.running").iterdir()) == []
    monkeypatch.setattr(running, "execute", never)
    again = toy("--table", "1")
    assert again.out == first.out and again.err.count("(from before)") == 2
    shown = toy("--table", "1", "--report-only")
    assert shown.out == first.out and shown.err == ""
    listed = toy("--list")
    assert listed.code == 0 and "table 1" in listed.out and "figure 3" in listed.out
    counts = next(line.split()[-2:] for line in listed.out.splitlines() if line.strip().startswith("table 1"))
    assert counts == ["2", "2"]
    formats = {form: toy("--table", "1", "--format", form) for form in ("markdown", "csv", "latex")}
    assert "| Factors | " in formats["markdown"].out and "**Table 1: Toys" in formats["markdown"].out
    assert r"\begin{tabular}{lrrrrrr}" in formats["latex"].out
    rows = list(csv.DictReader(StringIO(formats["csv"].out)))
    assert rows[0]["method"] == "Factors" and 0 < float(rows[0]["loo99 mean"]) < 100


def test_a_failing_row_is_said_in_its_place_and_the_code_is_1(toy):
    answer = toy("--table", "2")
    assert answer.code == 1
    assert answer.out.count("failed") == 4 and "did you mean 'fedmf'?" in answer.out
    assert "failed: There is no algorithm 'fedmff'" in answer.err
    assert len(list(Path("results/toy").rglob("*-s0.json"))) == 2


def test_interrupted_and_taken_up(toy, monkeypatch):
    def strike(self, record, simulation):
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "round", strike)
        answer = toy("--table", "1", "--row", "Factors")
    assert answer.code == 130
    assert answer.err.endswith("Interrupted; what was done is kept, the same command goes on.\n")
    assert len(list(Path("results/.running").iterdir())) == 1 and not Path("results/toy").exists()
    begun = []
    monkeypatch.setattr(running, "resume", lambda folder, **words: begun.append(folder) or resume(folder, **words))
    assert toy("--table", "1").code == 0 and len(begun) == 1
    assert list(Path("results/.running").iterdir()) == []


resume = running.resume


def test_a_figure_is_measured_and_drawn(toy):
    missing = toy("--figure", "3", "--report-only")
    assert missing.code == 0 and "0 of 2 runs are there, so it was not drawn" in missing.err
    answer = toy("--figure", "3", "--out", "mine")
    assert answer.code == 0 and "2 of 2 runs are there; drawn as" in answer.err
    assert Path("mine/toy/figures/figure-3.png").exists() and Path("mine/toy/figures/figure-3.html").exists()
    assert len(list(Path("mine/toy").rglob("*.loss.json"))) == 2


def test_papers_are_listed_with_what_they_have(coterie):
    answer = coterie("paper")
    assert answer.code == 0 and "cofedrec" in answer.out and "group-size" in answer.out
    listed = coterie("paper", "cofedrec", "--list", "--seeds", "1")
    assert listed.code == 0 and "Virtual ratings" in listed.out and "each run once" in listed.out
    settings = coterie("paper", "cofedrec", "--table", "8", "--settings", "--format", "csv")
    assert "weight 0.3,cofedrec," in settings.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["cofedrek"], "There is no paper 'cofedrek'; did you mean 'cofedrec'?"),
        (["cofedrec", "--table", "11"], "There is no table of cofedrec '11'; did you mean '1'?"),
        (["cofedrec", "--figure", "size"], "There is no figure of cofedrec 'size'; did you mean 'group-size'?"),
        (["cofedrec", "--data", "ml-100"], "'ml-100'; did you mean 'ml-100k'?"),
        (["cofedrec", "--table", "4", "--data", "mine.csv"], "The file mine.csv does not exist; check the path."),
        (["cofedrec", "--row", "CoFedRek"], "did you mean 'CoFedRec'?"),
        (["cofedrec", "--format", "tex"], "There is no format 'tex'; did you mean 'latex'?"),
        (["cofedrec", "--seeds", "0"], "The number of seeds is 0"),
    ],
)
def test_names_that_mean_nothing(refused, words, sentence):
    assert sentence in refused("paper", *words)


def test_the_small_version_of_cofedrec(coterie):
    answer = coterie("paper", "cofedrec", "--quick")
    assert answer.code == 0, answer
    assert "failed" not in answer.out and answer.err.count("demo") >= 4
    table = [line.split() for line in answer.out.splitlines()]
    values = next(line for line in table if line[:2] == ["CoFedRec", "hr@10"])
    assert values[2] == "\N{EN DASH}" and all(0 <= float(value) <= 100 for value in values[3:5])
    figures = Path("runs/quick/cofedrec/figures")
    assert {path.stem for path in figures.glob("*.png")} == {
        f"figure-{n}" for n in ("2", "3", "6", "curve", "group-size")
    }
    again = coterie("paper", "cofedrec", "--quick", "--format", "markdown")
    assert again.err.count("(from before)") == 4 and "| CoFedRec |" in again.out


def test_the_small_version_of_cl4fedrec(coterie):
    answer = coterie("paper", "cl4fedrec", "--quick")
    assert answer.code == 0, answer
    table = [line.split() for line in answer.out.splitlines()]
    values = next(line for line in table if line[:2] == ["rCL4FedRec", "recall@20"])
    assert all(0 <= float(value) <= 1 for value in values[3:5])
    assert [path.stem for path in Path("runs/quick/cl4fedrec/figures").glob("*.png")] == ["figure-1"]


def test_the_small_version_of_freib(coterie):
    answer = coterie("paper", "freib", "--quick")
    assert answer.code == 0, answer
    assert "(user + item bias)" in answer.out and "FREIB, beta 1" in answer.out
    figures = {path.stem for path in Path("runs/quick/freib/figures").glob("*.png")}
    assert figures == {"figure-3", "figure-skew"}
    (measured,) = Path("runs/quick/freib").rglob("*.ratings.json")
    counts = json.loads(measured.read_text())["counts"]
    assert len(counts) == 5 and min(map(sum, counts)) >= 10


def test_the_small_version_of_rqfedrec(coterie):
    answer = coterie("paper", "rqfedrec", "--quick")
    assert answer.code == 0, answer
    table = [line.split() for line in answer.out.splitlines()]
    values = next(line for line in table if line[:2] == ["RQFedRec", "recall@10"])
    assert all(0 <= float(value) <= 1 for value in values[3:5])
    drawn = {path.stem for path in Path("runs/quick/rqfedrec/figures").glob("*.png")}
    assert drawn == {"figure-4", "figure-megabytes"}


def test_the_clients_own_tables_are_clustered(coterie):
    answer = coterie("paper", "cofedrec", "--figure", "5", "--quick")
    assert answer.code == 0 and "1 of 1 runs are there; drawn as" in answer.err
    (measured,) = Path("runs/quick/cofedrec").rglob("*.client-clusters.json")
    labels = json.loads(measured.read_text())["labels"]
    assert len(labels["2"]) == len(labels["10"]) == 60 and len(set(labels["10"])) == 10
