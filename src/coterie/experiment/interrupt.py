"""Ctrl-C waits for a round to end."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType


class Interrupt:
    """Holds Ctrl-C back, so that a round ends before the run does; the second one is not held back."""

    def __init__(self, listens: bool) -> None:
        # Python hears signals in the main thread only.
        self._listens = listens and threading.current_thread() is threading.main_thread()
        self.asked = False

    def __enter__(self) -> Interrupt:
        if self._listens:
            self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("Stopping after this round; Ctrl-C again stops at once.", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, self._before)
