"""`coterie robustness`: algorithms under attacks behind defences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from coterie.cli.arguments import typed
from coterie.cli.grids import FORMATS, check_format, print_tables, run_visibly
from coterie.cli.progress import show
from coterie.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.experiment.robustness import Found, RobustnessGrid
    from coterie.experiment.trials import Results, Trial

LISTS = ("--algorithms", "--attacks", "--defences")


class Listing(TyperCommand):
    """A verb whose lists may be written `--attacks a_ra a_hum`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        return super().parse_args(ctx, repeated(args))


def repeated(words: Sequence[str]) -> list[str]:
    """Write the option before each word of its list.

    >>> repeated(["--attacks", "a_ra", "a_hum", "--seeds", "2"])
    ['--attacks', 'a_ra', '--attacks', 'a_hum', '--seeds', '2']
    """
    written: list[str] = []
    option, has_one = "", True
    for word in words:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            option, has_one = name if name in LISTS else "", bool(equals)
        elif option and has_one:
            written.append(option)
        else:
            has_one = True
        written.append(word)
    return written


def robustness(
    algorithms: list[str] = typer.Option(["fedsgd", "cl4fedrec"], help="Names, or files of your own by path."),
    attacks: list[str] = typer.Option(["a_hum"], help="Names; none: nobody attacks, and exposure is not measured."),
    defences: list[str] = typer.Option(["none"], help="Names; none; regulariser: the popularity regulariser alone."),
    data: str = typer.Option("demo", help="A data set by name or path."),
    protocol: str = typer.Option("ratio-full", help="How they are measured."),
    rounds: int | None = typer.Option(None, help="Rounds to train.  [default: each algorithm's own]"),
    seeds: int = typer.Option(1, help="How many seeds, from 0."),
    malicious: float | None = typer.Option(None, help="Malicious clients per honest client.  [default: 0.001]"),
    target: str | None = typer.Option(
        None, help="least-popular, popularity:LOW-HIGH, or item ids.  [default: least-popular]"
    ),
    settings: list[str] = typer.Option(
        [],
        "--set",
        metavar="KEY=VALUE",
        help="A setting of all runs that have it, or of one algorithm, attack or defence: fedsgd.lr=0.01; may be "
        "repeated.",
    ),
    out: Path = typer.Option(Path("results"), help="Where results are kept."),
    report_only: bool = typer.Option(False, "--report-only", help="Run nothing; show what is there."),
    form: str = typer.Option("table", "--format", help=f"One of {', '.join(FORMATS)}."),
) -> None:
    """Run algorithms under attacks behind defences.

    A list may be written with spaces or commas: --attacks a_ra a_hum. A server step has 256 clients unless --set says
    otherwise. What was run before is not run again; an interrupted run goes on. The exit code is 1 if a run failed.
    """
    from coterie.experiment.robustness import RobustnessGrid, cells_of, gather, trials_of
    from coterie.experiment.trials import Results

    check_format(form)
    given = typed({"rounds": rounds, "malicious": malicious, "target": target}, settings)
    lists = (_words(algorithms), _words(attacks), _words(defences))
    grid = RobustnessGrid(*lists, data, protocol, seeds, given)
    cells, results, progress = cells_of(grid), Results(out, "robustness"), Console(stderr=True)
    failed = {} if report_only else _run(progress, trials_of(cells), results)
    found = gather(cells, results, failed)
    _show_table(grid, found, form)
    _draw(progress, grid, found, results)
    if failed:
        raise typer.Exit(1)


def _words(words: Sequence[str]) -> tuple[str, ...]:
    parts = (part.strip() for word in words for part in word.split(","))
    return tuple(part for part in parts if part)


def _run(console: Console, trials: Sequence[Trial], results: Results) -> dict[str, str]:
    from coterie.experiment.grid import is_done
    from coterie.experiment.robustness import check_data

    if not all(is_done(trial, results, ()) for trial in trials):
        check_data(trials)
    return run_visibly(console, trials, results, {})


def _show_table(grid: RobustnessGrid, found: Sequence[Found], form: str) -> None:
    from coterie.experiment.robustness import tabulate, to_csv

    if form == "csv":
        print(to_csv(grid, found), end="")
    else:
        print_tables([tabulate(grid, found)], form)


def _draw(console: Console, grid: RobustnessGrid, found: Sequence[Found], results: Results) -> None:
    """Draw what there is; without the libraries that draw, the table is still worth having."""
    from coterie.experiment.robustness import charts
    from coterie.papers import drawing

    try:
        drawing.require()
    except CoterieError as missing:
        show(console, [str(missing)])
        return
    for name, chart in charts(grid, found).items():
        image, page = drawing.draw(chart, results.figures, name)
        show(console, [f"drawn as {image} and {page}"])
