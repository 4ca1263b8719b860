"""What the figures about robustness measure in a run, and how it is shown.

The probes read the item table, `items` of the server's state, at the round that validation chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.papers.chart import Chart, Panel, Series
from coterie.papers.declare import Grid, Probe, Sample
from coterie.papers.figures import SEED, distinct, mean_curve, rounded, short

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation

HOT = 100
"""The paper calls the 100 most interacted items hot."""


def _items(simulation: Simulation) -> np.ndarray:
    assert simulation.best is not None
    return np.asarray(simulation.best.state.server.items)


def _map(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    from sklearn.manifold import TSNE

    table = _items(simulation)
    embedding = TSNE(perplexity=min(30.0, (len(table) - 1) / 3), init="pca", random_state=SEED)
    x, y = embedding.fit_transform(table).T
    popular = np.argsort(-np.asarray(simulation.catalogue.popularity), kind="stable")
    hot = np.zeros(len(table), bool)
    hot[popular[: min(HOT, len(table) // 2)]] = True
    return {"hot": hot.tolist(), "x": rounded(x, 2), "y": rounded(y, 2)}


def _spectrum(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    table = _items(simulation)
    return {"singular": rounded(np.linalg.svd(table - table.mean(0), compute_uv=False))}


PUBLISHED_LOG = {
    "er@5": (0, 0, 0, 0, 0, 0, 0, 0.0236794, 0.0748468, 0.1872827),
    "er@20": (0, 0, 0, 0, 0, 0, 0.0337804, 0.3061765, 0.7771154, 1),
}
"""What the code of the attack printed for its authors in the first ten epochs on MovieLens-1M (its README)."""

ITEM_MAP = Probe("hot-items", _map)
SPECTRUM = Probe("spectrum", _spectrum)


def exposure(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """ER@5 round by round: a panel for each data set and attack, a line for each row, averaged over seeds."""
    panels = []
    for data in distinct(sample.data for sample in samples):
        here = [sample for sample in samples if sample.data == data]
        for attack in distinct(_attack(sample) for sample in here):
            lines = [sample for sample in here if _attack(sample) == attack]
            series = [
                mean_curve(row, "er@5", [each for each in lines if each.row == row])
                for row in distinct(s.row for s in lines)
            ]
            panels.append(Panel(f"{short(data)}, {attack}", "round", "ER@5", tuple(series)))
    return Chart(grid.title, tuple(panels), "Mean over the seeds that were run.")


def _attack(sample: Sample) -> str:
    return str(sample.result["robustness"]["attack"])


def as_published(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Exposure in the recommender and at the settings in which A-hum was published, beside the log of its authors."""
    panels = []
    for metric, printed in PUBLISHED_LOG.items():
        ours = [
            Series(f"seed {each.seed}", each.result["curve"]["round"], each.result["curve"][metric]) for each in samples
        ]
        log = Series("authors' log", list(range(1, len(printed) + 1)), printed, "points")
        panels.append(Panel(metric.upper(), "epoch", "share of users", (*ours, log)))
    return Chart(grid.title, tuple(panels))


def item_map(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """The item table in two dimensions, hot items apart."""
    first = {sample.row: sample for sample in reversed(samples)}
    panels = (_map_panel(first[row]) for row in distinct(sample.row for sample in samples))
    return Chart(grid.title, tuple(panels), "t-SNE of the item table at the chosen round.")


def _map_panel(sample: Sample) -> Panel:
    hot, x, y = (np.asarray(sample.measured[name]) for name in ("hot", "x", "y"))
    kinds = (("normal items", ~hot), ("hot items", hot))
    series = (Series(name, x[here].tolist(), y[here].tolist(), "points") for name, here in kinds)
    return Panel(f"{sample.row}, {short(sample.data)}", "", "", tuple(series), ticks=False)


def uniformity(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Exposure round by round, and the singular values of the item table, by the weight of the penalty."""
    rows = distinct(sample.row for sample in samples)
    by_row = {row: [sample for sample in samples if sample.row == row] for row in rows}
    values = {row: np.mean([each.measured["singular"] for each in some], axis=0) for row, some in by_row.items()}
    spectra = (Series(row, list(range(1, len(v) + 1)), (v / v[0]).tolist()) for row, v in values.items())
    panels = (
        Panel("exposure", "round", "ER@5", tuple(mean_curve(row, "er@5", some) for row, some in by_row.items())),
        Panel("item table", "singular value", "share of the largest", tuple(spectra)),
    )
    return Chart(grid.title, panels)
