"""How a paper is declared: grids of runs behind its tables and figures, and a small version of them.

A grid has rows and data sets. A row's recipe gives the flat settings of its run on a data set, those of `coterie run`;
each is run in the published and in the honest form of the protocol, for every seed. Nothing is checked here: a
setting or an algorithm that does not exist is found when its run is due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation
    from coterie.papers.chart import Chart

Recipe = Callable[[str], dict[str, Any]]
"""From the name of a data set to the flat settings of a run on it."""

PAPER, HONEST = "paper", "honest"


@dataclass(frozen=True)
class Row:
    """A method: how it is run (not at all if it has no recipe), and its name among the published numbers.

    `method` is the name there, the label unless given; `at` is the value of what the table varies; `table` is where
    the numbers stand if it is another table of the paper.
    """

    label: str
    recipe: Recipe | None = None
    method: str = ""
    at: str = ""
    table: str = ""


@dataclass(frozen=True)
class Grid:
    """The runs behind a table, or behind a figure: rows x data sets x forms x seeds.

    `protocol` is the name of the honest form. `scale` turns a metric into the unit of the paper. `quick` are the
    rows of the small version; with none, it is left out of it unless asked for. `part` is what the metrics are
    measured on: the test items, those of `validation`, the `exposure` of an attack's targets after the last round, or
    `traffic`: how many values a client's messages have.
    """

    number: str
    title: str
    rows: tuple[Row, ...]
    data: tuple[str, ...]
    protocol: str = "loo99"
    forms: tuple[str, ...] = (PAPER, HONEST)
    metrics: tuple[str, ...] = ("hr@10", "ndcg@10")
    scale: float = 100.0
    digits: int = 2
    seeds: int = 3
    quick: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    part: Literal["metrics", "validation", "exposure", "traffic"] = "metrics"

    def protocol_of(self, form: str) -> str:
        """Return the name of the protocol in a form."""
        return f"{self.protocol}-paper" if form == PAPER else self.protocol


@dataclass(frozen=True)
class Probe:
    """Facts that a figure needs and that the result of a run does not hold; all are plain JSON.

    `of_round` is called after each round. `of_run` is called once, after the last one, with what `of_round` gave.
    """

    name: str
    of_run: Callable[[Simulation, list[Any]], dict[str, Any]]
    of_round: Callable[[Simulation], Any] | None = None


@dataclass(frozen=True)
class Sample:
    """A run that a figure is drawn from: its result, and what the figure's probe measured."""

    row: str
    data: str
    form: str
    seed: int
    result: Mapping[str, Any]
    measured: Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure: the runs it needs, what is measured in them, and how it is drawn."""

    grid: Grid
    chart: Callable[[Grid, Sequence[Sample]], Chart]
    probe: Probe | None = None


@dataclass(frozen=True)
class Quick:
    """The small version: a built-in data set, and what changes in the settings of a run."""

    data: str
    change: Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Paper:
    """A paper and what is run for it."""

    name: str
    title: str
    venue: str
    tables: tuple[Grid, ...]
    figures: tuple[Figure, ...]
    quick: Quick


def small(grid: Grid, quick: Quick) -> Grid:
    """Return the small version of a grid: few rows, built-in data, one seed."""
    rows = tuple(_small(row, grid.data[0], quick) for row in grid.rows if not grid.quick or row.label in grid.quick)
    return replace(grid, rows=rows, data=(quick.data,), seeds=1, title=f"{grid.title}, small version", notes=())


def _small(row: Row, data: str, quick: Quick) -> Row:
    recipe = row.recipe
    return row if recipe is None else replace(row, recipe=lambda _: quick.change(recipe(data)))
