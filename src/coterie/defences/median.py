"""Median (Yin et al., ICML 2018): the number in the middle counts.

In every coordinate it is the median of what clients sent; of an even number of clients, the mean of the two in the
middle. One or two clients are not outvoted by anybody.
"""

from __future__ import annotations

from typing import Any

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, Floats, RowUploads

info = DefenceInfo(
    name="median",
    summary="takes the median of each coordinate",
    paper="Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates (ICML 2018)",
)


class Config(DefenceConfig):
    """There is nothing to set."""


def init(config: Config, like: Message) -> Any:
    """Nothing is remembered."""
    return ()


def combine(config: Config, uploads: RowUploads, memory: Any) -> tuple[Message, Any]:
    """Take the median of each row over its clients."""
    return defence.by_row(uploads, middle), memory


def middle(rows: Floats) -> Floats:
    """Median over axis 1."""
    numbers, clients = defence.in_order(rows), rows.shape[1]
    return numbers[..., (clients - 1) // 2 : clients // 2 + 1].mean(-1)
