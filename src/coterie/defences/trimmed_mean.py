"""Trimmed mean (Yin et al., ICML 2018): the largest and the smallest numbers do not count.

In every coordinate the `trim` largest and the `trim` smallest of what clients sent are dropped, and the rest is
averaged. Where no more than twice as many clients sent a row, it is the plain mean.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, Floats, RowUploads

info = DefenceInfo(
    name="trimmed_mean",
    summary="drops the largest and smallest numbers of each coordinate",
    paper="Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates (ICML 2018)",
)


class Config(DefenceConfig):
    """One on either side, as in CL4FedRec."""

    trim: int = Field(1, ge=0, description="numbers dropped on either side")


def init(config: Config, like: Message) -> Any:
    """Nothing is remembered."""
    return ()


def combine(config: Config, uploads: RowUploads, memory: Any) -> tuple[Message, Any]:
    """Average each row over its clients without the outermost."""
    return defence.by_row(uploads, lambda rows: trimmed(rows, config.trim)), memory


def trimmed(rows: Floats, trim: int) -> Floats:
    """Trimmed mean over axis 1."""
    if rows.shape[1] <= 2 * trim:
        return rows.mean(1)
    return defence.in_order(rows)[..., trim : rows.shape[1] - trim].mean(-1)
