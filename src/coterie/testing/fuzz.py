"""An attack that sends what no server should use: wrong shapes and types, numbers that are none, rows out of range.

Each malicious client sends one kind, by its number; what they have in common is that every one must be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Scene, upload_fields
from coterie.engine.intake import Rows

info = AttackInfo(name="fuzz", summary="uploads that must be refused", targeted=False, compiled=False)

Config = AttackConfig


class Empty(NamedTuple):
    """A message without anything."""


def _filled(value: float) -> Callable[[Message, str], Any]:
    return lambda upload, table: jax.tree.map(lambda leaf: np.full(leaf.shape, value, leaf.dtype), upload)


def _one(value: float) -> Callable[[Message, str], Any]:
    """Put one bad number into an upload that is fine otherwise."""

    def spoil(upload: Message, table: str) -> Any:
        rows = np.array(getattr(upload, table))
        rows[-1, -1] = value
        return upload._replace(**{table: rows})

    return spoil


def _table(change: Callable[[np.ndarray], Any]) -> Callable[[Message, str], Any]:
    return lambda upload, table: upload._replace(**{table: change(np.array(getattr(upload, table)))})


def _rows(ids: list[int], width: int = 0) -> Callable[[np.ndarray], Any]:
    return lambda rows: Rows(np.array(ids), np.ones((len(ids), rows.shape[1] + width), np.float32))


KINDS: dict[str, Callable[[Message, str], Any]] = {
    "not a number": _one(np.nan),
    "infinite": _one(np.inf),
    "minus infinite": _one(-np.inf),
    "too large": _filled(1e30),
    "a row too many": _table(lambda rows: np.concatenate([rows, rows[:1]])),
    "transposed": _table(np.transpose),
    "another type": _table(lambda rows: rows.astype(np.float64)),
    "text": _table(lambda rows: np.full(rows.shape, "1")),
    "nothing": lambda upload, table: Empty(),
    "no message": lambda upload, table: None,
    "a table without rows": _table(lambda rows: rows[:0]),
    "row beyond the last": _table(lambda rows: _rows([0, len(rows)])(rows)),
    "negative row": _table(_rows([-1])),
    "the same row twice": _table(_rows([1, 1])),
    "rows too wide": _table(_rows([0], width=1)),
    "numbers of rows that are no integers": _table(lambda rows: Rows(np.array([0.5]), rows[:1])),
}


def init(key: Array, config: AttackConfig, scene: Scene) -> Any:
    """Nothing is remembered."""
    return ()


def craft(key: Array, config: AttackConfig, scene: Scene, download: Message, memory: Any) -> tuple[Any, Any]:
    """Send some kind, drawn at random."""
    upload = jax.tree.map(jnp.zeros_like, upload_fields(scene, download)(download))
    kind = int(jax.random.randint(key, (), 0, len(KINDS)))
    return list(KINDS.values())[kind](upload, scene.algorithm.info.item_tables[0]), memory
