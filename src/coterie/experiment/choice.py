"""Which tables and figures of a paper are meant, and the runs that they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from coterie.data import catalogue
from coterie.errors import CoterieError, unknown
from coterie.experiment.trials import Results, Trial, distinct, trials_of
from coterie.papers.declare import Figure, Grid, Paper, Probe, small


@dataclass(frozen=True)
class Choice:
    """Tables and figures, and what is wanted of them; without `data`, `rows` or `protocols`, all of them."""

    paper: Paper
    tables: tuple[Grid, ...]
    figures: tuple[Figure, ...]
    seeds: int | None = None
    data: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()

    def trials(self, grid: Grid) -> list[Trial]:
        """Return the runs of a grid; a figure that shows one run takes no more seeds than it declares."""
        seeds = grid.seeds if self.seeds is None or grid.seeds == 1 else self.seeds
        return trials_of(grid, seeds=seeds, data=self.data, rows=self.rows, protocols=self.protocols)

    def all_trials(self) -> list[Trial]:
        """Return the runs of all, each once."""
        grids = [*self.tables, *(figure.grid for figure in self.figures)]
        return distinct([trial for grid in grids for trial in self.trials(grid)])

    def probes(self, results: Results) -> dict[str, list[Probe]]:
        """Return what is to be measured in each run, by its name.

        A run that is due serves all figures of the paper on the way; one that was made is repeated only for a figure
        that is chosen.
        """
        wanted: dict[str, list[Probe]] = {}
        for figure in self.paper.figures:
            for trial in self.trials(figure.grid):
                if figure.probe and (figure in self.figures or not results.path(trial).exists()):
                    wanted.setdefault(trial.name, []).append(figure.probe)
        return wanted


def choose(
    paper: Paper,
    *,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    quick: bool = False,
    seeds: int | None = None,
    data: Sequence[str] = (),
    rows: Sequence[str] = (),
    protocols: Sequence[str] = (),
) -> Choice:
    """Find what is meant; neither tables nor figures means everything, or what the small version has.

    A data set that no chosen part declares is one of the user's own, which all of them are run on.
    """
    if seeds is not None and seeds < 1:
        raise CoterieError(f"The number of seeds is {seeds}; use at least 1.")
    chosen_tables = [table_of(paper, number) for number in tables]
    chosen_figures = [figure_of(paper, number) for number in figures]
    if not tables and not figures:
        chosen_tables = [grid for grid in paper.tables if grid.quick or not quick]
        chosen_figures = [figure for figure in paper.figures if figure.grid.quick or not quick]
    declared = {name for grid in (*chosen_tables, *(figure.grid for figure in chosen_figures)) for name in grid.data}
    own = tuple(name for name in data if name not in declared)
    if quick or own:
        paper = _with_data(_small_paper(paper) if quick else paper, own)
        chosen_tables = [table_of(paper, grid.number) for grid in chosen_tables]
        chosen_figures = [figure_of(paper, figure.grid.number) for figure in chosen_figures]
    limits = tuple(data), tuple(rows), tuple(protocols)
    choice = Choice(paper, tuple(chosen_tables), tuple(chosen_figures), seeds, *limits)
    _check(choice)
    return choice


def _small_paper(paper: Paper) -> Paper:
    return _changed(paper, lambda grid: small(grid, paper.quick))


def _with_data(paper: Paper, own: tuple[str, ...]) -> Paper:
    for name in own:
        catalogue.require(name)
    return _changed(paper, lambda grid: replace(grid, data=tuple(dict.fromkeys((*grid.data, *own)))))


def _changed(paper: Paper, change: Callable[[Grid], Grid]) -> Paper:
    figures = tuple(replace(figure, grid=change(figure.grid)) for figure in paper.figures)
    return replace(paper, tables=tuple(map(change, paper.tables)), figures=figures)


def _check(choice: Choice) -> None:
    grids = [*choice.tables, *(figure.grid for figure in choice.figures)]
    _known("row", choice.rows, {row.label for grid in grids for row in grid.rows}, choice.paper)
    protocols = {grid.protocol_of(form) for grid in grids for form in grid.forms}
    _known("protocol", choice.protocols, protocols, choice.paper)


def _known(kind: str, names: Collection[str], known: Collection[str], paper: Paper) -> None:
    for name in names:
        if name not in known:
            raise unknown(f"{kind} of this part of {paper.name}", name, known)


def table_of(paper: Paper, number: str) -> Grid:
    """Return a table of a paper by its number or name."""
    known = {grid.number: grid for grid in paper.tables}
    if number not in known:
        raise unknown(f"table of {paper.name}", number, known)
    return known[number]


def figure_of(paper: Paper, number: str) -> Figure:
    """Return a figure of a paper by its number or name."""
    known = {figure.grid.number: figure for figure in paper.figures}
    if number not in known:
        raise unknown(f"figure of {paper.name}", number, known)
    return known[number]
