"""A grid's results as tables: beside each published value, ours under the paper's protocol and under the honest one."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.evaluation import protocols
from coterie.evaluation.significance import interval_over_seeds
from coterie.experiment.report import REFERENCE_NAMES, Table
from coterie.experiment.trials import Results, Trial, trials_of
from coterie.papers.declare import HONEST, PAPER, Grid, Row
from coterie.papers.published import lookup

NOTHING, FAILED = "\N{EN DASH}", "failed"
VALUE_BYTES = 4
REFERENCES = {"ranking": ("popularity", "ease"), "rating": ("constant", "item_bias", "user_item_bias")}


@dataclass(frozen=True)
class Value:
    """A metric over seeds, in the unit of the paper; `reach` is half of the interval, NaN for one seed."""

    mean: float
    reach: float
    lowest: float
    seeds: int


@dataclass(frozen=True)
class Line:
    """A metric of a row on a data set: published, and ours by form; `failed` are the forms that could not be run."""

    data: str
    row: str
    metric: str
    published: float | None
    ours: Mapping[str, Value]
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Filled:
    """A grid with its values, and a sentence for each run that failed."""

    grid: Grid
    lines: tuple[Line, ...]
    complaints: tuple[str, ...]


def fill(
    grid: Grid,
    results: Results,
    *,
    seeds: int | None = None,
    data: Collection[str] = (),
    failed: Mapping[str, str] | None = None,
) -> Filled:
    """Gather what was run for a grid; `failed` says why, by the name of a run."""
    failed = failed or {}
    trials = trials_of(grid, seeds=seeds, data=data)
    found = {trial.name: results.read(trial) for trial in trials}
    lines: list[Line] = []
    for name in (name for name in grid.data if not data or name in data):
        here = [trial for trial in trials if trial.data == name]
        for row in grid.rows:
            own = [trial for trial in here if trial.row == row.label]
            lines += _lines(grid, results.paper, name, row, own, found, failed)
        lines += _references(grid, name, here, found)
    complaints = {f"{trial}: {failed[trial.name]}": None for trial in trials if trial.name in failed}
    return Filled(grid, tuple(lines), tuple(complaints))


def _lines(
    grid: Grid,
    paper: str,
    data: str,
    row: Row,
    trials: Sequence[Trial],
    found: Mapping[str, Mapping[str, Any] | None],
    failed: Mapping[str, str],
) -> list[Line]:
    broken = frozenset(trial.form for trial in trials if trial.name in failed)
    lines = []
    for metric in grid.metrics:
        runs = [(trial.form, found[trial.name]) for trial in trials]
        parts = [(form, _part(grid, result)) for form, result in runs if result is not None]
        values = [(form, part[metric]) for form, part in parts if metric in part]
        published = lookup(paper, row.table or grid.number, data, row.method or row.label, metric, row.at)
        lines.append(Line(data, row.label, metric, published, _by_form(grid, values), broken))
    return lines


def _part(grid: Grid, result: Mapping[str, Any]) -> Mapping[str, float]:
    """Return what the metrics of a grid are read from; beside those of a run stands its budget, if it has one."""
    if grid.part == "exposure":
        return result["robustness"]["last_exposure"]
    if grid.part == "traffic":
        return _traffic(result)
    return result.get("privacy", {}) | result[grid.part]


def _traffic(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the values in the larger of a client's two messages, and in what needs to travel, averaged over rounds."""
    sent = result["bytes"]
    values = VALUE_BYTES * result["settings"]["clients"] * result["rounds"]
    needed = max(sent.get("needed_up", sent["up"]), sent.get("needed_down", sent["down"]))
    return {"resource": max(sent["up"], sent["down"]) / values, "needed": needed / values}


def _references(
    grid: Grid, data: str, trials: Sequence[Trial], found: Mapping[str, Mapping[str, Any] | None]
) -> list[Line]:
    """Return the lines of the references: every run of a seed has the same, so one of each seed is enough.

    They are measured on test items alone.
    """
    if grid.part != "metrics":
        return []
    one_per_seed = {(trial.form, trial.seed): result for trial in trials if (result := found[trial.name])}
    lines = []
    for name in REFERENCES[protocols.get(grid.protocol).task]:
        known = [(form, own) for (form, _), result in one_per_seed.items() if (own := result["references"].get(name))]
        for metric in grid.metrics if known else ():
            values = [(form, reference[metric]) for form, reference in known if metric in reference]
            lines.append(Line(data, f"({REFERENCE_NAMES[name]})", metric, None, _by_form(grid, values)))
    return lines


def _by_form(grid: Grid, values: Sequence[tuple[str, float]]) -> dict[str, Value]:
    forms = {form: [grid.scale * value for other, value in values if other == form] for form in grid.forms}
    return {form: _value(of_form) for form, of_form in forms.items() if of_form}


def _value(values: Sequence[float]) -> Value:
    interval = interval_over_seeds(values)
    return Value(interval.mean, interval.high - interval.mean, min(values), len(values))


