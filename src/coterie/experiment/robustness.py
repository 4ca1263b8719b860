"""A grid of algorithms, attacks and defences on one data set: its runs, its table, its figures."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from coterie import algorithms, attacks, defences
from coterie.data import catalogue
from coterie.errors import CoterieError, unknown
from coterie.evaluation.significance import Interval, interval_over_seeds
from coterie.experiment import config as configuration
from coterie.experiment.report import Table, main_metric
from coterie.experiment.tables import FAILED, NOTHING
from coterie.experiment.trials import Results, Trial, distinct, folder_name
from coterie.papers.chart import Chart, HeatMap, Panel, Series

EXPOSURE, CONTROL = "er@5", "control er@5"
NONE, REGULARISER = "none", "regulariser"
ABOUT_ATTACKS = ("malicious", "target")
DEFAULTS: dict[str, Any] = {
    "participation": "batches",
    "clients_per_step": 256,
    "malicious": 0.001,
    "target": "least-popular",
}
VARIED = {
    "algorithm": "--algorithms",
    "attack": "--attacks",
    "defence": "--defences",
    "data": "--data",
    "protocol": "--protocol",
    "seed": "--seeds",
}
"""Settings that the grid gives to its runs, and the options they come from."""


@dataclass(frozen=True)
class RobustnessGrid:
    """Every algorithm under every attack behind every defence, for the seeds from 0.

    The defence `regulariser` is the popularity regulariser and no defence. `settings` go to every run that has them;
    `NAME.KEY` goes to the runs of one algorithm, attack or defence.
    """

    algorithms: tuple[str, ...]
    attacks: tuple[str, ...]
    defences: tuple[str, ...]
    data: str
    protocol: str
    seeds: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its figures."""
        return f"{folder_name(self.data).strip('-')}-{self.protocol}"


@dataclass(frozen=True)
class OwnTrial(Trial):
    """A run of an algorithm that may be given by path; such a run is known by the code too."""

    source: str = ""

    @property
    def name(self) -> str:
        """The name of its result."""
        if not self.source:
            return super().name
        mark = hashlib.sha256(self.source.encode()).hexdigest()[:8]
        algorithm = f"{label_of(self.settings['algorithm'])}-{mark}"
        return replace(self, settings={**self.settings, "algorithm": algorithm}, source="").name


@dataclass(frozen=True)
class Cell:
    """An algorithm under an attack behind a defence: one run per seed."""

    algorithm: str
    attack: str
    defence: str
    trials: tuple[Trial, ...]

    @property
    def names(self) -> tuple[str, str, str]:
        """What it is known by."""
        return self.algorithm, self.attack, self.defence


def label_of(algorithm: str) -> str:
    """Return the name of an algorithm that may be given by path.

    >>> label_of("fedsgd"), label_of("./mine.py")
    ('fedsgd', 'mine')
    """
    return Path(algorithm).stem if algorithm.endswith(".py") else algorithm


# -- the runs -------------------------------------------------------------------------------------------------


def cells_of(grid: RobustnessGrid) -> list[Cell]:
    """Return the cells of a grid, every name and setting checked."""
    _check(grid)
    cells = [_cell(grid, *names) for names in product(grid.algorithms, grid.attacks, grid.defences)]
    _refuse_unused(grid, cells)
    return cells


def _check(grid: RobustnessGrid) -> None:
    if grid.seeds < 1:
        raise CoterieError(f"The number of seeds is {grid.seeds}; use at least 1.")
    for name in grid.algorithms:
        algorithms.get(name)
    _known("attack", grid.attacks, (NONE, *attacks.names()))
    _known("defence", grid.defences, (NONE, REGULARISER, *defences.names()))
    for kind, names in (("algorithm", grid.algorithms), ("attack", grid.attacks), ("defence", grid.defences)):
        _refuse_repeated(kind, [label_of(name) for name in names])
    for key in (name.rpartition(".")[2] for name in grid.settings):
        if key in VARIED:
            raise CoterieError(f"The grid sets {key} itself; use {VARIED[key]}.")


