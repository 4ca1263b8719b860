"""Recompute the stored results of small runs on the built-in data: `make golden`.

`tests/test_golden.py` compares a fresh computation with them, so that a change of results is a decision.
"""

from __future__ import annotations

import json
from pathlib import Path

from coterie import algorithms
from coterie.data import catalogue
from coterie.engine.simulate import Conduct, Simulation
from coterie.evaluation import protocols

STORED = Path(__file__).parent.parent / "tests" / "golden.json"
DATA = "demo:users=80,items=400,interactions_per_user=20"


SHORTER = {"embedding_dim": 16}
"""For what has vectors of 512 elements by default."""
MEASURED = {"loo99": ("hr@10", "ndcg@10"), "rating-dirichlet": ("mae", "rmse")}


def result(name: str) -> dict[str, float]:
    """Loss and test metrics of three rounds: leave-one-out, or, for what predicts ratings only, skewed platforms."""
    algorithm = algorithms.get(name)
    protocol = "loo99" if "ranking" in algorithm.info.tasks else "rating-dirichlet"
    problem = protocols.prepare(catalogue.load(DATA), protocol)
    dim = algorithm.Config.model_fields.get("embedding_dim")
    settings = SHORTER if dim and dim.default == 512 else {}
    simulation = Simulation(algorithm, settings, problem, Conduct(rounds=3), buckets=1)
    while not simulation.finished:
        record = simulation.advance()
    assert record.test is not None
    return {**record.metrics, **{metric: record.test[metric] for metric in MEASURED[protocol]}}


if __name__ == "__main__":
    stored = {name: result(name) for name in algorithms.names()}
    STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {len(stored)} results to {STORED.name}")
