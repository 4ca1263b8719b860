"""A run: training with progress and checkpoints, the run directory, and what one can ask of it afterwards."""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data import catalogue
from coterie.data.interactions import Interactions
from coterie.data.ragged import Ragged
from coterie.engine import checkpoint
from coterie.engine.simulate import Best, Record, Simulation, State
from coterie.errors import CoterieError
from coterie.evaluation import metrics, protocols
from coterie.evaluation.problem import Problem
from coterie.evaluation.references import references
from coterie.evaluation.significance import bootstrap_interval
from coterie.experiment import config as configuration
from coterie.experiment.config import Plan
from coterie.files import use_compilation_cache, write_text
from coterie.version import __version__

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
CHECKPOINT, MODEL, MODEL_CARD = "checkpoint.safetensors", "model.safetensors", "model.json"

OnRound = Callable[[Record, Simulation], None]


@dataclass(frozen=True)
class Recommendation:
    """An item, its title and its score for a user."""

    item: str
    title: str
    score: float


@dataclass
class Run:
    """A run that has been carried out, or loaded from its directory.

    `metrics` are those of the test part at the round that validation chose, under `plan.protocol`.
    """

    plan: Plan
    simulation: Simulation
    state: State
    summary: dict[str, Any]
    history: list[Record] = field(default_factory=list)
    per_user: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    path: Path | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Test metrics at the chosen round."""
        return self.summary["metrics"]

    @property
    def problem(self) -> Problem:
        """The data under the protocol."""
        return self.simulation.problem

    def recommend(self, user: str | int, k: int = 10) -> list[Recommendation]:
        """Return the k items with the highest scores among those the user has never interacted with."""
        data = self.problem.data
        number = data.user_number(user)
        if not 1 <= k <= data.n_items:
            raise CoterieError(f"k is {k}; choose a number from 1 to {data.n_items}, the number of items.")
        client = np.array([self.problem.home[number]])
        lists = self.simulation.top(self.state, k, _interacted(data), client)
        pairs = zip(lists.items[number].tolist(), lists.scores[number].tolist(), strict=True)
        return [Recommendation(data.item_ids[i], data.title(i), s) for i, s in pairs if i >= 0]

    def save(self, path: str | Path) -> Path:
        """Write the run directory: settings, metrics by round, summary and model."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder
        write_text(folder / CONFIG, configuration.to_yaml(self.plan, self.simulation.config))
        _write_history(folder, self.history)
        identity = identity_of(self.plan, self.simulation)
        checkpoint.save_model(folder / MODEL, self.state, identity)
        card = {"identity": identity, "round": self.summary["best_round"], "tensors": MODEL}
        write_text(folder / MODEL_CARD, json.dumps(card, indent=2) + "\n")
        write_text(folder / SUMMARY, json.dumps(self.summary, indent=2) + "\n")
        return folder


