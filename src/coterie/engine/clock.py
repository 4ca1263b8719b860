"""Where the seconds of a run go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass
class Clock:
    """Seconds spent, by what they were spent on."""

    spent: dict[str, float] = field(default_factory=lambda: {"compile": 0.0, "train": 0.0, "evaluate": 0.0})

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time inside; what is spent on compiling in there counts as compiling."""
        compiled = COMPILING.seconds
        start = time.perf_counter()
        yield
        elapsed = time.perf_counter() - start
        # Programs are compiled side by side, and each reports its own time.
        compiled = min(COMPILING.seconds - compiled, elapsed)
        self.spent["compile"] += compiled
        self.spent[what] += elapsed - compiled


class _Compiling:
    """Adds up the seconds that JAX spends on tracing and compiling, and counts compilations."""

    def __init__(self) -> None:
        self.seconds, self.programs = 0.0, 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self.seconds += duration_secs
            self.programs += event.endswith("backend_compile_duration")


COMPILING = _Compiling()
