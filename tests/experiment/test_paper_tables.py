"""Tables of results: three values for each metric, and nothing that was not run or printed."""
# ruff: noqa: RUF001
# An en dash stands for what is not there.

import csv
from dataclasses import replace
from io import StringIO

import pytest

from coterie.errors import CoterieError
from coterie.experiment import pages, tables
from coterie.experiment.tables import fill, settings_table, to_csv
from coterie.experiment.trials import Results, trials_of, write_json
from coterie.papers.declare import Grid, Row

ROWS = (
    Row("PFedRec", lambda data: {"algorithm": "pfedrec", "rounds": 2}),
    Row("CoFedRec", lambda data: {"algorithm": "cofedrec", "rounds": 3 if data == "ml-1m" else 4}),
    Row("FedRAP", lambda data: {"algorithm": "fedrap"}),
    Row("MetaMF"),
)
GRID = Grid("1", "Some methods", ROWS, ("ml-100k", "ml-1m"), notes=("A note.",))
EASE = {"hr@10": 0.65, "ndcg@10": 0.38}


def keep(results, values, seeds=1):
    """Write results: the hit rate of a trial by row, form and data."""
    for trial in trials_of(GRID, seeds=seeds):
        hit_rate = values.get((trial.row, trial.form, trial.data))
        if hit_rate is not None:
            metrics = {"hr@10": hit_rate + trial.seed / 100, "ndcg@10": hit_rate / 2}
            write_json(results.path(trial), {"metrics": metrics, "references": {"ease": EASE, "item_bias": EASE}})


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path, "cofedrec")


def test_published_ours_and_honest_stand_side_by_side(results):
    keep(results, {("PFedRec", "paper", "ml-100k"): 0.7, ("PFedRec", "honest", "ml-100k"): 0.54})
    first, second = tables.tables(fill(GRID, results, seeds=1))
    assert first.title == "Table 1: Some methods, ml-100k" and second.title.endswith("ml-1m")
    assert first.columns == (
        "method", "hr@10 published", "hr@10 loo99-paper", "hr@10 loo99",
        "ndcg@10 published", "ndcg@10 loo99-paper", "ndcg@10 loo99",
    )  # fmt: skip
    rows = {row[0]: row[1:] for row in first.rows}
    assert rows["PFedRec"] == ("71.05", "70.00", "54.00", "43.89", "35.00", "27.00")
    assert rows["CoFedRec"] == ("77.52", "–", "–", "50.65", "–", "–")
    assert rows["FedRAP"] == ("–",) * 6
    assert rows["MetaMF"] == ("66.06", "–", "–", "39.82", "–", "–")
    assert rows["(EASE)"] == ("–", "65.00", "65.00", "–", "38.00", "38.00")
    assert list(rows) == ["PFedRec", "CoFedRec", "FedRAP", "MetaMF", "(EASE)"]
    assert first.notes == () and "A note." in second.notes
    assert any("One seed, so there is no spread" in note for note in second.notes)


def test_spread_over_seeds(results):
    keep(results, {("PFedRec", "paper", "ml-100k"): 0.7}, seeds=3)
    filled = fill(GRID, results, data=["ml-100k"])
    (table,) = tables.tables(filled)
    # t_(2, 0.975) s / sqrt(3) with s = 1
    assert table.rows[0][2] == "71.00 ± 2.48" and table.rows[0][5] == "35.00 ± 0.00"
    assert any("95 % Student t interval over 3 seeds" in note for note in table.notes)
    lowest = next(line for line in filled.lines if line.row == "PFedRec").ours["paper"].lowest
    assert lowest == pytest.approx(70)


def test_a_budget_stands_beside_the_metrics_and_nowhere_else(results):
    grid = replace(GRID, metrics=("hr@10", "epsilon"), forms=("honest",), rows=ROWS[:2], data=("ml-100k",), seeds=1)
    budgets = {"PFedRec": {"mechanism": "gaussian", "epsilon": 2e6}, "CoFedRec": {"mechanism": "none"}}
    for trial in trials_of(grid):
        found = {"metrics": {"hr@10": 0.5}, "references": {"ease": EASE}, "privacy": budgets[trial.row]}
        write_json(results.path(trial), found)
    (table,) = tables.tables(fill(grid, results))
    assert [(row[0], *row[3:]) for row in table.rows] == [
        ("PFedRec", "–", "2e+08"), ("CoFedRec", "–", "–"), ("(EASE)", "–", "–"),
    ]  # fmt: skip


def test_values_in_a_message(tmp_path):
    """The larger direction counts: 3 values a client and round up, 5 down of which 2 were needed."""
    results, shown = Results(tmp_path, "rqfedrec"), {"metrics": ("resource", "needed"), "scale": 1.0, "digits": 0}
    grid = replace(GRID, number="4", part="traffic", rows=(Row("RQFedRec", lambda _: {"algorithm": "x"}),), **shown)
    sent = {"up": 4 * 3 * 20, "down": 4 * 5 * 20, "needed_down": 4 * 2 * 20}
    for trial in trials_of(grid, seeds=1):
        write_json(results.path(trial), {"bytes": sent, "settings": {"clients": 10}, "rounds": 2})
    assert tables.tables(fill(grid, results, seeds=1))[0].rows == (("RQFedRec", "796524", "5", "5", "–", "3", "3"),)


