"""What a run carries from round to round, and what it says of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.algorithm import Message
from coterie.engine.evaluate import Answers


class Beside(NamedTuple):
    """What is kept beside the algorithm's own state: moments of the server's optimiser and of the regulariser, the
    memory of the defence, the memories of malicious clients.
    """

    moments: Any = ()
    regulariser: Any = ()
    defence: Any = ()
    attackers: Any = ()


@dataclass
class State:
    """The server's state, the private states by bucket, what is kept beside them."""

    server: Message
    stores: list[Message]
    round: int = 0
    beside: Beside = field(default_factory=Beside)


@dataclass
class Record:
    """One line of `metrics.jsonl`: a round, its loss, what evaluation found, its cost.

    `exposure` is that of the targets of an attack. `refused` says whose upload was dropped, and why.
    """

    round: int
    clients: int
    metrics: dict[str, float]
    validation: dict[str, float] | None
    test: dict[str, float] | None
    seconds: dict[str, float]
    bytes: dict[str, int]
    exposure: dict[str, float] | None = None
    refused: list[str] = field(default_factory=list)


@dataclass
class Best:
    """The round that validation chose; `state` is enough to answer as the clients did in that round."""

    value: float
    record: Record
    state: State
    answers: Answers
