"""A run: training with progress and checkpoints, its directory, and what one can ask of it afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data import catalogue
from coterie.data.interactions import Interactions
from coterie.data.ragged import Ragged
from coterie.engine import checkpoint
from coterie.engine.simulate import Simulation
from coterie.engine.state import Record, State
from coterie.errors import CoterieError
from coterie.evaluation import protocols
from coterie.evaluation.problem import Problem
from coterie.experiment import config as configuration
from coterie.experiment import directory
from coterie.experiment.config import Plan
from coterie.experiment.directory import (
    CHECKPOINT,
    CONFIG,
    METRICS,
    MODEL,
    MODEL_CARD,
    PER_USER,
    SUMMARY,
    identity_of,
    read_history,
    read_plan,
    read_result,
)
from coterie.experiment.interrupt import Interrupt
from coterie.experiment.summary import peak_rss_mb, summarise, versions
from coterie.files import use_compilation_cache, write_text
from coterie.privacy import accountant

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "METRICS",
    "MODEL",
    "MODEL_CARD",
    "PER_USER",
    "SUMMARY",
    "OnRound",
    "OnStart",
    "Recommendation",
    "Run",
    "execute",
    "fit",
    "identity_of",
    "load_run",
    "peak_rss_mb",
    "prepare",
    "read_history",
    "read_plan",
    "read_result",
    "resume",
    "versions",
]

OnStart = Callable[[Simulation], None]
OnRound = Callable[[Record, Simulation], None]


@dataclass(frozen=True)
class Recommendation:
    """An item, its title and its score for a user; `parts` says what the score is the sum of, where that is known."""

    item: str
    title: str
    score: float
    parts: dict[str, float] = field(default_factory=dict)


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
        found = lists.items[number] >= 0
        items, scores = lists.items[number][found], lists.scores[number][found]
        parts = self.simulation.parts(self.state, number, items)
        return [
            Recommendation(data.item_ids[i], data.title(i), s, {name: float(part[n]) for name, part in parts.items()})
            for n, (i, s) in enumerate(zip(items.tolist(), scores.tolist(), strict=True))
        ]

    def save(self, path: str | Path, *, keep_model: bool = True) -> Path:
        """Write the run directory: settings, metrics by round, summary and, unless it is not wanted, the model."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder
        directory.write_settings(folder, self.plan, self.simulation)
        directory.write_history(folder, self.history)
        directory.write_per_user(folder, self.per_user)
        if keep_model:
            self._save_model(folder)
        write_text(folder / SUMMARY, json.dumps(self.summary, indent=2) + "\n")
        return folder

    def _save_model(self, folder: Path) -> None:
        identity = identity_of(self.plan, self.simulation)
        with directory.room_on_disk(folder):
            checkpoint.save_model(folder / MODEL, self.state, identity)
        card = {"identity": identity, "round": self.summary["best_round"], "tensors": MODEL}
        write_text(folder / MODEL_CARD, json.dumps(card, indent=2) + "\n")


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
    keep_model: bool = True,
) -> Run:
    """Carry a run out; with `out`, its directory is written as it goes and can be resumed.

    Ctrl-C then stops it at the end of a round and leaves a checkpoint; a second one stops it at once.
    Without `keep_model`, the directory of the finished run holds no model: it can be read, but not loaded.
    """
    use_compilation_cache()
    start = time.perf_counter()
    if out is not None:
        directory.refuse_used(out)
    accountant.budget(plan.privacy, plan.conduct.rounds)  # refused before the training if it cannot be stated after it
    simulation = prepare(plan, data)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        directory.write_settings(out, plan, simulation)
    if on_start is not None:
        on_start(simulation)
    return _go_on(plan, simulation, out, on_round, start, keep_model)


def resume(
    folder: Path,
    *,
    data: Interactions | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
    keep_model: bool = True,
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
    directory.write_history(folder, simulation.history)
    directory.remove_drafts(folder)
    if on_start is not None:
        on_start(simulation)
    return _go_on(plan, simulation, folder, on_round, start, keep_model)


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


def prepare(plan: Plan, data: Interactions | None = None) -> Simulation:
    """Load the data, lay it out by the protocol and set up the simulation."""
    loaded = data or catalogue.load(plan.what.data, filters=plan.filters)
    problem = protocols.prepare(loaded, plan.protocol.name, plan.what.seed, plan.options)
    return Simulation(
        plan.algorithm, plan.settings, problem, plan.conduct, robustness=plan.protection(), privacy=plan.privacy
    )


def _go_on(
    plan: Plan,
    simulation: Simulation,
    out: Path | None,
    on_round: OnRound | None,
    start: float,
    keep_model: bool,
) -> Run:
    """Run the rounds that are left; with `out`, an interrupt waits for a round to end and leaves a checkpoint."""
    with Interrupt(out is not None) as interrupt:
        while not simulation.finished:
            record = simulation.advance()
            record.seconds["total"] = time.perf_counter() - start
            stops = interrupt.asked
            if out is not None:
                directory.note_round(out, plan, simulation, last=stops)
            if on_round is not None:
                on_round(record, simulation)
            if stops and not simulation.finished:
                raise KeyboardInterrupt
        run = _finish(plan, simulation, start)
        if out is not None:
            run.save(out, keep_model=keep_model)
            (out / CHECKPOINT).unlink(missing_ok=True)
    return run


def _finish(plan: Plan, simulation: Simulation, start: float) -> Run:
    summary, per_user = summarise(plan, simulation, start)
    assert simulation.best is not None
    return Run(plan, simulation, simulation.best.state, summary, simulation.history, per_user)


def _interacted(data: Interactions) -> Ragged:
    return Ragged.group(data.users, data.items, data.n_users)
