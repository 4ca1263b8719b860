"""Several algorithms on the same data over several seeds: every run is kept, so a comparison can go on or grow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data import catalogue
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError
from coterie.evaluation import protocols
from coterie.evaluation.significance import Interval, holm, interval_over_seeds, paired_test
from coterie.experiment import config
from coterie.experiment.config import Plan
from coterie.experiment.report import REFERENCE_NAMES, Table, main_metric, shown_metrics
from coterie.experiment.run import CONFIG, SUMMARY, OnRound, OnStart, execute, read_result, resume
from coterie.files import forget_programs, write_text
from coterie.version import __version__

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """What a comparison needs of one run."""

    summary: dict[str, Any]
    per_user: dict[str, Values]


CarryOut = Callable[[Plan, Path, Interactions], Result]


@dataclass(frozen=True)
class Row:
    """An algorithm: its metrics over the seeds, and how likely its distance to the best is by chance."""

    name: str
    metrics: dict[str, Interval]
    p_value: float | None


@dataclass(frozen=True)
class Comparison:
    """Algorithms from the best to the worst by the protocol's main metric, and the references."""

    data: str
    protocol: str
    seeds: int
    rows: tuple[Row, ...]
    references: dict[str, dict[str, float]]


def compare(
    names: Sequence[str], given: Mapping[str, Any], *, seeds: int, out: Path, carry_out: CarryOut | None = None
) -> Comparison:
    """Run every algorithm with the seeds 0 to `seeds` - 1 and compare them; what `out` already holds is not run again.

    `given` are settings of all algorithms, or of one: `fedmf.lr`. `carry_out` runs a plan, by default silently.
    """
    plans = plans_of(names, given, seeds)
    data = catalogue.load(plans[0].what.data, filters=plans[0].filters)
    results: dict[str, list[Result]] = {}
    for plan in plans:
        done = (carry_out or run_or_reuse)(plan, folder_of(out, plan, data), data)
        results.setdefault(plan.algorithm.info.name, []).append(done)
        forget_programs()
    comparison = judge(results)
    write(out, tabulate(comparison))
    return comparison


def plans_of(names: Sequence[str], given: Mapping[str, Any], seeds: int) -> list[Plan]:
    """Return the runs of a comparison, all settings checked; seeds vary slowest, so early rows compare fairly."""
    if seeds < 1:
        raise CoterieError(f"The number of seeds is {seeds}; use at least 1, and 5 for an interval worth its name.")
    plans = [_plan(name, given, names, seed) for seed in range(seeds) for name in names]
    labels = [plan.algorithm.info.name for plan in plans[: len(names)]]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise CoterieError(f"{twice[0]} is there twice; compare different algorithms.")
    if any(_ground(plan) != _ground(plans[0]) for plan in plans):
        raise CoterieError("Algorithms are compared on the same data by the same protocol; set those for all alike.")
    return plans


def _plan(name: str, given: Mapping[str, Any], names: Sequence[str], seed: int) -> Plan:
    if "seed" in given or "algorithm" in given:
        raise CoterieError("A comparison chooses algorithms and seeds itself; leave them out of the settings.")
    own = f"{_label(name)}."
    labels = [_label(each) for each in names]
    settings = {key: value for key, value in given.items() if key.partition(".")[0] not in labels}
    settings |= {key.removeprefix(own): value for key, value in given.items() if key.startswith(own)}
    try:
        return config.plan({**settings, "algorithm": name, "seed": seed})
    except CoterieError as error:
        raise CoterieError(f"{name}: {error}") from None


