"""The ledger: exact bytes up and down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.wire import codec


@dataclass
class Ledger:
    """Bytes of one message of each kind, and what has travelled so far.

    `bytes_per_answer` counts what every answer has; `bytes_if` adds, by flag, what only flagged ones have.
    """

    bytes_per_download: int
    bytes_per_upload: int
    bytes_per_answer: int = 0
    bytes_if: Mapping[str, int] = field(default_factory=dict)
    down: int = 0
    up: int = 0

    @classmethod
    def of(cls, download: Any, upload: Any, answer: Any, only_if: Sequence[tuple[str, str]]) -> Ledger:
        """Measure messages, or their shapes; `only_if` has pairs of a field of the answer and its flag."""
        bytes_if: dict[str, int] = {}
        for name, flag in only_if:
            bytes_if[flag] = bytes_if.get(flag, 0) + codec.size(getattr(answer, name))
        always = codec.size(answer) - sum(bytes_if.values())
        return cls(codec.size(download), codec.size(upload), always, bytes_if)

    def count(self, downloads: int, uploads: int, answers: int = 0, flags: Mapping[str, int] | None = None) -> None:
        """Add the messages of a step: who drops out or has no data downloads but never uploads."""
        self.down += downloads * self.bytes_per_download + answers * self.bytes_per_answer
        self.down += sum(number * self.bytes_if[flag] for flag, number in (flags or {}).items())
        self.up += uploads * self.bytes_per_upload
