"""What verbs that carry out a grid of runs have in common: progress, Ctrl-C, tables in a chosen form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from coterie.cli.interrupt import Interrupted
from coterie.cli.progress import Watch, show
from coterie.errors import unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coterie.experiment.grid import CarryOut
    from coterie.experiment.report import Table
    from coterie.experiment.trials import Results, Trial
    from coterie.papers.declare import Probe

FORMATS = ("table", "markdown", "csv", "latex")


def check_format(form: str) -> None:
    """Refuse a form that tables do not have."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)


def run_visibly(
    console: Console, trials: Sequence[Trial], results: Results, probes: Mapping[str, Sequence[Probe]]
) -> dict[str, str]:
    """Carry out runs and say what is done; returns why some failed, by name."""
    from coterie.experiment.grid import run_all

    try:
        return run_all(trials, probes, _visibly(console, trials, results))
    except KeyboardInterrupt:
        raise Interrupted("Interrupted; what was done is kept, the same command goes on.") from None


def _visibly(console: Console, trials: Sequence[Trial], results: Results) -> CarryOut:
    """Return a way to carry out a run that says what it does."""
    from coterie.experiment.grid import carry_out, is_done, sentence

    places = {trial.name: number for number, trial in enumerate(trials, start=1)}

    def visibly(trial: Trial, probes: Sequence[Probe]) -> dict[str, Any]:
        label = f"[{places[trial.name]}/{len(trials)}] {trial}"
        before, began = is_done(trial, results, probes), time.perf_counter()
        try:
            with Watch(console, label) as watch:
                found = carry_out(trial, results, probes, on_start=watch.start, on_round=watch.round)
        except Exception as error:
            show(console, [f"{label}: failed: {sentence(error)}"])
            raise
        how = "from before" if before else f"{time.perf_counter() - began:.1f} s"
        show(console, [f"{label}: {_gist(trial, found)} ({how})"])
        return found

    return visibly


def _gist(trial: Trial, found: Mapping[str, Any]) -> str:
    """Return the main metric and, of an attacked run, the exposure at the end."""
    from coterie.experiment.report import main_metric

    metric = main_metric(trial.protocol)
    exposure = found.get("robustness", {}).get("last_exposure")
    attacked = f", er@5 {exposure['er@5']:.4f}" if exposure else ""
    return f"{metric} {found['metrics'][metric]:.4f}{attacked}"


def print_tables(tables: Sequence[Table], form: str) -> None:
    """Print tables in one of the forms."""
    for table in tables:
        if form == "table":
            console = Console()
            console.print(table.to_rich())
            show(console, [*table.notes, ""])
        else:
            text = {"markdown": table.to_markdown, "latex": table.to_latex, "csv": table.to_csv}[form]()
            print(text)