def _label(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


def _ground(plan: Plan) -> tuple[Any, ...]:
    return plan.what.data, plan.protocol, plan.filters, plan.options


def folder_of(out: Path, plan: Plan, data: Interactions) -> Path:
    """Return the folder of a run: other settings, data, code or another version give another one."""
    name, seed = plan.algorithm.info.name, plan.what.seed
    facts = plan.values() | {"algorithm": name, "data": data.fingerprint(), "checkpoint_every": 0}
    text = json.dumps([facts, plan.source, __version__], sort_keys=True)
    return out / f"{name}-seed{seed}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def run_or_reuse(
    plan: Plan,
    folder: Path,
    data: Interactions,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Take the result of a finished run, go on with an interrupted one, or run."""
    if not (folder / SUMMARY).exists():
        if (folder / CONFIG).exists():
            resume(folder, data=data, on_start=on_start, on_round=on_round)
        else:
            execute(plan, folder, data=data, on_start=on_start, on_round=on_round)
    return Result(*read_result(folder))


def judge(results: Mapping[str, Sequence[Result]]) -> Comparison:
    """Summarise runs over their seeds and test every algorithm against the best, over the users."""
    first = next(iter(results.values()))[0].summary
    protocol = protocols.get(first["protocol"])
    metric = main_metric(protocol.name)
    metrics = {name: _over_seeds(runs, shown_metrics(protocol.name)) for name, runs in results.items()}
    sign = 1 if protocol.lower_is_better else -1
    order = sorted(results, key=lambda name: sign * metrics[name][metric].mean)
    users = {name: _mean_over_seeds([run.per_user[metric] for run in results[name]]) for name in order}
    raw = [paired_test(users[order[0]], users[name]).p_value for name in order[1:]]
    p_values = [None, *(float(p) for p in holm(raw))] if raw else [None]
    return Comparison(
        data=first["data"],
        protocol=protocol.name,
        seeds=len(next(iter(results.values()))),
        rows=tuple(Row(name, metrics[name], p) for name, p in zip(order, p_values, strict=True)),
        references=_references([runs.summary["references"] for runs in results[order[0]]]),
    )


def _over_seeds(runs: Sequence[Result], metrics: Sequence[str]) -> dict[str, Interval]:
    return {metric: interval_over_seeds([run.summary["metrics"][metric] for run in runs]) for metric in metrics}


def _mean_over_seeds(values: Sequence[Values]) -> Values:
    """Average what each user has over the seeds; NaN for a user who never has a value."""
    table = np.stack(values)
    there = (~np.isnan(table)).sum(0)
    return np.divide(np.nansum(table, 0), there, out=np.full(table.shape[1], np.nan), where=there > 0)


def _references(of_seeds: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        name: {metric: float(np.mean([one[name][metric] for one in of_seeds])) for metric in values}
        for name, values in of_seeds[0].items()
    }


def tabulate(comparison: Comparison) -> Table:
    """Return the comparison as a table, the references below."""
    metrics = shown_metrics(comparison.protocol)
    rows = [_row(row, metrics) for row in comparison.rows]
    for name, values in comparison.references.items():
        main, *others = (f"{values[metric]:.4f}" for metric in metrics)
        rows.append((f"({REFERENCE_NAMES[name]})", main, "", "", *others))
    return Table(
        f"{comparison.data}, protocol {comparison.protocol}, mean over {comparison.seeds} seeds",
        ("method", metrics[0], "95 % interval", "p", *metrics[1:]),
        tuple(rows),
        (
            "Intervals: Student t over the seeds.",
            f"p: paired sign-flip test of {metrics[0]} over the users against the best, Holm-corrected.",
            "In brackets: references, which see all training data in one place.",
        ),
    )


def _row(row: Row, metrics: Sequence[str]) -> tuple[str, ...]:
    main, *others = (row.metrics[metric] for metric in metrics)
    interval = "" if np.isnan(main.low) else f"{main.low:.3f} to {main.high:.3f}"
    p_value = "best" if row.p_value is None else f"{row.p_value:.4f}" if row.p_value >= 1e-4 else "<0.0001"
    return (row.name, f"{main.mean:.4f}", interval, p_value, *(f"{other.mean:.4f}" for other in others))


def write(out: Path, table: Table) -> None:
    """Write a table as CSV, Markdown and LaTeX."""
    out.mkdir(parents=True, exist_ok=True)
    for suffix, text in {"csv": table.to_csv(), "md": table.to_markdown(), "tex": table.to_latex()}.items():
        write_text(out / f"compare.{suffix}", text)
