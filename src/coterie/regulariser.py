"""The popularity regulariser (rCL4FedRec, eq. 14): the server keeps popular and other items apart.

At the end of a round the server takes a few steps on its item table against

    mean over hot items i of log sum_j exp(cos(v_i, v_j) / t),   j over a random part of all other items,

so that an item cannot be made popular by moving it among the popular ones. It needs the item table and public
popularity, no single uploads, and works with every algorithm that has an item table.

Not said in the paper, and chosen here: the share of other items, drawn anew for every step; five steps of an Adam of
its own; a mean over the hot items where the paper prints a sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Settings


class Popularity(Settings):
    """Settings of the regulariser; the number of hot items is that of the paper's figure 2."""

    hot_items: int = Field(default=100, ge=1, description="most popular items that are kept apart from others")
    normal_share: float = Field(
        default=0.1, gt=0, le=1, description="share of the other items in a step, at least 100 items"
    )
    regulariser_temperature: float = Field(default=0.2, gt=0)
    regulariser_steps: int = Field(default=5, ge=1, description="steps at the end of a round")
    regulariser_lr: float = Field(default=0.001, gt=0)


class Sides(NamedTuple):
    """Numbers of the hot items and of all others."""

    hot: Array
    normal: Array

    @classmethod
    def of(cls, config: Popularity, popularity: Array) -> Sides:
        """Split the items by popularity; equal ones in order of number. Half of a small catalogue is hot at most."""
        order = jnp.argsort(-popularity, stable=True)
        hot = min(config.hot_items, len(popularity) // 2)
        return cls(order[:hot], order[hot:])


def init(config: Popularity, table: Array) -> Any:
    """Return the moments of its optimiser."""
    return optax.adam(config.regulariser_lr).init(table)


def closeness(table: Array, hot: Array, others: Array, temperature: float) -> Array:
    """Equation 14 without its constant, averaged over the hot items."""
    length = lambda rows: jnp.sqrt(jnp.maximum(jnp.sum(rows**2, 1, keepdims=True), 1e-12))  # noqa: E731
    unit = lambda rows: rows / length(rows)  # noqa: E731
    cosines = unit(table[hot]) @ unit(table[others]).T
    return jnp.mean(jax.nn.logsumexp(cosines / temperature, axis=1))


def apply(key: Array, config: Popularity, table: Array, sides: Sides, moments: Any) -> tuple[Array, Any]:
    """Take the steps of one round."""
    optimiser, normal = optax.adam(config.regulariser_lr), sides.normal
    count = min(len(normal), max(100, round(config.normal_share * len(normal))))

    def step(i: Array, state: tuple[Array, Any]) -> tuple[Array, Any]:
        table, moments = state
        others = normal[nn.permutation(jax.random.fold_in(key, i), len(normal))[:count]]
        slope = jax.grad(closeness)(table, sides.hot, others, config.regulariser_temperature)
        change, moments = optimiser.update(slope, moments)
        return optax.apply_updates(table, change), moments

    return jax.lax.fori_loop(0, config.regulariser_steps, step, (table, moments))
