"""The grid of algorithms, attacks and defences: its runs, and what is made of their results."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

import coterie
from coterie.errors import CoterieError
from coterie.experiment.robustness import (
    Cell,
    Found,
    RobustnessGrid,
    cells_of,
    charts,
    tabulate,
    to_csv,
    trials_of,
)
from coterie.experiment.tables import NOTHING

GRID = RobustnessGrid(("fedsgd", "fedmf"), ("none", "a_ra"), ("none", "regulariser"), "demo", "ratio-full", seeds=2)


def settings(grid):
    return {cell.names: cell.trials[0].settings for cell in cells_of(grid)}


def test_seeds_vary_slowest_and_every_run_is_there_once():
    trials = trials_of(cells_of(GRID))
    assert [trial.seed for trial in trials] == [0] * 8 + [1] * 8
    assert len({trial.name for trial in trials}) == 16
    assert str(trials[3]) == "fedsgd, a_ra, regulariser on demo, ratio-full, seed 0"


def test_a_setting_goes_to_the_runs_that_have_it():
    grid = replace(GRID, settings={"backbone": "mf", "fedmf.lr": 0.5, "hot_items": 9, "clients_per_step": 32})
    found = settings(grid)
    assert found["fedsgd", "a_ra", "none"]["backbone"] == "mf" and "backbone" not in found["fedmf", "a_ra", "none"]
    assert found["fedmf", "none", "none"]["lr"] == 0.5 and "lr" not in found["fedsgd", "none", "none"]
    assert {names[2] for names, given in found.items() if "hot_items" in given} == {"regulariser"}
    assert {given["clients_per_step"] for given in found.values()} == {32}
    everywhere = settings(replace(GRID, settings={"hot_items": 9, "regulariser": "popularity"}))
    assert all(given["hot_items"] == 9 for given in everywhere.values())


def test_runs_without_an_attack_do_not_depend_on_how_many_attack():
    few, many = (settings(replace(GRID, settings={"malicious": share, "target": "7"})) for share in (0.01, 0.1))
    same = {names for names in few if few[names] == many[names]}
    assert same == {names for names in few if names[1] == "none"}
    alone = replace(GRID, attacks=("none",), settings={"malicious": 0.1})
    assert all("malicious" not in given for given in settings(alone).values())


def test_an_algorithm_of_ones_own_is_known_by_its_code(tmp_path):
    file = tmp_path / "mine.py"
    text = (Path(coterie.__file__).parent / "algorithms/fedmf.py").read_text()
    names = []
    for end in ("", "\nCHANGED = True\n"):
        file.write_text(text + end)
        (cell,) = cells_of(replace(GRID, algorithms=(str(file),), attacks=("a_ra",), defences=("none",)))
        assert cell.algorithm == "mine" and cell.trials[0].given["algorithm"] == str(file)
        names.append(cell.trials[0].name)
    assert names[0] != names[1] and all(name.startswith("demo/ratio-full/mine-") for name in names)


def test_a_setting_that_no_run_has_is_refused():
    with pytest.raises(CoterieError, match="There is no setting 'trim'"):
        cells_of(replace(GRID, settings={"trim": 0.1}))
    with pytest.raises(CoterieError, match="There is no setting of fedmf 'embeding_dim'; did you mean 'embedding_dim'"):
        cells_of(replace(GRID, settings={"fedmf.embeding_dim": 4}))


def result(exposure, rounds=(1, 2), curve=(0.5, 0.25), attack="a_ra"):
    said = {"attack": attack, "aggregation": "sum"}
    if attack != "none":
        said |= {"last_exposure": {"er@5": exposure, "control er@5": 0.0}, "malicious": 1, "targets": ["i7"]}
    return {
        "metrics": {"recall@20": 0.5},
        "seconds": {"total": 2.0},
        "robustness": said,
        "curve": {"round": list(rounds), "er@5": list(curve)},
    }


def found(attack, defence, *results, complaints=()):
    return Found(Cell("fedsgd", attack, defence, ()), results, complaints)


FOUND = [
    found("a_ra", "none", result(0.2), result(0.4, (1, 2, 3), (0.7, 0.75, 0.8))),
    found("a_ra", "regulariser", complaints=("It broke.",)),
    found("none", "none", result(0.0, attack="none"), result(0.0, attack="none")),
]


def test_values_are_means_over_seeds_with_their_reach():
    table = tabulate(GRID, FOUND)
    attacked, broken, alone = table.rows
    assert attacked[3:] == ("0.3000 ± 1.2706", "0.0000 ± 0.0000", "0.5000 ± 0.0000", "2.0", "sum")
    assert broken[3:] == ("failed", "failed", "failed", NOTHING, NOTHING) and alone[3:6] == (
        NOTHING,
        NOTHING,
        "0.5000 ± 0.0000",
    )
    assert table.notes[1:] == (
        "1 malicious client promotes item i7.",
        "Mean ± half of the 95 % Student t interval over 2 seeds; some cells have 0 of them only.",
        "It broke.",
    )
    lines = to_csv(GRID, FOUND).splitlines()
    assert lines[1].startswith("demo,ratio-full,fedsgd,a_ra,none,sum,2,0.300000,1.270620,")
    assert lines[2] == "demo,ratio-full,fedsgd,a_ra,regulariser,,0,,,,,,,,"


def test_charts_show_attacked_runs_in_the_rounds_that_all_seeds_have():
    drawn = charts(GRID, FOUND)
    assert list(drawn) == ["demo-ratio-full-heat-map", "demo-ratio-full-curves-a_ra"]
    (heat,), (lines,) = (chart.panels for chart in drawn.values())
    assert (heat.title, heat.rows, heat.columns) == ("fedsgd", ["a_ra"], ("none", "regulariser"))
    assert heat.values[0][0] == pytest.approx(0.3) and math.isnan(heat.values[0][1])
    (line,) = lines.series
    assert line.label == "none" and line.x == [1, 2] and line.y == pytest.approx([0.6, 0.5])
    assert charts(GRID, FOUND[1:]) == {}
