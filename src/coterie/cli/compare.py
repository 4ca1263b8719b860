"""`coterie compare`: several algorithms over several seeds, with intervals and significance."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from coterie.cli.arguments import RUNS, safe, typed
from coterie.cli.interrupt import Interrupted
from coterie.cli.progress import Watch, show

if TYPE_CHECKING:
    from coterie.data.interactions import Interactions
    from coterie.experiment.compare import CarryOut, Result
    from coterie.experiment.config import Plan


def compare(
    algorithms: list[str] = typer.Argument(metavar="ALGORITHM", help="Names, or files of your own by path."),
    data: str = typer.Option("demo", help="A data set by name or path."),
    protocol: str = typer.Option("loo99", help="How they are measured."),
    seeds: int = typer.Option(5, help="How many seeds, from 0."),
    rounds: int | None = typer.Option(None, help="Rounds to train.  [default: each algorithm's own]"),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Any setting of all algorithms, or of one: fedmf.lr=1; may be repeated."
    ),
    out: Path | None = typer.Option(None, help="Where the runs are kept.  [default: below runs/compare]"),
) -> None:
    """Compare algorithms over seeds, with intervals and significance.

    What was run before is not run again.
    """
    from coterie.experiment import compare as comparing

    console = Console()
    folder = out or RUNS / "compare" / f"{safe(data)}-{protocol}"
    given = typed({"data": data, "protocol": protocol, "rounds": rounds}, settings)
    try:
        found = comparing.compare(algorithms, given, seeds=seeds, out=folder, carry_out=_visibly(console))
    except KeyboardInterrupt:
        raise Interrupted("Interrupted; what was done is kept, the same command goes on.") from None
    table = comparing.tabulate(found)
    console.print()
    console.print(table.to_rich(emphasise=1))
    show(console, [*table.notes, "", f"written to {folder} as compare.csv, compare.md and compare.tex"])


def _visibly(console: Console) -> CarryOut:
    """Return a way to carry out a run that says what it does."""

    def carry_out(plan: Plan, folder: Path, data: Interactions) -> Result:
        from coterie.experiment.compare import run_or_reuse
        from coterie.experiment.report import main_metric
        from coterie.experiment.run import SUMMARY

        label, metric = f"{plan.algorithm.info.name}, seed {plan.what.seed}", main_metric(plan.protocol.name)
        before, began = (folder / SUMMARY).exists(), time.perf_counter()
        with Watch(console, label) as watch:
            done = run_or_reuse(plan, folder, data, watch.start, watch.round)
        how = "from before" if before else f"{time.perf_counter() - began:.1f} s"
        show(console, [f"{label}: {metric} {done.summary['metrics'][metric]:.4f} ({how})"])
        return done

    return carry_out
