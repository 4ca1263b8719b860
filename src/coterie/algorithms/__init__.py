"""One file per algorithm. To add one: write the file, add its name here."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from coterie.algorithm import Algorithm
from coterie.errors import CoterieError, unknown

NAMES = ("popularity", "local", "fedmf", "fedncf", "pfedrec", "gpfedrec", "fedrap", "cofedrec", "mf", "ncf")


def names() -> tuple[str, ...]:
    """Return the names of the algorithms that come with the package."""
    return NAMES


def get(name: str) -> Algorithm:
    """Return an algorithm by name, or out of a file of one's own by path (`./mine.py`)."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name not in NAMES:
        raise unknown("algorithm", name, NAMES)
    return Algorithm.from_module(importlib.import_module(f"coterie.algorithms.{name}"))


def _from_file(path: Path) -> Algorithm:
    if not path.is_file():
        raise CoterieError(f"There is no file {path}; `coterie new NAME` writes an algorithm to start from.")
    name = f"coterie_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CoterieError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return Algorithm.from_module(module)