def _known(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def _refuse_repeated(kind: str, names: Sequence[str]) -> None:
    if not names:
        raise CoterieError(f"There is no {kind} in the grid; name at least one.")
    for name in names:
        if names.count(name) > 1:
            raise CoterieError(f"The {kind} {name} is there twice; name it once.")


def _cell(grid: RobustnessGrid, algorithm: str, attack: str, defence: str) -> Cell:
    label, settings = label_of(algorithm), _settings(grid, algorithm, attack, defence)
    source = Path(algorithm).read_text(encoding="utf-8") if algorithm.endswith(".py") else ""
    row = f"{label}, {attack}, {defence}"
    trials = (OwnTrial(row, grid.data, "", grid.protocol, seed, settings, source) for seed in range(grid.seeds))
    return Cell(label, attack, defence, tuple(trials))


def _settings(grid: RobustnessGrid, algorithm: str, attack: str, defence: str) -> dict[str, Any]:
    """Return the settings of a run; those about attacks stay out of one that has none, so grids share it."""
    wanted = DEFAULTS | _meant_for((label_of(algorithm), attack, defence), grid.settings)
    if attack == NONE:
        wanted = {key: value for key, value in wanted.items() if key not in ABOUT_ATTACKS}
    fixed = {"algorithm": algorithm, "attack": attack, "defence": defence}
    if defence == REGULARISER:
        fixed |= {"defence": NONE, "regulariser": "popularity"}
    return _fitting(fixed, wanted, {"data": grid.data, "protocol": grid.protocol})


def _meant_for(names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    common = {key: value for key, value in settings.items() if "." not in key}
    named = [(*key.split(".", 1), value) for key, value in settings.items() if "." in key]
    return common | {key: value for name, key, value in named if name in names}


def _fitting(fixed: dict[str, Any], wanted: Mapping[str, Any], ground: Mapping[str, Any]) -> dict[str, Any]:
    """Add the wanted settings that the run has; one may bring others with it, as `regulariser` does."""
    known = configuration.plan({**fixed, **ground}).values()
    more = {key: value for key, value in wanted.items() if key in known and key not in fixed}
    return _fitting(fixed | more, wanted, ground) if more else fixed


def _refuse_unused(grid: RobustnessGrid, cells: Sequence[Cell]) -> None:
    """Refuse a setting that no run has."""
    for name in grid.settings:
        owner, _, key = name.rpartition(".")
        owners = {each for cell in cells for each in cell.names}
        if owner and owner not in owners:
            raise unknown("algorithm, attack or defence of the grid", owner, owners)
        meant = [cell.trials[0] for cell in cells if not owner or owner in cell.names]
        if key not in ABOUT_ATTACKS and not any(key in trial.settings for trial in meant):
            known = {key for trial in meant for key in configuration.plan(trial.given).values()}
            raise unknown(f"setting of {owner}" if owner else "setting", key, known)


def trials_of(cells: Sequence[Cell]) -> list[Trial]:
    """Return the runs of all cells, each once; seeds vary slowest, so early results compare fairly."""
    return distinct([trial for of_seed in zip(*(cell.trials for cell in cells), strict=True) for trial in of_seed])


def check_data(trials: Sequence[Trial]) -> None:
    """Refuse data that cannot be loaded, before anything is run."""
    plan = configuration.plan(trials[0].given)
    catalogue.load(plan.what.data, filters=plan.filters)


# -- what came of them ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A cell, the results that are there, and a sentence for each run that failed."""

    cell: Cell
    results: tuple[Mapping[str, Any], ...]
    complaints: tuple[str, ...] = ()

    def measured(self, name: str) -> Interval | None:
        """Return a metric over the seeds; None where there is none."""
        values = [value for result in self.results if (value := _measured(result, name)) is not None]
        return interval_over_seeds(values) if values else None

    @property
    def aggregation(self) -> str:
        """How the server combined uploads."""
        return self.results[0]["robustness"]["aggregation"] if self.results else NOTHING


def _measured(result: Mapping[str, Any], name: str) -> float | None:
    if name == "seconds":
        return result["seconds"]["total"]
    if name in (EXPOSURE, CONTROL):
        return result["robustness"].get("last_exposure", {}).get(name)
    return result["metrics"][name]


def gather(cells: Sequence[Cell], results: Results, failed: Mapping[str, str] | None = None) -> list[Found]:
    """Read what is there; `failed` says why a run failed, by its name."""
    failed = failed or {}
    found = []
    for cell in cells:
        read = (results.read(trial) for trial in cell.trials)
        complaints = tuple(f"{trial}: {failed[trial.name]}" for trial in cell.trials if trial.name in failed)
        found.append(Found(cell, tuple(result for result in read if result is not None), complaints))
    return found


def tabulate(grid: RobustnessGrid, found: Sequence[Found]) -> Table:
    """Return a row for each cell."""
    metric = main_metric(grid.protocol)
    measures = (EXPOSURE, CONTROL, metric)
    rows = [
        (*each.cell.names, *(_text(each, name) for name in measures), _seconds(each), each.aggregation)
        for each in found
    ]
    return Table(
        f"Robustness on {grid.data}, protocol {grid.protocol}",
        ("algorithm", "attack", "defence", EXPOSURE, "control", metric, "s", "rule"),
        tuple(rows),
        (*_notes(metric, grid.seeds, found), *(sentence for each in found for sentence in each.complaints)),
    )


def _text(found: Found, name: str) -> str:
    value = found.measured(name)
    if value is None:
        return FAILED if found.complaints and not found.results else NOTHING
    spread = "" if math.isnan(value.high) else f" ± {value.high - value.mean:.4f}"
    return f"{value.mean:.4f}{spread}"


def _seconds(found: Found) -> str:
    value = found.measured("seconds")
    return NOTHING if value is None else f"{value.mean:.1f}"


def _notes(metric: str, seeds: int, found: Sequence[Found]) -> list[str]:
    there = [len(each.results) for each in found]
    if not any(there):
        return []
    notes = [
        f"{EXPOSURE}: share of the users who never met the target that have it among their first 5 items after the "
        f"last round; control: the same for untouched items of about equal popularity. {metric}: on test items, at "
        f"the round that validation chose. s: seconds of a run. rule: how the server combines uploads. {NOTHING}: "
        "there is none.",
        *_about_attackers(found),
    ]
    if seeds == 1:
        return [*notes, "One seed, so there is no spread."]
    missing = "" if min(there) == seeds else f"; some cells have {min(there)} of them only"
    return [*notes, f"Mean ± half of the 95 % Student t interval over {seeds} seeds{missing}."]


def _about_attackers(found: Sequence[Found]) -> list[str]:
    """Say who attacked for what, if it was the same in all runs."""
    said = [result["robustness"] for each in found for result in each.results]
    ways = {(each["malicious"], ", ".join(each["targets"])) for each in said if each["attack"] != NONE}
    if len(ways) != 1:
        return []
    count, targets = ways.pop()
    return [f"{count} malicious client{'s promote' if count > 1 else ' promotes'} item {targets}."]


def to_csv(grid: RobustnessGrid, found: Sequence[Found]) -> str:
    """Return all values as numbers, a line for each cell; what there is not is empty."""
    measures = (EXPOSURE, CONTROL, main_metric(grid.protocol), "seconds")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{name} {part}" for name in measures for part in ("mean", "reach")]
    writer.writerow(["data", "protocol", "algorithm", "attack", "defence", "aggregation", "seeds", *numbers])
    for each in found:
        about = (grid.data, grid.protocol, *each.cell.names, each.aggregation if each.results else "")
        values = [number for name in measures for number in _numbers(each.measured(name))]
        writer.writerow([*about, len(each.results), *values])
    return text.getvalue()


def _numbers(value: Interval | None) -> tuple[str, str]:
    if value is None:
        return "", ""
    return f"{value.mean:.6f}", "" if math.isnan(value.high) else f"{value.high - value.mean:.6f}"


# -- figures --------------------------------------------------------------------------------------------------


def charts(grid: RobustnessGrid, found: Sequence[Found]) -> dict[str, Chart]:
    """Return the figures by name: a heat map, and the curves of each attack; none where no run was attacked."""
    attacked = [each for each in found if each.measured(EXPOSURE) is not None]
    if not attacked:
        return {}
    drawn = {f"{grid.name}-heat-map": _heat_map(grid, attacked)}
    for attack in _distinct(each.cell.attack for each in attacked):
        drawn[f"{grid.name}-curves-{attack}"] = _curves(
            grid, attack, [each for each in attacked if each.cell.attack == attack]
        )
    return drawn


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _heat_map(grid: RobustnessGrid, found: Sequence[Found]) -> Chart:
    values = {each.cell.names: value.mean for each in found if (value := each.measured(EXPOSURE))}
    rows = [attack for attack in grid.attacks if attack != NONE]
    panels = []
    for name in _distinct(each.cell.algorithm for each in found):
        cells = [[values.get((name, attack, defence), math.nan) for defence in grid.defences] for attack in rows]
        panels.append(HeatMap(name, "defence", "attack", rows, grid.defences, cells))
    title = f"{EXPOSURE} after the last round: {grid.data}, {grid.protocol}"
    return Chart(title, tuple(panels), f"Share of users that are shown the target. {_over(grid)}")


def _curves(grid: RobustnessGrid, attack: str, found: Sequence[Found]) -> Chart:
    panels = []
    for name in _distinct(each.cell.algorithm for each in found):
        lines = (_line(each) for each in found if each.cell.algorithm == name)
        panels.append(Panel(name, "round", EXPOSURE, tuple(lines)))
    return Chart(f"{EXPOSURE} under {attack}: {grid.data}, {grid.protocol}", tuple(panels), _over(grid))


def _line(found: Found) -> Series:
    """Return the mean over seeds, in the rounds that all have; patience may end some early."""
    by_round = [dict(zip(curve["round"], curve[EXPOSURE], strict=True)) for curve in _curves_of(found)]
    rounds = [number for number in by_round[0] if all(number in one for one in by_round)]
    return Series(found.cell.defence, rounds, [float(np.mean([one[n] for one in by_round])) for n in rounds])


def _curves_of(found: Found) -> list[Mapping[str, Any]]:
    return [result["curve"] for result in found.results]


def _over(grid: RobustnessGrid) -> str:
    return "One seed." if grid.seeds == 1 else f"Mean over {grid.seeds} seeds."
