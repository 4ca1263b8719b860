"""The ledger: exact bytes up and down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.wire import codec


@dataclass
class Ledger:
    """Bytes of one message of each kind, and what has travelled so far.

    `bytes_per_answer` counts what every answer has; `bytes_if` adds, by flag, what only flagged ones have. `down` and
    `up` count whole messages, as papers do; `needed_down` and `needed_up` leave out what the receiver has already, or
    has no use for. `fields` has the bytes of each field of a download and of an upload.
    """

    bytes_per_download: int
    bytes_per_upload: int
    bytes_per_answer: int = 0
    bytes_if: Mapping[str, int] = field(default_factory=dict)
    down: int = 0
    up: int = 0
    needed_down: int = 0
    needed_up: int = 0
    fields: Sequence[Mapping[str, int]] = ({}, {})

    @classmethod
    def of(cls, download: Any, upload: Any, answer: Any, only_if: Sequence[tuple[str, str]]) -> Ledger:
        """Measure messages, or their shapes; `only_if` has pairs of a field of the answer and its flag."""
        bytes_if: dict[str, int] = {}
        for name, flag in only_if:
            bytes_if[flag] = bytes_if.get(flag, 0) + codec.size(getattr(answer, name))
        always = codec.size(answer) - sum(bytes_if.values())
        fields = [{name: codec.size(getattr(part, name)) for name in _names(part)} for part in (download, upload)]
        return cls(codec.size(download), codec.size(upload), always, bytes_if, fields=fields)

    def count(
        self,
        downloads: int,
        uploads: int,
        answers: int = 0,
        flags: Mapping[str, int] | None = None,
        news: tuple[Mapping[str, Any], Mapping[str, bool]] = ({}, {}),
    ) -> None:
        """Add the messages of a step: who drops out or has no data downloads but never uploads.

        `news` says, by field, which downloads and whether uploads need to have it; fields not named are always needed.
        """
        down = downloads * self.bytes_per_download + answers * self.bytes_per_answer
        down += sum(number * self.bytes_if[flag] for flag, number in (flags or {}).items())
        up = uploads * self.bytes_per_upload
        of_download, of_upload = self.fields
        self.down, self.up = self.down + down, self.up + up
        self.needed_down += down - sum(of_download[name] * int((~here).sum()) for name, here in news[0].items())
        self.needed_up += up - sum(of_upload[name] * uploads for name, here in news[1].items() if not here)


def _names(message: Any) -> Sequence[str]:
    return getattr(message, "_fields", ())
