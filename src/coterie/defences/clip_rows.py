"""Rows of bounded length: no client moves an item further than others may.

Each row of an item table that a client sends is shortened to `row_bound`, if it is longer; then rows are added up as
without a defence. The arrays of the rest are left as they are. A bound of 1 is that of the server in FedRecAttack's
code.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from pydantic import Field

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, RowUploads

info = DefenceInfo(name="clip_rows", summary="shortens each row of each client to a bound")


class Config(DefenceConfig):
    """The bound of FedRecAttack's code; PIECK has 0.5."""

    row_bound: float = Field(1.0, gt=0, description="longest row of an item table")


def init(config: Config, like: Message) -> Any:
    """Nothing is remembered."""
    return ()


def combine(config: Config, uploads: RowUploads, memory: Any) -> tuple[Message, Any]:
    """Add up rows of bounded length."""
    whole = jax.tree.map(lambda leaf: np.ones(len(leaf), np.float32), uploads.rest)
    shares = {name: defence.within(defence.norms(rows), config.row_bound) for name, rows in uploads.rows.items()}
    return defence.sums(uploads, whole._replace(**shares)), memory
