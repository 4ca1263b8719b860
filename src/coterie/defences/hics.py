"""HiCS (Yuan et al., SIGIR 2023): rows are clipped twice, and applied only now and then.

A reconstruction from the paper's description; there is no public code.

1. Each row that a client sends is shortened to a bound, then rows are added up. The sums go into the server's memory
   instead of the model.
2. In each step the `hics_share` of the rows of a table that have gathered most (or some at random) leave the memory.
   They are shortened to the median of their lengths, and applied. The others wait.

Chosen here: the first bound follows the median length of all rows that arrive, as an exponential average over the
steps; rows of zeros do not count in it. Each array of the rest is clipped in the same way, to a bound of its own, and
applied at once. Under `per_item_mean` a row that has waited is divided by the clients of the step that applies it.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, Floats, RowUploads

info = DefenceInfo(
    name="hics",
    summary="clips rows, gathers them, and applies a few in each step",
    paper="Manipulating Federated Recommender Systems: Poisoning with Synthetic Users and Its Countermeasures "
    "(SIGIR 2023)",
    reconstruction=True,
)


class Config(DefenceConfig):
    """None of them is known from the paper's authors."""

    hics_share: float = Field(0.1, gt=0, le=1, description="rows of a table that are applied in a step")
    hics_choice: Literal["largest", "random"] = Field("largest", description="which of the rows that wait are applied")
    hics_rate: float = Field(0.1, gt=0, le=1, description="weight of a new step in the bound of single rows")


class Memory(NamedTuple):
    """Rows that wait, the bound of each array (0: nothing has arrived yet), and the number of steps.

    `waiting` is as large as a message; its arrays that are no item tables stay zero.
    """

    waiting: Message
    bounds: Message
    steps: NDArray[np.int32]


def init(config: Config, like: Message) -> Memory:
    """Nothing waits."""
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), like)
    return Memory(zeros, jax.tree.map(lambda leaf: np.zeros((), np.float32), like), np.zeros((), np.int32))


def combine(config: Config, uploads: RowUploads, memory: Memory) -> tuple[Message, Memory]:
    """Add what has arrived to the rows that wait, and let some of them go."""
    memory = jax.tree.map(np.asarray, memory)
    lengths = defence.lengths(uploads)
    bounds = jax.tree.map(partial(followed, config.hics_rate), memory.bounds, lengths)
    total = defence.sums(uploads, jax.tree.map(defence.within, lengths, bounds))
    applied, kept = {}, {}
    for name in uploads.rows:
        waiting = getattr(memory.waiting, name) + getattr(total, name)
        applied[name], kept[name] = parted(waiting, leaving(config, waiting, int(memory.steps)))
    waiting = memory.waiting._replace(**kept)
    return total._replace(**applied), Memory(waiting, bounds, np.asarray(memory.steps + 1, np.int32))


def followed(rate: float, bound: Floats, lengths: Floats) -> Floats:
    """Move a bound towards the median length; the first median is taken as it is."""
    lengths = lengths[lengths > 0]
    if not len(lengths):
        return bound
    median = np.median(lengths)
    return np.asarray(bound + rate * (median - bound) if bound > 0 else median, np.float32)


def leaving(config: Config, waiting: Floats, step: int) -> NDArray[np.int64]:
    """Return the rows that are applied now."""
    lengths = defence.norms(waiting)
    count = int(np.ceil(config.hics_share * len(waiting)))
    if config.hics_choice == "random":
        return np.random.default_rng(step).permutation(np.flatnonzero(lengths))[:count]
    order = np.argsort(-lengths, kind="stable")[:count]
    return order[lengths[order] > 0]


def parted(waiting: Floats, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the chosen rows, no longer than their median, and those that go on waiting; zeros elsewhere."""
    applied, kept = np.zeros_like(waiting), waiting.copy()
    kept[chosen] = 0
    if len(chosen):
        lengths = defence.norms(waiting[chosen])
        shares = defence.within(lengths, float(np.median(lengths)))
        applied[chosen] = waiting[chosen] * defence.over(shares, waiting)
    return applied, kept