def test_the_number_of_seeds_is_said_where_it_differs(results):
    keep(results, {("PFedRec", "paper", "ml-100k"): 0.7}, seeds=2)
    keep(results, {("PFedRec", "honest", "ml-100k"): 0.5})
    (table,) = tables.tables(fill(GRID, results, data=["ml-100k"]))
    assert table.rows[0][2].endswith("(n=2)") and table.rows[0][3] == "50.00 (n=1)"
    assert any("over n seeds" in note for note in table.notes)


def test_a_failure_stands_in_its_place(results):
    failed = {trial.name: "Out of luck." for trial in trials_of(GRID, seeds=1, rows=["CoFedRec"])}
    *_, last = tables.tables(fill(GRID, results, seeds=1, failed=failed))
    assert last.rows[1] == ("CoFedRec", "77.75", "failed", "failed", "48.81", "failed", "failed")
    assert "CoFedRec on ml-1m, loo99, seed 0: Out of luck." in last.notes


def test_narrow_tables_have_a_row_for_each_metric(results):
    keep(results, {("PFedRec", "paper", "ml-100k"): 0.7})
    table = tables.tables(fill(GRID, results, data=["ml-100k"]), narrow=True)[0]
    assert table.columns == ("method", "", "published", "loo99-paper", "loo99")
    assert table.rows[:2] == (
        ("PFedRec", "hr@10", "71.05", "70.00", "–"),
        ("", "ndcg@10", "43.89", "35.00", "–"),
    )


def test_csv_has_numbers(results):
    keep(results, {("PFedRec", "paper", "ml-100k"): 0.7}, seeds=3)
    rows = list(csv.DictReader(StringIO(to_csv(fill(GRID, results)))))
    row = rows[0]
    assert (row["table"], row["data"], row["method"], row["metric"]) == ("1", "ml-100k", "PFedRec", "hr@10")
    assert float(row["published"]) == 71.05 and float(row["loo99-paper mean"]) == pytest.approx(71)
    assert float(row["loo99-paper reach"]) == pytest.approx(2.4841, abs=1e-4)
    assert float(row["loo99-paper lowest"]) == 70 and row["loo99-paper seeds"] == "3"
    assert row["loo99 mean"] == "" and row["loo99 seeds"] == "0"
    assert len(rows) == 2 * 4 * 2 + 2


def test_latex_and_markdown(results):
    keep(results, {("PFedRec", "paper", "ml-100k"): 0.7}, seeds=3)
    table = tables.tables(fill(GRID, results, data=["ml-100k"]))[0]
    assert r"PFedRec & 71.05 & 71.00 $\pm$ 2.48 & – &" in table.to_latex()
    assert "| PFedRec | 71.05 | 71.00 ± 2.48 | – |" in table.to_markdown()


def test_settings_are_listed():
    table = settings_table(GRID)
    assert table.columns == ("method", "algorithm", "ml-100k", "ml-1m")
    assert table.rows == (
        ("PFedRec", "pfedrec", "rounds 2", "rounds 2"),
        ("CoFedRec", "cofedrec", "rounds 4", "rounds 3"),
        ("FedRAP", "fedrap", "", ""),
    )


PAGE = "Text.\n<!-- coterie paper cofedrec --table 1 --data ml-100k -->\nold\n<!-- end -->\nMore.\n"


def test_pages_are_filled_and_filling_again_changes_nothing(tmp_path):
    new = pages.filled(PAGE, tmp_path)
    assert new.startswith("Text.\n<!-- coterie") and new.endswith("<!-- end -->\nMore.\n")
    assert "old" not in new and "| CoFedRec | 77.52 | – | – | 50.65 | – | – |" in new and "ml-1m**" not in new
    assert pages.filled(new, tmp_path) == new
    settings = pages.filled(PAGE.replace(" --data ml-100k", " --settings"), tmp_path)
    assert "| PFedRec | pfedrec | rounds 100, lr 0.2 |" in settings


def test_a_page_that_names_no_table(tmp_path):
    with pytest.raises(CoterieError, match="names no table"):
        pages.filled(PAGE.replace("--table 1", "--tabel 1"), tmp_path)
    with pytest.raises(CoterieError, match="There is no table of cofedrec '7'"):
        pages.filled(PAGE.replace("--table 1", "--table 7"), tmp_path)


def test_pages_on_disk(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text(PAGE)
    pages.main(["page.md"])
    assert (tmp_path / "page.md").read_text() == pages.filled(PAGE)
    assert capsys.readouterr().out == "page.md: tables made anew\n"
    pages.main(["page.md"])
    assert capsys.readouterr().out == ""
