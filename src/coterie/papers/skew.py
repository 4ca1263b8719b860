"""What the figures about skewed platforms measure in a run, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.papers.chart import Chart, HeatMap, Panel
from coterie.papers.declare import Grid, Probe, Sample
from coterie.papers.figures import distinct, mean_curve, short

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation


def _ratings(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    problem = simulation.problem
    levels, level = np.unique(problem.data.ratings[problem.train], return_inverse=True)
    cells = problem.client * len(levels) + level
    counts = np.bincount(cells, minlength=problem.n_clients * len(levels)).reshape(problem.n_clients, len(levels))
    return {"levels": levels.tolist(), "counts": counts.tolist()}


RATINGS = Probe("ratings", _ratings)


def histograms(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """How the training records of each platform are spread over rating values."""
    panels = tuple(_histogram(sample) for sample in samples)
    return Chart(grid.title, panels, "Share of a platform's training records; their number stands beside its own.")


def _histogram(sample: Sample) -> HeatMap:
    counts = np.asarray(sample.measured["counts"])
    records = counts.sum(1)
    rows = [f"{number} ({some:,})" for number, some in enumerate(records, 1)]
    columns = [f"{level:g}" for level in sample.measured["levels"]]
    shares = (counts / np.maximum(records, 1)[:, None]).tolist()
    title = f"{short(sample.data)}, beta {_beta(sample):g}"
    return HeatMap(title, "rating", "platform", rows, columns, shares)


def curves(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """The test error round by round: a panel for each data set and skew, a line for each method."""
    metric = grid.metrics[0]
    panels = []
    for data in distinct(sample.data for sample in samples):
        here = [sample for sample in samples if sample.data == data]
        for beta in dict.fromkeys(map(_beta, here)):
            lines = [sample for sample in here if _beta(sample) == beta]
            series = (
                mean_curve(row.partition(",")[0], f"test {metric}", [each for each in lines if each.row == row])
                for row in distinct(each.row for each in lines)
            )
            panels.append(Panel(f"{short(data)}, beta {beta:g}", "round", metric.upper(), tuple(series)))
    note = "Mean over the seeds that were run, as far as all went: ten rounds without a better one end a run."
    return Chart(grid.title, tuple(panels), note)


def _beta(sample: Sample) -> float:
    return sample.result["settings"]["beta"]
