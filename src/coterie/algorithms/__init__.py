"""One file per algorithm. To add one: write the file, add its name here."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import create_model

from coterie.algorithm import Algorithm
from coterie.errors import CoterieError, unknown

NAMES = (
    "popularity", "local", "fedmf", "fedncf", "pfedrec", "gpfedrec", "fedrap", "cofedrec", "fedcia", "rqfedrec",
    "freib", "fedprox", "fedproto", "fedsgd", "simgcl", "union", "cl4fedrec", "rcl4fedrec", "mf", "ncf",
)  # fmt: skip

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"rcl4fedrec": ("cl4fedrec", {"regulariser": "popularity"})}
"""Names under which an algorithm has other defaults."""


def names() -> tuple[str, ...]:
    """Return the names of the algorithms that come with the package."""
    return NAMES


def get(name: str) -> Algorithm:
    """Return an algorithm by name, or out of a file of one's own by path (`./mine.py`)."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name not in NAMES:
        raise unknown("algorithm", name, NAMES)
    base, defaults = VARIANTS.get(name, (name, {}))
    algorithm = Algorithm.from_module(importlib.import_module(f"coterie.algorithms.{base}"))
    return algorithm if base == name else _variant(algorithm, name, defaults)


def _variant(algorithm: Algorithm, name: str, defaults: dict[str, Any]) -> Algorithm:
    changed = ", ".join(f"{key}={value}" for key, value in defaults.items())
    info = replace(algorithm.info, name=name, summary=f"{algorithm.info.name} with {changed}")
    fields: dict[str, Any] = {
        key: (algorithm.Config.model_fields[key].annotation, value) for key, value in defaults.items()
    }
    return replace(algorithm, info=info, Config=create_model("Config", __base__=algorithm.Config, **fields))


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
