"""What a run is exposed to and protected by: an attack, a defence, the regulariser, and what the server accepts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie.algorithm import Algorithm, Settings
from coterie.engine.attackers import Threat
from coterie.engine.federation import Guard
from coterie.engine.keys import host
from coterie.errors import CoterieError
from coterie.evaluation.problem import Problem
from coterie.regulariser import Popularity

CONTROLS = 5
"""Items of equal popularity whose exposure is measured beside that of the targets."""


class RobustnessOptions(Settings):
    """Which attack and which defence, and how much of them."""

    attack: str = Field("none", description="what malicious clients send")
    malicious: float = Field(0.001, gt=0, le=1, description="malicious clients that are added, per honest client")
    target: str = Field(
        "least-popular", description="what is promoted: least-popular, popularity:LOW-HIGH (quantiles), or item ids"
    )
    defence: str = Field("none", description="how the server combines uploads that it does not trust")
    upload_bound: float | None = Field(None, gt=0, description="longest upload that the server takes")
    secure_sums: bool = Field(False, description="the server may see sums of uploads only")


@dataclass(frozen=True)
class Robustness:
    """The same, ready for use."""

    threat: Threat | None = None
    guard: Guard | None = None
    popularity: Popularity = field(default_factory=Popularity)
    bound: float | None = None
    secure_sums: bool = False

    def check(self, algorithm: Algorithm, problem: Problem) -> None:
        """Refuse combinations that make no sense."""
        name, sees = algorithm.info.name, algorithm.info.server_sees
        if (self.threat or self.guard) and (algorithm.central or algorithm.info.upload == "other"):
            raise CoterieError(
                f"Attacks and defences are about changes or gradients that clients upload, and {name} has none; "
                "choose another algorithm."
            )
        if self.threat and problem.protocol.task != "ranking":
            raise CoterieError(
                f"Attacks promote items in rankings, and protocol {problem.protocol.name} has ratings; choose another."
            )
        if self.secure_sums and (self.guard or sees == "updates"):
            who = f"defence {self.guard.defence.info.name}" if self.guard else name
            raise CoterieError(
                f"secure_sums lets the server see sums of uploads only, and {who} must see single ones; drop either."
            )


def targets_of(spec: str, problem: Problem) -> NDArray[np.int64]:
    """Return the items that are meant; popularity is counted over all data, the lower number first among equals."""
    counts = np.bincount(problem.data.items, minlength=problem.data.n_items)
    order = np.argsort(counts, kind="stable")
    if spec == "least-popular":
        return order[:1]
    if spec.startswith("popularity:"):
        low, high = _band(spec)
        first, last = int(low * len(order)), int(np.ceil(high * len(order)))
        return host(problem.seed, "target").choice(order[first : max(last, first + 1)], 1)
    return np.array([problem.data.item_number(name.strip()) for name in spec.split(",")])


def _band(spec: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in spec.removeprefix("popularity:").split("-"))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low < high <= 1:
        raise CoterieError(f"The target '{spec}' is no band of popularity; write popularity:0.4-0.6, say.")
    return low, high


def controls_of(targets: NDArray[np.int64], problem: Problem) -> NDArray[np.int64]:
    """Return untouched items that are about as popular as the targets."""
    counts = np.bincount(problem.data.items, minlength=problem.data.n_items)
    distance = np.abs(counts - counts[targets].mean())
    distance[targets] = np.inf
    return np.argsort(distance, kind="stable")[: min(CONTROLS, len(counts) - len(targets))]
