"""One file per defence. To add one: write the file, add its name here."""

from __future__ import annotations

import importlib

from coterie.defence import Defence
from coterie.errors import unknown

NAMES = ("krum", "krum_classic", "median", "trimmed_mean", "hics", "clip_rows", "clip_updates")


def names() -> tuple[str, ...]:
    """Return the names of the defences."""
    return NAMES


def get(name: str) -> Defence:
    """Return a defence by name."""
    if name not in NAMES:
        raise unknown("defence", name, NAMES)
    return Defence.from_module(importlib.import_module(f"coterie.defences.{name}"))
