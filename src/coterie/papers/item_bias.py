"""How near item biases come to planted ones: explicit ones, and the means of what is predicted for an item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.ragged import Ragged
from coterie.papers.chart import Chart, Panel, Series
from coterie.papers.declare import Grid, Probe, Sample
from coterie.papers.figures import distinct

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation

OFTEN = 5
"""Items with fewer ratings are left out: what they are like is hardly known."""

EXPLICIT, PREDICTED, RATED = "explicit bias", "mean prediction", "mean rating"


def _of_round(simulation: Simulation) -> dict[str, float]:
    """Correlate with the planted biases what an item gets on top, and what all users are predicted to give it."""
    everything = np.arange(simulation.problem.data.n_items, dtype=np.int32)
    found = {PREDICTED: _near(simulation, _mean_predictions(simulation))}
    parts = simulation.parts(simulation.state, 0, everything)
    return found | ({EXPLICIT: _near(simulation, parts["item bias"])} if parts else {})


def _mean_predictions(simulation: Simulation) -> NDArray[np.float64]:
    users, items = simulation.problem.data.n_users, simulation.problem.data.n_items
    nothing = Ragged.group(np.zeros(0, np.int32), np.zeros(0, np.int32), users)
    lists = simulation.top(simulation.keep(simulation.state), items, nothing)
    return np.bincount(lists.items.ravel(), lists.scores.ravel(), items) / users


def _near(simulation: Simulation, found: NDArray[Any]) -> float:
    problem = simulation.problem
    assert problem.data.truth is not None
    often = problem.popularity >= OFTEN
    return round(float(np.corrcoef(found[often], problem.data.truth.item_bias[often])[0, 1]), 4)


def _of_run(simulation: Simulation, of_rounds: list[Any]) -> dict[str, Any]:
    problem = simulation.problem
    data, train = problem.data, problem.train
    means = np.bincount(data.items[train], data.ratings[train], data.n_items) / np.maximum(problem.popularity, 1)
    return {RATED: _near(simulation, means)} | {name: [each[name] for each in of_rounds] for name in of_rounds[0]}


FOUND = Probe("item-bias", _of_run, of_round=_of_round)


def correlations(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Correlation with the planted biases round by round, averaged over draws, as far as all runs went.

    Mean predictions are those of the first row of each algorithm.
    """
    panels = []
    for data in distinct(sample.data for sample in samples):
        here = [sample for sample in samples if sample.data == data]
        first = {sample.result["settings"]["algorithm"]: sample.row for sample in reversed(here)}
        shown = [(EXPLICIT, sample.row) for sample in here if EXPLICIT in sample.measured]
        shown += [(PREDICTED, sample.row) for sample in here if sample.row in first.values()]
        lines = [_line(kind, row, [each for each in here if each.row == row]) for kind, row in dict.fromkeys(shown)]
        rounds = max((line.x for line in lines), key=len)
        rated = np.mean([sample.measured[RATED] for sample in here])
        lines.append(Series(RATED, rounds, [float(rated)] * len(rounds)))
        panels.append(Panel(f"{_per_user(data)} ratings a user", "round", "correlation", tuple(lines)))
    return Chart(grid.title, tuple(panels), f"Built-in data of five platforms; items with at least {OFTEN} ratings.")


def _line(kind: str, row: str, samples: Sequence[Sample]) -> Series:
    curves = [sample.measured[kind] for sample in samples]
    shortest = min(map(len, curves))
    means = np.mean([curve[:shortest] for curve in curves], axis=0)
    return Series(f"{row}: {kind}", list(range(1, shortest + 1)), means.tolist())


def _per_user(data: str) -> str:
    return data.rpartition("interactions_per_user=")[2].partition(",")[0]
