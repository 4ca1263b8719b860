"""Krum, row by row (as in CL4FedRec): one client's row stands for all that were sent.

Of the rows that clients sent for an item, the one closest to the mean of the others counts. That is the one closest to
the mean of all, because a row is n / (n - 1) times as far from the first as from the second. The arrays of the rest are
treated alike, each as one long vector.

A single row is kept: this is why items that few clients touch stay vulnerable. Two rows are equally close, so their
mean counts, lest the order of the clients decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, Floats, RowUploads

info = DefenceInfo(
    name="krum",
    summary="keeps, for each item, the row closest to the mean",
    paper="Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent (NeurIPS 2017)",
)


class Config(DefenceConfig):
    """There is nothing to set."""


def init(config: Config, like: Message) -> Any:
    """Nothing is remembered."""
    return ()


def combine(config: Config, uploads: RowUploads, memory: Any) -> tuple[Message, Any]:
    """Take one client's row for each item."""
    return defence.by_row(uploads, closest), memory


def closest(rows: Floats) -> Floats:
    """Return the row closest to the mean over axis 1."""
    mean = rows.mean(1)
    if rows.shape[1] <= 2:
        return mean
    vectors = rows.reshape(*rows.shape[:2], -1)
    away = vectors - mean.reshape(len(rows), 1, -1)
    return rows[np.arange(len(rows)), np.einsum("icd,icd->ic", away, away).argmin(1)]
