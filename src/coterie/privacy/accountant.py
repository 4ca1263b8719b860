"""The budget of a run: what noise on clipped uploads promises, per round and in total.

Whatever a client's data are, its upload is no longer than `clip` before noise, so replacing the data moves it by no
more than 2 * clip. That holds for any private state and any download, so rounds compose, each having seen the ones
before.

  laplace    of scale b: epsilon is 2 * clip / b a round, and epsilons add up; delta is 0
  gaussian   of standard deviation s: k rounds are one with s / sqrt(k), whose epsilon at delta is known exactly
             (Balle and Wang, 2018); computed by dp-accounting

A client takes part at most once a round, and is taken to do so in every one: nobody is protected more by being left
out at random, because the server sees single uploads, or may. All `rounds` are counted, also those that patience
saves. The unit `client` is all data of a client that has some; `interaction` is one record of one client, which can
move an upload no further than all of them, so that it has the same budget.

The promise is about uploads and what is made of them. It does not cover public facts (the popularity of items, rating
levels), nor the metrics that a simulation measures with data in hand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from coterie.errors import CoterieError
from coterie.privacy.mechanisms import Privacy

NO_BOUND = "no guarantee: nothing bounds what one client uploads"
UNITS = {"client": "all data of one client", "interaction": "one interaction of one client"}


class Budget(NamedTuple):
    """Epsilon of one round and of all, both at the same delta."""

    epsilon_per_round: float
    epsilon: float
    delta: float


def budget(privacy: Privacy, rounds: int) -> Budget | None:
    """Return the budget of so many rounds; none without noise, or where nothing bounds an upload."""
    if not privacy.noised or privacy.clip is None:
        return None
    assert privacy.noise_scale is not None
    ratio = privacy.noise_scale / (2 * privacy.clip)
    if privacy.noise == "laplace":
        return Budget(1 / ratio, rounds / ratio, 0.0)
    each, total = (_gaussian(ratio / math.sqrt(count), privacy.delta) for count in (1, rounds))
    return Budget(each, total, privacy.delta)


def _gaussian(ratio: float, delta: float) -> float:
    """Return the epsilon of Gaussian noise whose deviation is `ratio` times what replacing the data can move."""
    try:
        from dp_accounting import get_epsilon_gaussian
    except ImportError:
        raise CoterieError(
            "The budget of Gaussian noise needs dp-accounting; install it with: pip install 'coterie[privacy]'"
        ) from None
    return float(get_epsilon_gaussian(ratio, delta))


def report(privacy: Privacy, rounds: int) -> dict[str, Any]:
    """Return what is said of a run's privacy; an epsilon only where there is one."""
    if not privacy.noised:
        return {"mechanism": "none"}
    said = {"mechanism": privacy.noise, "scale": privacy.noise_scale, "clip": privacy.clip}
    spent = budget(privacy, rounds)
    if spent is None:
        return said | {"guarantee": NO_BOUND}
    return said | {
        "unit": privacy.privacy_unit,
        "rounds": rounds,
        **spent._asdict(),
        "guarantee": f"uploads are differentially private when {UNITS[privacy.privacy_unit]} may be replaced",
    }