def fit(
    algorithm: str,
    data: str | Interactions = "demo",
    *,
    protocol: str = "loo99",
    rounds: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> Run:
    """Train `algorithm` on `data` and evaluate it by `protocol`; `settings` are those of `coterie run --set`.

    The run is in memory; `run.save(path)` writes its directory.
    """
    name = data if isinstance(data, str) else data.name
    given = {"algorithm": algorithm, "data": name, "protocol": protocol, "seed": seed, **settings}
    if rounds is not None:
        given["rounds"] = rounds
    return execute(configuration.plan(given), data=None if isinstance(data, str) else data)


def execute(
    plan: Plan, out: Path | None = None, *, data: Interactions | None = None, on_round: OnRound | None = None
) -> Run:
    """Carry a run out; with `out`, its directory is written as it goes and can be resumed."""
    use_compilation_cache()
    start = time.perf_counter()
    simulation = prepare(plan, data)
    if out is not None:
        _open(out, plan, simulation)
    return _go_on(plan, simulation, out, on_round, start)


def resume(folder: Path, *, on_round: OnRound | None = None) -> Run:
    """Go on with a run that was interrupted, exactly as if it had not been."""
    use_compilation_cache()
    plan = read_plan(folder)
    if (folder / SUMMARY).exists():
        raise CoterieError(f"The run in {folder} is finished; its result is in {folder / SUMMARY}.")
    start = time.perf_counter()
    simulation = prepare(plan)
    if (folder / CHECKPOINT).exists():
        checkpoint.load(folder / CHECKPOINT, simulation, identity_of(plan, simulation))
        start -= simulation.history[-1].seconds["total"] if simulation.history else 0.0
    _write_history(folder, simulation.history)
    return _go_on(plan, simulation, folder, on_round, start)


def load(folder: str | Path) -> Run:
    """Load a finished run from its directory."""
    use_compilation_cache()
    folder = Path(folder)
    plan = read_plan(folder)
    if not (folder / SUMMARY).exists():
        raise CoterieError(f"The run in {folder} is not finished; run: coterie resume {folder}")
    simulation = prepare(plan)
    checkpoint.load_model(folder / MODEL, simulation, identity_of(plan, simulation))
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    history = [Record(**json.loads(line)) for line in lines]
    return Run(plan, simulation, simulation.state, summary, history, path=folder)


def read_plan(folder: Path) -> Plan:
    """Read the settings of a run directory."""
    if not (folder / CONFIG).is_file():
        raise CoterieError(f"{folder} is not a run directory: it has no {CONFIG}.")
    return configuration.plan(configuration.read_yaml(folder / CONFIG))


def prepare(plan: Plan, data: Interactions | None = None) -> Simulation:
    """Load the data, lay it out by the protocol and set up the simulation."""
    loaded = data or catalogue.load(plan.what.data, filters=plan.filters)
    problem = protocols.prepare(loaded, plan.protocol.name, plan.what.seed, plan.options)
    return Simulation(plan.algorithm, plan.settings, problem, plan.conduct)


def identity_of(plan: Plan, simulation: Simulation) -> dict[str, Any]:
    """Return what must agree before a file may be loaded into a run."""
    return {
        "algorithm": plan.algorithm.info.name,
        "data": simulation.problem.data.fingerprint(),
        "protocol": plan.protocol.name,
        "seed": plan.what.seed,
        "settings": simulation.config.model_dump(mode="json"),
    }


def _open(out: Path, plan: Plan, simulation: Simulation) -> None:
    if out.exists() and any(out.iterdir()):
        raise CoterieError(f"{out} is not empty; choose another --out, or run: coterie resume {out}")
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / CONFIG, configuration.to_yaml(plan, simulation.config))


def _go_on(plan: Plan, simulation: Simulation, out: Path | None, on_round: OnRound | None, start: float) -> Run:
    """Run the rounds that are left; an interrupt leaves a checkpoint behind."""
    try:
        while not simulation.finished:
            record = simulation.advance()
            record.seconds["total"] = time.perf_counter() - start
            if out is not None:
                _note(out, plan, simulation)
            if on_round is not None:
                on_round(record, simulation)
    except KeyboardInterrupt:
        if out is not None and simulation.history:
            checkpoint.save(out / CHECKPOINT, simulation, identity_of(plan, simulation))
        raise
    run = _finish(plan, simulation, start)
    if out is not None:
        run.save(out)
        (out / CHECKPOINT).unlink(missing_ok=True)
    return run


def _note(out: Path, plan: Plan, simulation: Simulation) -> None:
    """Append the last round to the metrics, and checkpoint when it is time."""
    with (out / METRICS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(simulation.history[-1])) + "\n")
    every = plan.what.checkpoint_every
    if every and simulation.state.round % every == 0:
        checkpoint.save(out / CHECKPOINT, simulation, identity_of(plan, simulation))


def _write_history(folder: Path, history: list[Record]) -> None:
    write_text(folder / METRICS, "".join(json.dumps(asdict(record)) + "\n" for record in history))


def _finish(plan: Plan, simulation: Simulation, start: float) -> Run:
    best = simulation.best
    assert best is not None
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
        "intervals": {name: asdict(bootstrap_interval(values)) for name, values in per_user.items()},
        "by_activity": {name: metrics.by_activity(values, _activity(problem)) for name, values in per_user.items()},
        "references": references(problem),
        "seconds": {**simulation.clock.spent, "total": time.perf_counter() - start},
        "bytes": {"up": simulation.ledger.up, "down": simulation.ledger.down},
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "settings": simulation.config.model_dump(mode="json"),
        "notes": list(problem.data.notes),
        "versions": versions(),
    }
    return Run(plan, simulation, best.state, summary, simulation.history, per_user)


def _per_user(problem: Problem, best: Best) -> dict[str, NDArray[np.float64]]:
    if problem.protocol.task != "ranking":
        return {}
    k = problem.protocol.k
    return {f"{name}@{k}": values for name, values in metrics.per_user(best.answers.test, k).items()}


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


def _interacted(data: Interactions) -> Ragged:
    return Ragged.group(data.users, data.items, data.n_users)


def peak_rss_mb() -> float:
    """Return the peak memory of this process in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = ("jax", "jaxlib", "numpy", "optax")
    return {"coterie": __version__, "python": platform.python_version(), **{name: version(name) for name in packages}}
