"""A run: training with progress and checkpoints, the run directory, and what one can ask of it afterwards."""

from __future__ import annotations

import json
import platform
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coterie.data import catalogue
from coterie.data.interactions import Interactions
from coterie.data.ragged import Ragged
from coterie.engine import checkpoint
from coterie.engine.simulate import Best, Record, Simulation, State
from coterie.errors import CoterieError
from coterie.evaluation import metrics, protocols
from coterie.evaluation.problem import Problem
from coterie.evaluation.references import references, skipped
from coterie.evaluation.significance import bootstrap_interval
from coterie.experiment import config as configuration
from coterie.experiment.config import Plan
from coterie.files import use_compilation_cache, write_atomically, write_text
from coterie.version import __version__

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
CHECKPOINT, MODEL, MODEL_CARD = "checkpoint.safetensors", "model.safetensors", "model.json"
PER_USER = "per_user.safetensors"

OnStart = Callable[[Simulation], None]
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
        _write_settings(folder, self.plan, self.simulation)
        _write_history(folder, self.history)
        identity = identity_of(self.plan, self.simulation)
        with _room_on_disk(folder):
            write_atomically(folder / PER_USER, lambda draft: save_file(self.per_user, draft))
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
    plan: Plan,
    out: Path | None = None,
    *,
    data: Interactions | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
) -> Run:
    """Carry a run out; with `out`, its directory is written as it goes and can be resumed.

    Ctrl-C then stops it at the end of a round and leaves a checkpoint; a second one stops it at once.
    """
    use_compilation_cache()
    start = time.perf_counter()
    if out is not None:
        _refuse_used(out)
    simulation = prepare(plan, data)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        _write_settings(out, plan, simulation)
    if on_start is not None:
        on_start(simulation)
    return _go_on(plan, simulation, out, on_round, start)


def resume(
    folder: Path,
    *,
    data: Interactions | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
) -> Run:
    """Go on with a run that was interrupted, exactly as if it had not been."""
    use_compilation_cache()
    plan = read_plan(folder)
    if (folder / SUMMARY).exists():
        raise CoterieError(f"The run in {folder} is finished; its result is in {folder / SUMMARY}.")
    start = time.perf_counter()
    simulation = prepare(plan, data)
    if (folder / CHECKPOINT).exists():
        checkpoint.load(folder / CHECKPOINT, simulation, identity_of(plan, simulation))
        start -= simulation.history[-1].seconds["total"] if simulation.history else 0.0
    _write_history(folder, simulation.history)
    _remove_drafts(folder)
    if on_start is not None:
        on_start(simulation)
    return _go_on(plan, simulation, folder, on_round, start)


def load_run(folder: str | Path, data: Interactions | None = None) -> Run:
    """Load a finished run from its directory; `data` is that of a run on a set which has no name."""
    use_compilation_cache()
    folder = Path(folder)
    plan = read_plan(folder)
    if not (folder / SUMMARY).exists():
        raise CoterieError(f"The run in {folder} is not finished; run: coterie resume {folder}")
    summary, per_user = read_result(folder)
    history = read_history(folder)
    simulation = prepare(plan, data)
    checkpoint.load_model(folder / MODEL, simulation, identity_of(plan, simulation))
    return Run(plan, simulation, simulation.state, summary, history, per_user, folder)


