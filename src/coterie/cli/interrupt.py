"""What is said when a run is stopped by Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INTERRUPTED = 130
"""The exit code of a process that Ctrl-C ended."""


class Interrupted(Exception):
    """Ctrl-C; the message says what is left and how to go on."""


@contextmanager
def interruptible(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C inside into a sentence about the run directory."""
    from coterie.experiment.run import CHECKPOINT, CONFIG

    try:
        yield
    except KeyboardInterrupt:
        if (folder / CHECKPOINT).exists():
            sentence = f"Interrupted; the checkpoint is kept, go on with: coterie resume {folder}"
        elif (folder / CONFIG).exists():
            sentence = f"Interrupted before the first checkpoint; start again with: coterie resume {folder}"
        else:
            sentence = "Interrupted; nothing was written."
        raise Interrupted(sentence) from None
