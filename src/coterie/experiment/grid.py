"""Grids carried out: each run is cached, goes on where it was interrupted, and may fail without stopping the others."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from coterie.data import catalogue
from coterie.data.filters import Filters
from coterie.data.interactions import Interactions
from coterie.engine.simulate import Simulation
from coterie.engine.state import Record
from coterie.errors import CoterieError
from coterie.evaluation import protocols
from coterie.experiment import config as configuration
from coterie.experiment.config import Plan
from coterie.experiment.report import shown_metrics
from coterie.experiment.run import CONFIG, SUMMARY, OnRound, OnStart, execute, read_history, read_result, resume
from coterie.experiment.trials import Results, Trial, write_json
from coterie.files import forget_programs, write_text
from coterie.papers.declare import Probe

CarryOut = Callable[[Trial, Sequence[Probe]], dict[str, Any]]
KEPT = (
    "best_round", "rounds", "metrics", "validation", "robustness", "privacy", "intervals", "references",
    "references_skipped",
)  # fmt: skip
COST = ("seconds", "bytes", "peak_rss_mb", "versions", "notes")
DIGITS = 5


def run_all(trials: Sequence[Trial], probes: Mapping[str, Sequence[Probe]], carry_out: CarryOut) -> dict[str, str]:
    """Carry trials out one after the other; returns why some failed, by name.

    `probes` are those that look at a run, by its name.
    """
    failed: dict[str, str] = {}
    for trial in trials:
        try:
            carry_out(trial, probes.get(trial.name, ()))
        except Exception as error:  # whatever happens to one run, the others go on
            failed[trial.name] = sentence(error)
        forget_programs()
    return failed


def sentence(error: Exception) -> str:
    """Return what went wrong as one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, CoterieError) else f"{type(error).__name__}: {text[:300]}"


def is_done(trial: Trial, results: Results, probes: Sequence[Probe]) -> bool:
    """Whether nothing is left to run for a trial."""
    return results.path(trial).exists() and not _missing(trial, results, probes)


def _missing(trial: Trial, results: Results, probes: Sequence[Probe]) -> list[Probe]:
    return [probe for probe in probes if not results.probe_path(trial, probe).exists()]


def carry_out(
    trial: Trial,
    results: Results,
    probes: Sequence[Probe] = (),
    *,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
) -> dict[str, Any]:
    """Take the result of a finished run, go on with an interrupted one, or run."""
    found = results.read(trial)
    missing = _missing(trial, results, probes)
    if found is not None and not missing:
        return found
    plan = configuration.plan(trial.given, dict.fromkeys(trial.given, f"declared by {results.paper}"))
    with results.claimed(trial) as folder:
        complaint = folder.with_name(f"{folder.name}.error.txt")
        try:
            _run(plan, folder, _Observer(trial, results, missing, folder, on_start, on_round))
            found = results.read(trial) or _keep(trial, results, folder)
        except Exception:
            write_text(complaint, traceback.format_exc())
            raise
        complaint.unlink(missing_ok=True)
        shutil.rmtree(folder)
    return found


def _run(plan: Plan, folder: Path, observer: _Observer) -> None:
    """Bring a run directory to its end; one that cannot give what the probes ask for is begun again."""
    if (folder / SUMMARY).exists() and not observer.probes:
        return
    if (folder / CONFIG).exists() and not (folder / SUMMARY).exists():
        try:
            resume(folder, data=_data(plan), on_start=observer.start, on_round=observer.round, keep_model=False)
            return
        except _RoundsMissing:
            pass
    shutil.rmtree(folder, ignore_errors=True)
    execute(plan, folder, data=_data(plan), on_start=observer.start, on_round=observer.round, keep_model=False)


def _data(plan: Plan) -> Interactions:
    return _load(plan.what.data, plan.filters)


@lru_cache(maxsize=1)
def _load(name: str, filters: Filters) -> Interactions:
    return catalogue.load(name, filters=filters)


class _RoundsMissing(Exception):
    """A probe did not see all rounds of the run that is to be resumed."""


class _Observer:
    """Lets probes look at a run, round by round; what they saw lies in the run directory, so that it can go on."""

    def __init__(
        self,
        trial: Trial,
        results: Results,
        probes: Sequence[Probe],
        folder: Path,
        on_start: OnStart | None,
        on_round: OnRound | None,
    ) -> None:
        self.trial, self.results, self.probes, self.folder = trial, results, probes, folder
        self._on_start, self._on_round = on_start, on_round
        self._seen: dict[str, list[Any]] = {probe.name: [] for probe in probes}

    def start(self, simulation: Simulation) -> None:
        """Recall what was seen before an interruption."""
        rounds = simulation.state.round
        for probe in self.probes:
            if probe.of_round is not None:
                self._seen[probe.name] = self._recall(probe, rounds)
        if self._on_start is not None:
            self._on_start(simulation)

    def _recall(self, probe: Probe, rounds: int) -> list[Any]:
        path = self._notes(probe)
        lines = path.read_text(encoding="utf-8").splitlines()[:rounds] if path.exists() else []
        if len(lines) < rounds:
            raise _RoundsMissing
        write_text(path, "".join(f"{line}\n" for line in lines))
        return [json.loads(line) for line in lines]

    def _notes(self, probe: Probe) -> Path:
        return self.folder / f"{probe.name}.jsonl"

    def round(self, record: Record, simulation: Simulation) -> None:
        """Let the probes look at a round and, after the last one, at the run."""
        for probe in self.probes:
            if probe.of_round is not None:
                self._note(probe, probe.of_round(simulation))
        if self._on_round is not None:
            self._on_round(record, simulation)
        if simulation.finished:
            for probe in self.probes:
                measured = probe.of_run(simulation, self._seen[probe.name])
                write_json(self.results.probe_path(self.trial, probe), measured)

    def _note(self, probe: Probe, value: Any) -> None:
        self._seen[probe.name].append(value)
        with self._notes(probe).open("a", encoding="utf-8") as file:
            file.write(json.dumps(value) + "\n")


def _keep(trial: Trial, results: Results, folder: Path) -> dict[str, Any]:
    """Write the result of a finished run directory."""
    summary, _ = read_result(folder)
    result = {
        "given": dict(trial.given),
        "settings": configuration.read_yaml(folder / CONFIG),
        "data": trial.data,
        "protocol": trial.protocol,
        "seed": trial.seed,
        **{name: summary[name] for name in (*KEPT, *COST)},
        "curve": curve(trial.protocol, read_history(folder)),
    }
    write_json(results.path(trial), result)
    return result


def curve(protocol: str, history: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the evaluated rounds by column: the shown metrics, the loss and whatever else a round measured."""
    rounds = [record for record in history if record.validation is not None]
    columns: dict[str, list[Any]] = {"round": [record.round for record in rounds]}
    for metric in _followed(protocol):
        columns[f"validation {metric}"] = [_short((record.validation or {})[metric]) for record in rounds]
        columns[f"test {metric}"] = [_short((record.test or {})[metric]) for record in rounds]
    for name in dict.fromkeys(name for record in rounds for name in record.exposure or {}):
        columns[name] = [_short((record.exposure or {})[name]) for record in rounds]
    for name in dict.fromkeys(name for record in rounds for name in record.metrics):
        columns[name] = [_short(record.metrics.get(name, float("nan"))) for record in rounds]
    return columns


def _followed(protocol: str) -> tuple[str, ...]:
    """Return the metric that chooses the round, and the next one of the table."""
    return tuple(dict.fromkeys((protocols.get(protocol).selecting, *shown_metrics(protocol)[:2])))


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
