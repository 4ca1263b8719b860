"""`coterie paper`: reproduce the tables and figures of a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from coterie.cli.arguments import RUNS
from coterie.cli.grids import FORMATS, check_format, print_tables, run_visibly
from coterie.cli.progress import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.experiment.choice import Choice
    from coterie.experiment.trials import Results, Trial
    from coterie.papers.declare import Figure, Grid, Probe

QUICK = RUNS / "quick"


def paper(
    name: str | None = typer.Argument(None, help="The paper; without one, they are listed."),
    table: list[str] = typer.Option([], metavar="N", help="A table; may be repeated."),
    figure: list[str] = typer.Option([], metavar="N", help="A figure; may be repeated."),
    data: list[str] = typer.Option([], help="Only this data set, or one of your own; may be repeated."),
    row: list[str] = typer.Option([], help="Only run this row of a table; may be repeated."),
    protocol: list[str] = typer.Option([], help="Only run under this protocol; may be repeated."),
    seeds: int | None = typer.Option(None, help="How many seeds, from 0.  [default: as declared]"),
    quick: bool = typer.Option(False, "--quick", help="A small version on built-in data, about a minute."),
    listing: bool = typer.Option(False, "--list", help="List tables and figures, their runs, and how many are there."),
    settings: bool = typer.Option(False, "--settings", help="Print the settings of the runs."),
    report_only: bool = typer.Option(False, "--report-only", help="Run nothing; show what is there."),
    out: Path | None = typer.Option(None, help="Where results are kept.  [default: results; of --quick, runs/quick]"),
    form: str = typer.Option("table", "--format", help=f"One of {', '.join(FORMATS)}."),
) -> None:
    """Reproduce a paper: published, under its protocol, under the honest one.

    What was run before is not run again; an interrupted run goes on. The exit code is 1 if a run failed.
    """
    from coterie import papers
    from coterie.experiment.choice import choose
    from coterie.experiment.trials import Results

    check_format(form)
    if name is None:
        _list_papers()
        return
    chosen = choose(
        papers.get(name), tables=table, figures=figure, quick=quick, seeds=seeds, data=data, rows=row,
        protocols=protocol,
    )  # fmt: skip
    results = Results(out or (QUICK if quick else Path("results")), name)
    if listing:
        _list_parts(chosen, results)
    elif settings:
        _show_settings(chosen, form)
    else:
        _reproduce(chosen, results, form, report_only=report_only)


def _list_papers() -> None:
    from coterie import papers

    table = Table("name", "paper", "tables", "figures", box=box.SIMPLE_HEAD, pad_edge=False)
    for each in map(papers.get, papers.names()):
        numbers = [grid.number for grid in each.tables], [figure.grid.number for figure in each.figures]
        table.add_row(each.name, f"{each.title} ({each.venue})", *(", ".join(some) for some in numbers))
    Console().print(table)


def _list_parts(chosen: Choice, results: Results) -> None:
    table = Table("part", "", "data", "runs", "there", box=box.SIMPLE_HEAD, pad_edge=False)
    for grid in chosen.tables:
        table.add_row(f"table {grid.number}", grid.title, ", ".join(grid.data), *_counts(chosen, results, grid))
    for figure in chosen.figures:
        grid = figure.grid
        probes = [figure.probe] if figure.probe else []
        counts = _counts(chosen, results, grid, probes)
        table.add_row(f"figure {grid.number}", grid.title, ", ".join(grid.data), *counts)
    table.add_row("all", "each run once", "", *_count(chosen.all_trials(), results, []))
    Console().print(table)


def _counts(chosen: Choice, results: Results, grid: Grid, probes: Sequence[Probe] = ()) -> tuple[str, str]:
    from coterie.experiment.trials import distinct

    return _count(distinct(chosen.trials(grid)), results, probes)


def _count(trials: Sequence[Trial], results: Results, probes: Sequence[Probe]) -> tuple[str, str]:
    from coterie.experiment.grid import is_done

    return str(len(trials)), str(sum(is_done(trial, results, probes) for trial in trials))


def _show_settings(chosen: Choice, form: str) -> None:
    from coterie.experiment.tables import settings_table

    for grid in (*chosen.tables, *(figure.grid for figure in chosen.figures)):
        print_tables([settings_table(grid)], form)


def _reproduce(chosen: Choice, results: Results, form: str, *, report_only: bool) -> None:
    progress = Console(stderr=True)
    if chosen.figures:
        from coterie.papers import drawing

        drawing.require()
    failed: dict[str, str] = {}
    if not report_only:
        failed = run_visibly(progress, chosen.all_trials(), results, chosen.probes(results))
    for grid in chosen.tables:
        _show_table(chosen, results, grid, form, failed)
    for figure in chosen.figures:
        _draw(progress, chosen, results, figure)
    if failed:
        raise typer.Exit(1)


def _show_table(chosen: Choice, results: Results, grid: Grid, form: str, failed: dict[str, str]) -> None:
    from coterie.experiment.tables import fill, tables, to_csv

    filled = fill(grid, results, seeds=chosen.seeds, data=chosen.data, failed=failed)
    if form == "csv":
        print(to_csv(filled), end="")
    else:
        print_tables(tables(filled, narrow=form == "table"), form)


def _draw(console: Console, chosen: Choice, results: Results, figure: Figure) -> None:
    from coterie.experiment.samples import samples_of
    from coterie.papers.drawing import draw

    grid = figure.grid
    trials = chosen.trials(grid)
    samples = samples_of(figure, trials, results)
    how_many = f"figure {grid.number}: {len(samples)} of {len(trials)} runs are there"
    if not samples:
        show(console, [f"{how_many}, so it was not drawn"])
        return
    image, page = draw(figure.chart(grid, samples), results.figures, f"figure-{grid.number}")
    show(console, [f"{how_many}; drawn as {image} and {page}"])