def tables(filled: Filled, *, narrow: bool = False) -> list[Table]:
    """Return a table for each data set; what all have in common stands below the last.

    A narrow table has a row for each metric of a method, another one has columns for it.
    """
    grid, kinds = filled.grid, _kinds(filled.grid)
    wide = ("method", *(f"{metric} {kind}" for metric in grid.metrics for kind in kinds))
    data = list(dict.fromkeys(line.data for line in filled.lines))
    counts = {value.seeds for line in filled.lines for value in line.ours.values()}
    built = []
    for name in data:
        here = [line for line in filled.lines if line.data == name]
        rows = (_narrow_rows if narrow else _wide_rows)(grid, here, len(counts) > 1)
        notes = (*_notes(grid, counts), *filled.complaints) if name == data[-1] else ()
        built.append(Table(f"{heading(grid)}, {name}", ("method", "", *kinds) if narrow else wide, rows, notes))
    return built


def heading(grid: Grid) -> str:
    """Return the number and the title of a grid; one that the paper does not have has a name for a number."""
    return f"Table {grid.number}: {grid.title}" if grid.number.isdigit() else grid.title


def _kinds(grid: Grid) -> tuple[str, ...]:
    return ("published", *(grid.protocol_of(form) for form in grid.forms))


def _wide_rows(grid: Grid, lines: Sequence[Line], counts_differ: bool) -> tuple[tuple[str, ...], ...]:
    rows: dict[str, tuple[str, ...]] = {}
    for line in lines:
        rows[line.row] = (*rows.get(line.row, (line.row,)), *_cells(grid, line, counts_differ))
    return tuple(rows.values())


def _narrow_rows(grid: Grid, lines: Sequence[Line], counts_differ: bool) -> tuple[tuple[str, ...], ...]:
    first = grid.metrics[0]
    return tuple(
        (line.row if line.metric == first else "", line.metric, *_cells(grid, line, counts_differ)) for line in lines
    )


def _cells(grid: Grid, line: Line, counts_differ: bool) -> list[str]:
    published = NOTHING if line.published is None else f"{line.published:.{grid.digits}f}"
    return [published, *(_cell(grid, line, form, counts_differ) for form in grid.forms)]


def _cell(grid: Grid, line: Line, form: str, counts_differ: bool) -> str:
    value = line.ours.get(form)
    if value is None:
        return FAILED if form in line.failed else NOTHING
    spread = "" if math.isnan(value.reach) else f" ± {_spelled_number(value.reach, grid.digits)}"
    count = f" (n={value.seeds})" if counts_differ else ""
    return f"{_spelled_number(value.mean, grid.digits)}{spread}{count}"


def _spelled_number(value: float, digits: int) -> str:
    """Spell a number with so many decimals; one of six digits or more (an epsilon) with three that count.

    >>> _spelled_number(796525.0, 0), _spelled_number(20851.98871, 4), _spelled_number(2008311.5, 4)
    ('796525', '20851.9887', '2.01e+06')
    """
    return f"{value:.{digits}f}" if abs(value) < 1e5 or not digits else f"{value:.3g}"


def _notes(grid: Grid, counts: Collection[int]) -> tuple[str, ...]:
    unit = "in percent" if grid.scale == 100 else "as they are"
    of = {
        "metrics": "",
        "validation": " on validation items",
        "exposure": " after the last round",
        "traffic": " in the larger of the two messages of a client and a round",
    }[grid.part]
    said = {PAPER: "ours under the paper's protocol", HONEST: "ours under the honest one"}
    forms = "".join(f" {grid.protocol_of(form)}: {said[form]};" for form in grid.forms)
    notes = [f"Values {unit}{of}. published: printed in the paper;{forms} {NOTHING}: there is none."]
    if counts:
        notes.append(_spread_note(counts))
    if counts and grid.part == "metrics":
        notes.append("In brackets: references, which see all training data in one place.")
    return (*notes, *grid.notes)


def _spread_note(counts: Collection[int]) -> str:
    if set(counts) == {1}:
        return "One seed, so there is no spread."
    seeds = f"{max(counts)} seeds" if len(set(counts)) == 1 else "n seeds"
    return f"Ours: mean ± half of the 95 % Student t interval over {seeds}."


def to_csv(filled: Filled) -> str:
    """Return all values as numbers, a line for each data set, method and metric."""
    grid = filled.grid
    parts = ("mean", "reach", "lowest", "seeds")
    ours = [f"{grid.protocol_of(form)} {part}" for form in grid.forms for part in parts]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "data", "method", "metric", "published", *ours])
    for line in filled.lines:
        numbers = [number for form in grid.forms for number in _numbers(grid, line.ours.get(form))]
        published = "" if line.published is None else f"{line.published:g}"
        writer.writerow([grid.number, line.data, line.row, line.metric, published, *numbers])
    return text.getvalue()


def _numbers(grid: Grid, value: Value | None) -> list[str]:
    if value is None:
        return ["", "", "", "0"]
    numbers = (value.mean, value.reach, value.lowest)
    return [*("" if math.isnan(number) else f"{number:.{grid.digits + 2}f}" for number in numbers), str(value.seeds)]


def settings_table(grid: Grid) -> Table:
    """Return the settings of every row that is run, by data set; all others are the algorithm's defaults."""
    rows = [
        (row.label, row.recipe(grid.data[0])["algorithm"], *(_spelled(row.recipe(data)) for data in grid.data))
        for row in grid.rows
        if row.recipe is not None
    ]
    return Table(
        f"Settings of {heading(grid)}",
        ("method", "algorithm", *grid.data),
        tuple(rows),
        ("Settings that are not named are the algorithm's defaults.",),
    )


def _spelled(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name != "algorithm")
