"""`coterie run`: train, evaluate, write a run directory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from coterie.cli.arguments import folder_for, gather
from coterie.cli.interrupt import interruptible
from coterie.cli.progress import Watch, show

if TYPE_CHECKING:
    from coterie.experiment.config import Plan
    from coterie.experiment.run import Run


def run(
    subject: str = typer.Argument(
        metavar="ALGORITHM|CONFIG.YAML|FILE.PY",
        help="A name that `coterie list` shows, a settings file, or an algorithm of your own by path.",
    ),
    data: str | None = typer.Option(None, help="A data set by name or path, or demo.  [default: demo]"),
    protocol: str | None = typer.Option(None, help="How it is measured.  [default: loo99]"),
    rounds: int | None = typer.Option(None, help="Rounds to train.  [default: the algorithm's]"),
    seed: int | None = typer.Option(None, help="The seed of all draws.  [default: 0]"),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Any setting; may be repeated."),
    checkpoint_every: int | None = typer.Option(None, help="Rounds between checkpoints, 0 for none.  [default: 10]"),
    out: Path | None = typer.Option(None, help="The run directory.  [default: a new one below runs]"),
) -> None:
    """Train and evaluate an algorithm, and write a run directory."""
    from coterie.experiment import config

    options = {
        "data": data,
        "protocol": protocol,
        "rounds": rounds,
        "seed": seed,
        "checkpoint_every": checkpoint_every,
    }
    plan = config.plan(*gather(subject, options, settings))
    carry_out(Console(), plan, out or folder_for(plan))


def carry_out(console: Console, plan: Plan, out: Path) -> Run:
    """Carry a plan out under the eyes of the user and show its result."""
    from coterie.experiment.run import execute

    with interruptible(out), Watch(console) as watch:
        done = execute(plan, out, on_start=watch.start, on_round=watch.round)
    show_result(console, done)
    return done


def show_result(console: Console, done: Run) -> None:
    """Print the result beside its references, its cost, and where it is."""
    from coterie.experiment import report

    table = report.result(done.summary)
    console.print()
    console.print(table.to_rich(emphasise=1))
    show(console, [*table.notes, "", *report.facts(done.summary), f"written   {done.path}", *_warnings(done)])


def _warnings(done: Run) -> list[str]:
    broken = [record.round for record in done.history if not math.isfinite(record.metrics.get("loss", 0.0))]
    lost = [record.round for record in done.history if record.refused and not record.clients]
    if lost:
        return [
            "",
            f"No upload was fit to be used in round {lost[0]}: the training diverged, or upload_bound is too low.",
        ]
    if not broken:
        return []
    return ["", f"The loss is no number from round {broken[0]} on: the training diverged; lower the rates, such as lr."]
