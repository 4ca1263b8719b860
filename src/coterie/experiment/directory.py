"""The run directory: settings, metrics by round, summary, metrics by user, checkpoint and model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coterie.engine import checkpoint
from coterie.engine.simulate import Simulation
from coterie.engine.state import Record
from coterie.errors import CoterieError
from coterie.experiment import config as configuration
from coterie.experiment.config import Plan
from coterie.files import write_atomically, write_text

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
CHECKPOINT, MODEL, MODEL_CARD = "checkpoint.safetensors", "model.safetensors", "model.json"
PER_USER = "per_user.safetensors"


def refuse_used(out: Path) -> None:
    """Refuse a folder that holds something."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = f", or run: coterie resume {out}" if (out / CONFIG).exists() and not (out / SUMMARY).exists() else "."
        raise CoterieError(f"{out} is {'not empty' if out.is_dir() else 'a file'}; choose another --out{hint}")


def identity_of(plan: Plan, simulation: Simulation) -> dict[str, Any]:
    """Return what must agree before a file may be loaded into a run.

    Of the settings those that are not at their default, so that a setting which a later version adds does no harm.
    """
    return {
        "algorithm": plan.algorithm.info.name,
        "data": simulation.problem.data.fingerprint(),
        "protocol": plan.protocol.name,
        "seed": plan.what.seed,
        "settings": simulation.config.model_dump(mode="json", exclude_defaults=True),
        "robustness": plan.exposed(),
    }


def write_settings(folder: Path, plan: Plan, simulation: Simulation) -> None:
    """Write every setting with its origin, and the code of an algorithm that was given by path."""
    write_text(folder / CONFIG, configuration.to_yaml(plan, simulation.config))
    if plan.source:
        write_text(folder / configuration.OWN_ALGORITHM, plan.source)


def read_plan(folder: Path) -> Plan:
    """Read the settings of a run directory."""
    if not (folder / CONFIG).is_file():
        raise CoterieError(f"{folder} is not a run directory: it has no {CONFIG}.")
    given = configuration.read_yaml(folder / CONFIG)
    return configuration.plan(given, configuration.read_origins(folder / CONFIG))


def write_history(folder: Path, history: Sequence[Record]) -> None:
    """Write the rounds of a run, a line each."""
    write_text(folder / METRICS, "".join(json.dumps(asdict(record)) + "\n" for record in history))


def read_history(folder: Path) -> list[Record]:
    """Read the rounds of a run."""
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
        return [Record(**json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError) as error:
        raise CoterieError(f"{folder / METRICS} cannot be read, it may be damaged: {error}") from None


def note_round(folder: Path, plan: Plan, simulation: Simulation, *, last: bool) -> None:
    """Append the last round to the metrics, and checkpoint when it is time."""
    try:
        with (folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(simulation.history[-1])) + "\n")
    except OSError as error:
        raise CoterieError(
            f"{folder / METRICS} cannot be written: {error.strerror}; the last checkpoint is unchanged."
        ) from None
    every = plan.what.checkpoint_every
    if last or (every and simulation.state.round % every == 0):
        with room_on_disk(folder):
            checkpoint.save(folder / CHECKPOINT, simulation, identity_of(plan, simulation))


def write_per_user(folder: Path, per_user: dict[str, NDArray[np.float64]]) -> None:
    """Write the metrics of each user."""
    with room_on_disk(folder):
        write_atomically(folder / PER_USER, lambda draft: save_file(per_user, draft))


def read_result(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Read the summary and the metrics by user of a finished run, without its data or its model."""
    try:
        return json.loads((folder / SUMMARY).read_text(encoding="utf-8")), load_file(folder / PER_USER)
    except (OSError, ValueError, SafetensorError) as error:
        raise CoterieError(f"The result in {folder} cannot be read, it may be damaged: {error}") from None


def remove_drafts(folder: Path) -> None:
    """Remove what a killed process was writing when it died."""
    for name in (CHECKPOINT, MODEL, PER_USER):
        for draft in folder.glob(f".{name}.*"):
            draft.unlink(missing_ok=True)


@contextmanager
def room_on_disk(folder: Path) -> Iterator[None]:
    """Turn what safetensors says about a full disk into a sentence."""
    try:
        yield
    except SafetensorError as error:
        reason = str(error).rpartition("I/O error: ")[2]
        raise CoterieError(f"{folder} cannot be written: {reason}; what was there is unchanged.") from None
