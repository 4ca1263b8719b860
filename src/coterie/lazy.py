"""SGD with momentum on the rows of a table, where a step costs its rows and not the table.

With momentum and weight decay a row moves in every step, also in one whose batch does not hold it:

  velocity <- momentum * velocity + gradient + decay * (value - centre)
  value    <- value - lr * velocity

Without a gradient this is a linear map of (value - centre, velocity), so a row that was left alone for k steps is
brought up to date by the k-th power of one 2 x 2 matrix when it is next needed. Nothing is approximated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray


class Rule(NamedTuple):
    """What moves a parameter: `decay` pulls it towards `pull` times its first value (0: towards zero)."""

    lr: float
    momentum: float
    decay: float
    pull: float = 0.0

    @classmethod
    def of(cls, lr: float, momentum: float, weight_decay: float, proximal: float = 0.0) -> Rule:
        """Return the rule for the penalties weight_decay/2 |value|^2 and proximal/2 |value - start|^2."""
        decay = weight_decay + proximal
        return cls(lr, momentum, decay, proximal / decay if decay else 0.0)

    def step(self, value: Array, velocity: Array, gradient: Array, start: Array) -> tuple[Array, Array]:
        """Return value and velocity after one step."""
        velocity = self.momentum * velocity + gradient + self.decay * (value - self.pull * start)
        return value - self.lr * velocity, velocity

    def powers(self, most: int) -> NDArray[np.float32]:
        """Return, for k = 0 … `most`, what k steps without a gradient add to (value - centre, velocity).

        Each power is kept less the identity: a row hardly moves, and next to 1 its motion would drown in rounding.
        """
        one = np.array([[1 - self.lr * self.decay, -self.lr * self.momentum], [self.decay, self.momentum]])
        powers = np.eye(2)[None]
        while len(powers) <= most:  # A^0 … A^(n-1) give A^n … A^(2n-1)
            powers = np.concatenate([powers, one @ powers[-1] @ powers])
        return (powers[: most + 1] - np.eye(2)).astype(np.float32)


def descend(rule: Rule, params: Any, velocities: Any, gradients: Any, start: Any) -> tuple[Any, Any]:
    """Take a step on parameters that have no rows; `start` is what they were before the first one."""
    moved = jax.tree.map(rule.step, params, velocities, gradients, start)
    return jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0)), moved)


class Rows(NamedTuple):
    """A table in training: `state[i]` holds the value and the velocity of row i as they were after `seen[i]` steps."""

    state: Array
    seen: Array


class Table(NamedTuple):
    """A table before training, what moves its rows, and the powers of that rule."""

    start: Array
    rule: Rule
    powers: Array

    def rows(self) -> Rows:
        """Return the rows at rest."""
        return Rows(jnp.stack([self.start, jnp.zeros_like(self.start)], 1), jnp.zeros(len(self.start), jnp.int32))

    def fetch(self, rows: Rows, ids: Array, steps: Array) -> Array:
        """Return value and velocity of the rows `ids` as they are after `steps`."""
        return self._advanced(rows.state[ids], steps - rows.seen[ids], self.start[ids] if self.rule.pull else None)

    def push(self, rows: Rows, ids: Array, fetched: Array, gradients: Array, real: Array, steps: Array) -> Rows:
        """Take one more step, with the gradients of a batch, on the rows `ids` that `fetch` returned.

        A row that a batch holds several times moves once, by the sum; what is not `real` is written nowhere.
        """
        same = ((ids[:, None] == ids[None, :]) & real[None, :]).astype(gradients.dtype)
        moved = self.rule.step(fetched[:, 0], fetched[:, 1], same @ gradients, self.start[ids])
        where = jnp.where(real, ids, len(rows.seen))
        state = rows.state.at[where].set(jnp.stack(moved, 1), mode="drop")
        return Rows(state, rows.seen.at[where].set(steps + 1, mode="drop"))

    def settled(self, rows: Rows, steps: Array) -> Array:
        """Return the whole table after `steps`."""
        return self._advanced(rows.state, steps - rows.seen, self.start if self.rule.pull else None)[:, 0]

    def _advanced(self, state: Array, gap: Array, start: Array | None) -> Array:
        """Return rows after `gap` steps without a gradient."""
        apart = state if start is None else state.at[:, 0].add(-self.rule.pull * start)
        return state + jnp.einsum("nij,njd->nid", self.powers[gap], apart)
