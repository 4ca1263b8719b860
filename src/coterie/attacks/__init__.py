"""One file per attack. To add one: write the file, add its name here."""

from __future__ import annotations

import importlib

from coterie.attack import Attack
from coterie.errors import unknown

NAMES = (
    "a_ra", "a_hum", "psmu", "eb", "random", "popular", "bandwagon",
    "label_flip", "sign_flip", "gaussian_noise",
)  # fmt: skip


def names() -> tuple[str, ...]:
    """Return the names of the attacks."""
    return NAMES


def get(name: str) -> Attack:
    """Return an attack by name."""
    if name not in NAMES:
        raise unknown("attack", name, NAMES)
    return Attack.from_module(importlib.import_module(f"coterie.attacks.{name}"))
