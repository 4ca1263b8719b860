"""Papers to be reproduced: one declarative file each. To add one: write the file, add its name here."""

from __future__ import annotations

import importlib

from coterie.errors import unknown
from coterie.papers.declare import Paper

NAMES = ("cofedrec", "cl4fedrec", "freib", "rqfedrec")


def names() -> tuple[str, ...]:
    """Return the names of the papers that can be reproduced."""
    return NAMES


def get(name: str) -> Paper:
    """Return a paper by name."""
    if name not in NAMES:
        raise unknown("paper", name, NAMES)
    return importlib.import_module(f"coterie.papers.{name}").paper