def read_result(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Read the summary and the metrics by user of a finished run, without its data or its model."""
    try:
        return json.loads((folder / SUMMARY).read_text(encoding="utf-8")), load_file(folder / PER_USER)
    except (OSError, ValueError, SafetensorError) as error:
        raise CoterieError(f"The result in {folder} cannot be read, it may be damaged: {error}") from None


def read_history(folder: Path) -> list[Record]:
    """Read the rounds of a run."""
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
        return [Record(**json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError) as error:
        raise CoterieError(f"{folder / METRICS} cannot be read, it may be damaged: {error}") from None


def read_plan(folder: Path) -> Plan:
    """Read the settings of a run directory."""
    if not (folder / CONFIG).is_file():
        raise CoterieError(f"{folder} is not a run directory: it has no {CONFIG}.")
    given = configuration.read_yaml(folder / CONFIG)
    return configuration.plan(given, configuration.read_origins(folder / CONFIG))


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


def _refuse_used(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = f", or run: coterie resume {out}" if (out / CONFIG).exists() and not (out / SUMMARY).exists() else "."
        raise CoterieError(f"{out} is {'not empty' if out.is_dir() else 'a file'}; choose another --out{hint}")


def _write_settings(folder: Path, plan: Plan, simulation: Simulation) -> None:
    write_text(folder / CONFIG, configuration.to_yaml(plan, simulation.config))
    if plan.source:
        write_text(folder / configuration.OWN_ALGORITHM, plan.source)


def _remove_drafts(folder: Path) -> None:
    """Remove what a killed process was writing when it died."""
    for name in (CHECKPOINT, MODEL, PER_USER):
        for draft in folder.glob(f".{name}.*"):
            draft.unlink(missing_ok=True)


class _Interrupt:
    """Holds Ctrl-C back, so that a round ends before the run does; the second one is not held back."""

    def __init__(self, listens: bool) -> None:
        # Python hears signals in the main thread only.
        self._listens = listens and threading.current_thread() is threading.main_thread()
        self.asked = False

    def __enter__(self) -> _Interrupt:
        if self._listens:
            self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("Stopping after this round; Ctrl-C again stops at once.", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, self._before)


def _go_on(plan: Plan, simulation: Simulation, out: Path | None, on_round: OnRound | None, start: float) -> Run:
    """Run the rounds that are left; with `out`, an interrupt waits for a round to end and leaves a checkpoint."""
    with _Interrupt(out is not None) as interrupt:
        while not simulation.finished:
            record = simulation.advance()
            record.seconds["total"] = time.perf_counter() - start
            stops = interrupt.asked
            if out is not None:
                _note(out, plan, simulation, last=stops)
            if on_round is not None:
                on_round(record, simulation)
            if stops and not simulation.finished:
                raise KeyboardInterrupt
        run = _finish(plan, simulation, start)
        if out is not None:
            run.save(out)
            (out / CHECKPOINT).unlink(missing_ok=True)
    return run


def _note(out: Path, plan: Plan, simulation: Simulation, last: bool) -> None:
    """Append the last round to the metrics, and checkpoint when it is time."""
    try:
        with (out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(simulation.history[-1])) + "\n")
    except OSError as error:
        raise CoterieError(
            f"{out / METRICS} cannot be written: {error.strerror}; the last checkpoint is unchanged."
        ) from None
    every = plan.what.checkpoint_every
    if last or (every and simulation.state.round % every == 0):
        with _room_on_disk(out):
            checkpoint.save(out / CHECKPOINT, simulation, identity_of(plan, simulation))


@contextmanager
def _room_on_disk(folder: Path) -> Iterator[None]:
    """Turn what safetensors says about a full disk into a sentence."""
    try:
        yield
    except SafetensorError as error:
        reason = str(error).rpartition("I/O error: ")[2]
        raise CoterieError(f"{folder} cannot be written: {reason}; what was there is unchanged.") from None


def _write_history(folder: Path, history: list[Record]) -> None:
    write_text(folder / METRICS, "".join(json.dumps(asdict(record)) + "\n" for record in history))


def _finish(plan: Plan, simulation: Simulation, start: float) -> Run:
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
        "intervals": _intervals(problem, per_user),
        "by_activity": {name: metrics.by_activity(values, _activity(problem)) for name, values in per_user.items()},
        "references": references(problem),
        "references_skipped": skipped(problem),
        "seconds": {**simulation.clock.spent, "total": time.perf_counter() - start},
        "bytes": {"up": simulation.ledger.up, "down": simulation.ledger.down},
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "settings": simulation.config.model_dump(mode="json"),
        "notes": list(problem.data.notes),
        "versions": versions(),
    }
    return Run(plan, simulation, best.state, summary, simulation.history, per_user)


def _per_user(problem: Problem, best: Best) -> dict[str, NDArray[np.float64]]:
    """Return the metrics of each user; of ratings, the mean absolute error over the user's own."""
    if problem.protocol.task == "ranking":
        k = problem.protocol.k
        return {f"{name}@{k}": values for name, values in metrics.per_user(best.answers.test, k).items()}
    predicted, held = best.answers.test, problem.test
    lengths = held.items.lengths
    errors = np.abs(predicted[np.arange(predicted.shape[1]) < lengths[:, None]] - held.ratings.values)
    sums = np.bincount(np.repeat(np.arange(len(lengths)), lengths), errors, minlength=len(lengths))
    return {"mae": np.divide(sums, lengths, out=np.full(len(lengths), np.nan), where=lengths > 0)}


def _intervals(problem: Problem, per_user: dict[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
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
