"""The runs of a grid, and the small files that their results are kept in.

A run is known by its flat settings, so two tables that need the same run share it. While it goes on it is an ordinary
run directory below `.running`; when it is over, one JSON file is left.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.data import cache
from coterie.data.entries import ENTRIES
from coterie.errors import CoterieError
from coterie.files import write_text
from coterie.papers.declare import Grid, Probe, Row

RUNNING = ".running"
NO_MATTER = ("checkpoint_every", "store")
"""Settings that change how a run is carried out and nothing of what comes out."""


@dataclass(frozen=True)
class Trial:
    """One run of a grid."""

    row: str
    data: str
    form: str
    protocol: str
    seed: int
    settings: Mapping[str, Any]

    @property
    def given(self) -> dict[str, Any]:
        """All settings as `coterie run` takes them."""
        return {**self.settings, "data": self.data, "protocol": self.protocol, "seed": self.seed}

    @property
    def name(self) -> str:
        """The name of its result, such as `ml-100k/loo99/pfedrec-1f0c2a4b-s0`."""
        matters = {key: value for key, value in self.settings.items() if key not in NO_MATTER}
        mark = hashlib.sha256(json.dumps(matters, sort_keys=True).encode()).hexdigest()[:8]
        return f"{folder_name(self.data)}/{self.protocol}/{self.settings['algorithm']}-{mark}-s{self.seed}"

    def __str__(self) -> str:
        """Say which run it is."""
        return f"{self.row} on {self.data}, {self.protocol}, seed {self.seed}"


def folder_name(data: str) -> str:
    """Return the name of a data set as that of a folder; one of the user's own has a mark of its content.

    >>> folder_name("demo:users=60,items=360")
    'demo-users-60-items-360'
    """
    known = data in ENTRIES or data.split(":")[0] == "demo"
    place = None if known else cache.find(data) or Path(data)
    if place is None or not place.exists():
        return re.sub(r"[^A-Za-z0-9._]+", "-", data)
    return f"{re.sub(r'[^A-Za-z0-9._]+', '-', place.name)}-{_content(place)}"


@functools.cache
def _content(place: Path) -> str:
    """Return a mark of what a file or folder holds: other rows under the same name are another set."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()[:8]


def trials_of(
    grid: Grid,
    *,
    seeds: int | None = None,
    data: Collection[str] = (),
    rows: Collection[str] = (),
    protocols: Collection[str] = (),
) -> list[Trial]:
    """Return the runs of a grid, one data set after the other; `data`, `rows`, `protocols` limit them if given."""
    return [
        Trial(row.label, name, form, grid.protocol_of(form), seed, recipe(name))
        for name in grid.data
        if not data or name in data
        for seed in range(grid.seeds if seeds is None else seeds)
        for row, recipe in _runnable(grid.rows)
        if not rows or row.label in rows
        for form in grid.forms
        if not protocols or grid.protocol_of(form) in protocols
    ]


def _runnable(rows: Sequence[Row]) -> Iterator[tuple[Row, Any]]:
    return ((row, row.recipe) for row in rows if row.recipe is not None)


def distinct(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials without those that are the same run under another label."""
    first: dict[str, Trial] = {}
    for trial in trials:
        first.setdefault(trial.name, trial)
    return list(first.values())


@dataclass(frozen=True)
class Results:
    """The results of a paper below a folder."""

    folder: Path
    paper: str

    @property
    def figures(self) -> Path:
        """Where figures are written."""
        return self.folder / self.paper / "figures"

    def path(self, trial: Trial) -> Path:
        """Return the file of a result."""
        return self.folder / self.paper / f"{trial.name}.json"

    def probe_path(self, trial: Trial, probe: Probe) -> Path:
        """Return the file of what a probe measured in a run."""
        return self.path(trial).with_suffix(f".{probe.name}.json")

    def running(self, trial: Trial) -> Path:
        """Return the run directory of a run that is under way."""
        return self.folder / RUNNING / f"{self.paper}-{trial.name.replace('/', '-')}"

    def read(self, trial: Trial) -> dict[str, Any] | None:
        """Return the result of a run; None if it was not run."""
        return read_json(self.path(trial))

    def measured(self, trial: Trial, probe: Probe) -> dict[str, Any] | None:
        """Return what a probe measured in a run; None if it did not."""
        return read_json(self.probe_path(trial, probe))

    @contextmanager
    def claimed(self, trial: Trial) -> Iterator[Path]:
        """Keep other processes off a run; yields its directory."""
        folder = self.running(trial)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f"{folder.name}.lock")
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CoterieError(f"Another process is running it in {folder}.") from None
            try:
                yield folder
            finally:
                lock.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a file that `write_json` wrote; None if it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CoterieError(f"{path} cannot be read, it may be damaged: {error}") from None


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON with a line for each key, whole or not at all; what is no number becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(_finite(value), ensure_ascii=False)}" for key, value in values.items()]
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
