"""The declared papers: settings are the printed ones, and every name is that of a printed number."""

import csv
from importlib.resources import files
from pathlib import Path

import pytest

from coterie import papers
from coterie.errors import CoterieError
from coterie.experiment import config
from coterie.experiment.choice import choose
from coterie.experiment.trials import Results, trials_of
from coterie.papers import cl4fedrec, cofedrec, freib, rqfedrec
from coterie.papers.published import lookup

PAPER = cofedrec.paper


def test_published_numbers_of_four_papers():
    with files("coterie.papers").joinpath("published.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["paper"] for row in rows} == {"cl4fedrec", "freib", "cofedrec", "rqfedrec"}
    keys = [tuple(row.values())[:6] for row in rows]
    assert len(set(keys)) == len(keys) > 790
    assert lookup("freib", "3", "ml-100k", "FREIB", "mae", "beta=1") == 0.7369
    assert lookup("cofedrec", "1", "ml-100k", "Nobody", "hr@10") is None


def test_names():
    assert papers.names() == ("cofedrec", "cl4fedrec", "freib", "rqfedrec") and papers.get("cofedrec") is PAPER
    with pytest.raises(CoterieError, match="There is no paper 'cofedrek'; did you mean 'cofedrec'"):
        papers.get("cofedrek")


@pytest.mark.parametrize("data", cofedrec.ALL)
def test_settings_are_those_of_tables_6_and_7(data):
    ours, pfedrec = cofedrec.cofedrec(data), cofedrec.pfedrec(data)
    assert ours["lr"] == lookup("cofedrec", "6", data, "CoFedRec", "learning_rate")
    assert pfedrec["lr"] == lookup("cofedrec", "6", data, "PFedRec", "learning_rate")
    printed = {"weight": "lambda", "temperature": "tau", "clusters": "item_clusters"}
    for setting, name in printed.items():
        assert ours[setting] == lookup("cofedrec", "7", data, "CoFedRec", name)


@pytest.mark.parametrize("method", ["MF", "NCF", "FedNCF", "PFedRec", "CoFedRec"])
def test_printed_rate_is_among_those_tried(method):
    printed = lookup("cofedrec", "6", "ml-100k", method, "learning_rate")
    assert printed in cofedrec.RATES[method]
    for rate, recipe in zip(cofedrec.RATES[method], cofedrec.TRIED[method], strict=True):
        assert recipe("ml-100k")["lr"] == rate


@pytest.mark.parametrize("data", cofedrec.CHOSEN)
@pytest.mark.parametrize("method", cofedrec.TRIED)
def test_chosen_rate_is_the_best_on_validation(data, method):
    results = Results(Path(__file__).parents[2] / "results", "cofedrec")
    trials = [trial for trial in trials_of(cofedrec.TUNING, data=[data]) if trial.row.startswith(f"{method},")]
    found = [results.read(trial)["validation"]["hr@10"] for trial in trials]
    assert cofedrec.CHOSEN[data][method] == max(range(len(found)), key=found.__getitem__)


def test_every_row_has_its_printed_number():
    absent = {("1", "FedRAP"), ("leak", "local, nothing shared"), ("leak", "PFedRec, global table")}
    for grid in PAPER.tables:
        for row in grid.rows if grid.part == "metrics" else ():
            table, method = row.table or grid.number, row.method or row.label
            printed = [lookup("cofedrec", table, data, method, "hr@10", row.at) for data in grid.data]
            assert (printed[0] is None) == ((grid.number, row.label) in absent), (grid.number, row.label)


def runs(**words):
    return {trial.name for trial in choose(PAPER, **words).all_trials()}


def test_tables_share_their_runs():
    table = {grid.number: runs(tables=[grid.number]) for grid in PAPER.tables}
    for number, other in {"2": "1", "3": "1", "4": "pairs", "8": "pairs"}.items():
        assert len(table[other] & table[number]) >= 6, number
    shown = [figure.grid.number for figure in PAPER.figures]
    assert shown == ["2", "3", "4", "5", "6", "curve", "group-size", "planted"]
    for figure in ("2", "3", "6"):
        assert runs(figures=[figure]) <= table["1"]
    assert runs(figures=["group-size"]) <= table["2"]


def test_sampled_terms_are_said():
    for data in cofedrec.ALL:
        assert ("supcon" in cofedrec.cofedrec(data)) == (data != "ml-100k")
    for grid in PAPER.tables:
        silent = [row for row in grid.rows if "512 items" not in row.label]
        sampled = [row for row in silent for data in grid.data if row.recipe and "supcon" in row.recipe(data)]
        said = {cofedrec.SAMPLED_NOTE, cofedrec.ALL_SAMPLED_NOTE} & {*grid.notes}
        assert bool(sampled) == (bool(said) or grid.part == "validation"), grid.number


@pytest.mark.parametrize("name", papers.names())
def test_every_declared_setting_exists(name):
    paper = papers.get(name)
    for quick in (False, True):
        for grid in (*paper.tables, *(figure.grid for figure in paper.figures)):
            words = {"figures" if grid not in paper.tables else "tables": [grid.number]}
            for trial in choose(paper, seeds=1, quick=quick, **words).all_trials():
                assert config.plan(trial.given).what.data == trial.data


def test_platform_rows_have_their_printed_numbers():
    for grid in (freib.TABLE_3, freib.TABLE_4):
        for row in grid.rows:
            printed = lookup("freib", grid.number, "ml-100k", row.method or row.label, "mae", row.at)
            assert (printed is None) == row.label.startswith("averaged NeuMF"), row.label
    assert freib.method("ml-100k") in [recipe("ml-100k") for recipe in freib.TRIED["FREIB"]]


@pytest.mark.parametrize("method", freib.TRIED)
def test_chosen_rate_has_the_least_error_on_validation(method):
    results = Results(Path(__file__).parents[2] / "results", "freib")
    trials = [trial for trial in trials_of(freib.TUNING) if trial.row.startswith(f"{method},")]
    found = [results.read(trial)["validation"]["mae"] for trial in trials]
    assert freib.CHOSEN[method] == min(range(len(found)), key=found.__getitem__)


@pytest.mark.parametrize("data", cl4fedrec.CHOSEN)
def test_rates_of_long_runs_are_the_best_on_validation(data):
    results = Results(Path(__file__).parents[2] / "results", "cl4fedrec")
    found = [results.read(trial)["validation"]["recall@20"] for trial in trials_of(cl4fedrec.TUNING, data=[data])]
    assert len(found) == len(cl4fedrec.RATES)
    assert cl4fedrec.CHOSEN[data] == max(range(len(found)), key=found.__getitem__)


def test_settings_of_rqfedrec_are_the_best_on_validation():
    results = Results(Path(__file__).parents[2] / "results", "rqfedrec")
    trials = [trial for trial in trials_of(rqfedrec.TUNING) if trial.row.startswith("RQFedRec")]
    best = max(trials, key=lambda trial: results.read(trial)["validation"]["recall@10"])
    assert best.settings == rqfedrec.rqfedrec("ml-100k")


def test_rqfedrec_has_its_printed_numbers():
    for grid in papers.get("rqfedrec").tables:
        for row in grid.rows if grid.part == "metrics" else ():
            table, method = row.table or grid.number, row.method or row.label
            printed = lookup("rqfedrec", table, grid.data[0], method, "recall@10", row.at)
            assert (printed is None) == ((table, method) == ("3", "FedMF")), row.label  # table 3 has no FedMF
