"""Who takes part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie.algorithm import Settings
from coterie.engine.keys import host

Clients = NDArray[np.int64]


class Participation(Settings):
    """`all` clients, a random `fraction` of them, or successive `batches`: a round is then a global epoch."""

    participation: Literal["all", "fraction", "batches"] = "all"
    fraction: float = Field(1.0, gt=0, le=1, description="share of the clients, with participation=fraction")
    clients_per_step: int = Field(256, ge=1, description="clients per server step, with participation=batches")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the chosen clients that never report back")


@dataclass(frozen=True)
class Step:
    """The clients chosen for one server step, and those of them that report back."""

    chosen: Clients
    arrived: Clients


def steps(settings: Participation, seed: int, number: int, n_clients: int) -> list[Step]:
    """Return the server steps of a round; they depend on the seed and the round alone."""
    draw = host(seed, "participation", number)
    if settings.participation == "all":
        cohorts = [np.arange(n_clients)]
    elif settings.participation == "fraction":
        count = max(1, round(settings.fraction * n_clients))
        cohorts = [np.sort(draw.permutation(n_clients)[:count])]
    else:
        order = draw.permutation(n_clients)
        size = settings.clients_per_step
        cohorts = [np.sort(order[start : start + size]) for start in range(0, n_clients, size)]
    stays = host(seed, "dropout", number).random(n_clients) >= settings.dropout
    return [Step(cohort, cohort[stays[cohort]]) for cohort in cohorts]


def expected(settings: Participation, n_clients: int) -> int:
    """Return about how many clients a server step has."""
    if settings.participation == "batches":
        return min(settings.clients_per_step, n_clients)
    return max(1, round(n_clients * (settings.fraction if settings.participation == "fraction" else 1)))
