"""What the figures about codebooks measure in a run, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.algorithm import Client
from coterie.papers.chart import Chart, Panel, Series
from coterie.papers.declare import Grid, Probe, Sample
from coterie.papers.figures import SEED, distinct, rounded, short

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation

GROUPS = 20
"""Groups of items, drawn at random, over which similarities are averaged."""


def _item_table(simulation: Simulation) -> NDArray[np.float32]:
    """Return the item table as clients see it: the scores of all items for users who are the axes."""
    algorithm, config, store = simulation.algorithm, simulation.config, simulation.state.stores[0]
    view = algorithm.download(config, simulation.state.server, Client(0, 1))
    axes = jnp.eye(store.users.shape[-1])
    everything = jnp.arange(simulation.problem.data.n_items)
    score = jax.vmap(lambda user: algorithm.score(config, view, store._replace(users=axes), user, everything))
    return np.asarray(score(jnp.arange(len(axes)))).T


def _similarities(simulation: Simulation) -> list[Any]:
    """Return the mean cosine between the items of each pair of groups."""
    table = _item_table(simulation)
    rows = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    group = np.random.default_rng(SEED).integers(0, GROUPS, len(rows))
    means = np.zeros((GROUPS, rows.shape[1]))
    np.add.at(means, group, rows)
    means /= np.maximum(np.bincount(group, minlength=GROUPS), 1)[:, None]
    return rounded(means @ means.T, 6)


def _changes(_: Simulation, of_rounds: list[Any]) -> dict[str, Any]:
    return {"change": rounded(np.abs(np.diff(np.asarray(of_rounds), axis=0)).mean((1, 2)), 8)}


SIMILARITY = Probe("similarity", _changes, of_round=_similarities)


def similarity(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """How much similarities between groups of items change from round to round."""
    lines = [
        Series(each.row, list(range(2, len(each.measured["change"]) + 2)), each.measured["change"]) for each in samples
    ]
    panel = Panel(short(samples[0].data), "round", "mean change of a cosine", tuple(lines))
    return Chart(grid.title, (panel,), f"{GROUPS} random groups of items, as in the paper, which shows one round.")


def bars(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """The first metric of each row, averaged over the seeds that all rows of a data set have."""
    sets = distinct(sample.data for sample in samples)
    panels = [_bars(grid, [sample for sample in samples if sample.data == data]) for data in sets]
    return Chart(grid.title, tuple(panels))


def _bars(grid: Grid, samples: Sequence[Sample]) -> Panel:
    rows = _rows(samples)
    seeds_of = [{each.seed for each in samples if each.row == row} for row in rows]
    seeds = set.intersection(*seeds_of) or set.union(*seeds_of)
    series = []
    for place, row in enumerate(rows):
        found = [each.result["metrics"][grid.metrics[0]] for each in samples if each.row == row and each.seed in seeds]
        mean = float(np.mean(found))
        series.append(Series(f"{row}: {mean:.{grid.digits}f}", [place], [mean], "bars"))
    title = f"{short(samples[0].data)}, seeds: {', '.join(map(str, sorted(seeds)))}"
    return Panel(title, "", grid.metrics[0], tuple(series), ticks=False)


def megabytes(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """The first metric by what has travelled until then: whole messages, and what of them needs to travel."""
    metric = f"test {grid.metrics[0]}"
    panels = []
    for title, names in (("whole messages", ("up", "down")), ("what needs to travel", ("needed_up", "needed_down"))):
        lines = []
        for row in _rows(samples):
            first = next(each for each in samples if each.row == row)
            curve, sent = first.result["curve"], first.result["bytes"]
            each_round = sum(sent[name] for name in names) / first.result["rounds"] / 1e6
            lines.append(Series(row, [each_round * number for number in curve["round"]], curve[metric]))
        panels.append(Panel(title, "megabytes, up and down, all clients", grid.metrics[0], tuple(lines)))
    return Chart(grid.title, tuple(panels), "Seed 0. On the right the mean over the rounds stands for each of them.")


def _rows(samples: Sequence[Sample]) -> list[str]:
    return distinct(each.row for each in samples)
