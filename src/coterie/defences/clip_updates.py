"""Uploads of bounded length: no client moves the model further than others may.

Each client's upload, all its arrays together as one long vector, is shortened to `update_bound`, if it is longer; then
uploads are added up as without a defence. A bound of 0.1 is that of UNION's experiments.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from pydantic import Field

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, Floats, RowUploads

info = DefenceInfo(name="clip_updates", summary="shortens each client's whole upload to a bound")


class Config(DefenceConfig):
    """The bound of UNION."""

    update_bound: float = Field(0.1, gt=0, description="longest upload")


def init(config: Config, like: Message) -> Any:
    """Nothing is remembered."""
    return ()


def combine(config: Config, uploads: RowUploads, memory: Any) -> tuple[Message, Any]:
    """Add up uploads of bounded length."""
    share = defence.within(sizes(uploads), config.update_bound)
    shares = uploads.message(dict.fromkeys(uploads.rows, share[uploads.sender]), lambda leaf: share)
    return defence.sums(uploads, shares), memory


def sizes(uploads: RowUploads) -> Floats:
    """Return the Euclidean length of each client's upload."""
    squares = np.zeros(uploads.clients)
    for rows in uploads.rows.values():
        squares += np.bincount(uploads.sender, defence.norms(rows) ** 2, uploads.clients)
    for leaf in jax.tree.leaves(uploads.rest):
        squares += defence.norms(leaf) ** 2
    return np.sqrt(squares).astype(np.float32)
