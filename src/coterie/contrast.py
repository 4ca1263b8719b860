"""The supervised contrastive term on all pairs of items, as CoFedRec has it (eq. 8), with a gradient of its own.

The term costs n_items^2 exponentials a step, so the gradient is worked out with the value and shares them. What items
of one category have in common goes through sums of categories, in linear time.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

BASE_TEMPERATURE = 0.5

BLOCK = 280
"""Items in a block of pairs: larger ones leave the processor's cache."""

FEW = 4
"""Blocks that a small set of items is cut into, as far as they keep 100 items: fewer compute more pairs twice."""


class Peers(NamedTuple):
    """Unit vectors, their lengths, the sum over the other items of the category, and how many those are."""

    unit: Array
    length: Array
    total: Array
    others: Array

    @classmethod
    def of(cls, items: Array, labels: Array, clusters: int) -> Peers:
        """Sum up categories, in time linear in the number of items."""
        length = jnp.maximum(jnp.linalg.norm(items, axis=1, keepdims=True), 1e-12)
        unit = items / length
        sums = jnp.zeros((clusters, items.shape[1])).at[labels].add(unit)
        sizes = jnp.zeros(clusters).at[labels].add(1)
        return cls(unit, length, sums[labels] - unit, sizes[labels] - 1)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def contrast(items: Array, labels: Array, clusters: int, temperature: float) -> Array:
    """The contrastive term as the published code has it.

    With unit vectors x and s_ij = x_i . x_j / t, the mean over items of `log sum_{j != i} exp s_ij - mean_z s_iz`, z
    over the other items of the category, times t / 0.5; an item alone in its category adds nothing.
    """
    return _contrast(items, labels, clusters, temperature)[0]


def _contrast(items: Array, labels: Array, clusters: int, temperature: float) -> tuple[Array, Array]:
    """Return the term and its gradient, which share their costly part, exp s."""
    unit, length, total, others = Peers.of(items, labels, clusters)
    n, alone, peers = len(items), others == 0, jnp.maximum(others, 1)
    mass, push = _pushes(unit, alone, temperature)
    pulls = jnp.sum(unit * total, 1) / peers / temperature
    each = jnp.where(alone, 0, jnp.log(mass) + 1 / temperature - pulls)
    pull = jnp.where(alone, 0, 2 / peers)[:, None] * total
    slope = (push - pull) / (n * BASE_TEMPERATURE)
    slope = (slope - jnp.sum(slope * unit, 1, keepdims=True) * unit) / length
    return temperature / BASE_TEMPERATURE * each.mean(), slope


def _pushes(unit: Array, alone: Array, temperature: float) -> tuple[Array, Array]:
    """Return each item's mass `sum_j e_ij` and its push `sum_j (e_ij / mass_i + e_ij / mass_j) x_j`, j other than i.

    `e_ij = exp((x_i . x_j - 1) / t)` is symmetric, so only the blocks on and above the diagonal are computed. Unit
    vectors: no exponent is above 0, and no row needs a maximum of its own.
    """
    n = len(unit)
    blocks = max(1, n // BLOCK, min(FEW, n // 100))
    parts = [slice(*ends) for ends in pairwise(np.linspace(0, n, 1 + blocks).astype(int))]
    x = [unit[part] for part in parts]
    close = {
        (i, j): jnp.exp((x[i] @ x[j].T - 1) / temperature) * (1 - jnp.eye(len(x[i])) if i == j else 1)
        for i, j in combinations_with_replacement(range(len(x)), 2)
    }
    sums = [jnp.zeros(len(rows)) for rows in x]
    for (i, j), block in close.items():
        sums[i] += block.sum(1)
        sums[j] += 0 if i == j else block.sum(0)
    mass = jnp.concatenate(sums)
    share = jnp.where(alone, 0, 1 / mass)
    push = [jnp.zeros_like(rows) for rows in x]
    for (i, j), block in close.items():
        both = block * (share[parts[i]][:, None] + share[parts[j]][None, :])
        push[i] += both @ x[j]
        push[j] += 0 if i == j else (x[i].T @ both).T
    return mass, jnp.concatenate(push)


def _contrast_backward(clusters: int, temperature: float, slope: Array, change: Array) -> tuple[Array, None]:
    return change * slope, None


contrast.defvjp(_contrast, _contrast_backward)


def printed_contrast(items: Array, labels: Array, clusters: int, temperature: float) -> Array:
    """Equation 8: the sum over items of `-log mean_z softmax_{j != i}(v_i . v_j / t)_z`, on the vectors as they are."""
    number = jnp.arange(len(items))
    other = number[:, None] != number[None, :]
    alike = other & (labels[:, None] == labels[None, :])
    s = items @ items.T / temperature
    count = alike.sum(1)
    # An item alone is compared with all others: the two parts then cancel, and no gradient is spoiled.
    alike = jnp.where(count[:, None] > 0, alike, other)
    spread = jax.nn.logsumexp(s, axis=1, where=other) - jax.nn.logsumexp(s, axis=1, where=alike)
    return jnp.sum(jnp.where(count > 0, spread + jnp.log(jnp.maximum(count, 1)), 0))
