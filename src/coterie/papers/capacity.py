"""How much of an item table codebooks can express.

The table of a finished run is replaced by the nearest one that a number of codes can make up, ids being those of text,
of random vectors or of the table itself, and the same users are asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie import quantisation
from coterie.data import text
from coterie.engine.evaluate import measure
from coterie.papers.chart import Chart, Panel, Series
from coterie.papers.declare import Grid, Probe, Sample
from coterie.papers.figures import SEED, short
from coterie.papers.published import lookup

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation

CODES, LEVELS, TEXT_DIM, STEPS = (64, 128, 256, 512, 1024), 3, 128, 50
OWN = "the table itself"


def _expressed(simulation: Simulation, _: list[Any]) -> dict[str, Any]:
    best, data = simulation.best, simulation.problem.data
    assert best is not None
    table = np.asarray(best.state.server.items)
    points = {source: text.vectors(data, source, TEXT_DIM, SEED).rows for source in ("tfidf", "random")} | {OWN: table}
    sizes = [codes for codes in CODES if codes < data.n_items]
    found: dict[str, Any] = {
        source: [_asked(simulation, _nearest(table, ids_of(rows, codes), codes)) for codes in sizes]
        for source, rows in points.items()
    }
    return {"codes": sizes, "whole": _asked(simulation, table), **found}


def ids_of(points: NDArray[np.float32], codes: int) -> NDArray[np.int32]:
    """Return the codes of items by residual k-means on some vectors of theirs."""
    find = jax.jit(partial(quantisation.quantise, most=STEPS))
    rows = quantisation.unit(jnp.asarray(points, jnp.float32))
    start = jnp.zeros((LEVELS, codes, rows.shape[1]))
    return np.asarray(find(jax.random.key(SEED), rows, start, True).ids)


def _nearest(table: NDArray[np.float32], ids: NDArray[np.int32], codes: int) -> NDArray[np.float32]:
    """Return the table nearest to another one, by least squares, whose rows are sums of codes."""
    uses = np.zeros((len(table), LEVELS * codes), np.float32)
    np.put_along_axis(uses, ids + codes * np.arange(LEVELS), 1, axis=1)
    return uses @ np.linalg.lstsq(uses, table, rcond=None)[0]


def _asked(simulation: Simulation, table: NDArray[np.float32]) -> float:
    """Return the recall of the chosen round's users with another item table."""
    assert simulation.best is not None
    last, simulation.state = simulation.state, simulation.best.state
    answers = simulation.ask(simulation.state.server._replace(items=jnp.asarray(table)))
    simulation.state = last
    return round(measure(simulation.problem, answers, "test")[f"recall@{simulation.problem.protocol.k}"], 4)


EXPRESSED = Probe("capacity", _expressed)


def expressed(grid: Grid, samples: Sequence[Sample]) -> Chart:
    """Recall of a table by the number of codes that it is put together from."""
    panels = []
    for sample in samples:
        found = sample.measured
        names = {"tfidf": "ids of TF-IDF", "random": "ids of random vectors", OWN: f"ids of {OWN}"}
        lines = [Series(name, found["codes"], found[source]) for source, name in names.items()]
        whole = Series("whole table", found["codes"], [found["whole"]] * len(found["codes"]))
        printed = lookup("rqfedrec", "2", sample.data, "RQFedRec", grid.metrics[0])
        point = [Series("RQFedRec, published", [256], [printed], "points")] if printed else []
        title = f"{short(sample.data)}, {sample.row}"
        panels.append(Panel(title, "codes in a level", grid.metrics[0], (*lines, whole, *point)))
    return Chart(grid.title, tuple(panels), f"{LEVELS} levels; seed 0. The table is that of the chosen round.")
