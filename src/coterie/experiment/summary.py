"""What is said of a run when it is over: the chosen round, intervals, references, cost and versions."""

from __future__ import annotations

import platform
import resource
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.engine.simulate import Simulation
from coterie.engine.state import Best
from coterie.evaluation import metrics
from coterie.evaluation.problem import Problem
from coterie.evaluation.references import references, skipped
from coterie.evaluation.significance import bootstrap_interval
from coterie.experiment.config import Plan
from coterie.privacy import accountant
from coterie.version import __version__

PerUser = dict[str, NDArray[np.float64]]


def summarise(plan: Plan, simulation: Simulation, start: float) -> tuple[dict[str, Any], PerUser]:
    """Return the summary of a finished simulation that began at `start`, and the metrics of each user."""
    best = simulation.best
    assert best is not None
    with simulation.clock.on("evaluate"):
        per_user = _per_user(simulation.problem, best)
        beyond = _beyond_accuracy(simulation, best)
    problem = simulation.problem
    summary = {
        "algorithm": plan.algorithm.info.name,
        "data": problem.data.name,
        "protocol": plan.protocol.name,
        "seed": plan.what.seed,
        "rounds": simulation.state.round,
        "best_round": best.record.round,
        "metrics": {**(best.record.test or {}), **beyond},
        "validation": best.record.validation,
        "robustness": _robustness(plan, simulation),
        "privacy": accountant.report(plan.privacy, plan.conduct.rounds),
        "intervals": _intervals(problem, per_user),
        "by_activity": {name: metrics.by_activity(values, _activity(problem)) for name, values in per_user.items()},
        "references": references(problem),
        "references_skipped": skipped(problem),
        "seconds": {**simulation.clock.spent, "total": time.perf_counter() - start},
        "bytes": {name: getattr(simulation.ledger, name) for name in ("up", "down", "needed_up", "needed_down")},
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "settings": simulation.config.model_dump(mode="json"),
        "notes": [*problem.data.notes, *simulation.notes],
        "versions": versions(),
    }
    return summary, per_user


def _robustness(plan: Plan, simulation: Simulation) -> dict[str, Any]:
    """Return what the run was exposed to, how the server combined uploads, and what came of it."""
    config, data, attackers = simulation.config, simulation.problem.data, simulation.federation.attackers
    said: dict[str, Any] = {
        "attack": plan.robustness.attack,
        "defence": plan.robustness.defence,
        "regulariser": config.regulariser,
        "aggregation": config.aggregation,
        "server_optimiser": config.server_optimiser,
        "server_lr": config.server_lr,
        "refused": sum(len(record.refused) for record in simulation.history),
    }
    if attackers is not None:
        evaluated = [record for record in simulation.history if record.exposure is not None]
        assert simulation.best is not None
        said |= {
            "malicious": attackers.count,
            "targets": [data.item_ids[item] for item in simulation.targets],
            "exposure": simulation.best.record.exposure,
            "last_exposure": evaluated[-1].exposure,
        }
    return said


def _per_user(problem: Problem, best: Best) -> PerUser:
    """Return the metrics of each user; of ratings, the mean absolute error over the user's own."""
    if problem.protocol.task == "ranking":
        k = problem.protocol.k
        return {f"{name}@{k}": values for name, values in metrics.per_user(best.answers.test, k).items()}
    predicted, held = best.answers.test, problem.test
    lengths = held.items.lengths
    errors = np.abs(predicted[np.arange(predicted.shape[1]) < lengths[:, None]] - held.ratings.values)
    sums = np.bincount(np.repeat(np.arange(len(lengths)), lengths), errors, minlength=len(lengths))
    return {"mae": np.divide(sums, lengths, out=np.full(len(lengths), np.nan), where=lengths > 0)}


def _intervals(problem: Problem, per_user: PerUser) -> dict[str, dict[str, float]]:
    """Return bootstrap intervals over users; a user counts in an error by the number of ratings, as in the error."""
    weight: NDArray[np.float64] | float = 1.0
    if problem.protocol.task == "rating":
        counts = problem.test.items.lengths
        weight = counts / counts[counts > 0].mean()
    return {name: asdict(bootstrap_interval(values * weight)) for name, values in per_user.items()}


def _beyond_accuracy(simulation: Simulation, best: Best) -> dict[str, float]:
    """Coverage and Gini of the lists that the users would be shown."""
    problem = simulation.problem
    if problem.protocol.task != "ranking":
        return {}
    k, n_items = problem.protocol.k, problem.data.n_items
    lists = simulation.top(best.state, min(k, n_items), problem.masked("test")).items
    return {f"coverage@{k}": metrics.coverage(lists, n_items), f"gini@{k}": metrics.gini(lists, n_items)}


def _activity(problem: Problem) -> NDArray[np.int64]:
    return np.bincount(problem.data.users[problem.train], minlength=problem.data.n_users)


def peak_rss_mb() -> float:
    """Return the peak memory of this process in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = ("jax", "jaxlib", "numpy", "optax")
    return {"coterie": __version__, "python": platform.python_version(), **{name: version(name) for name in packages}}
