"""Toy data: one set so small that a plain loop can follow it, and one in which structure is planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coterie.data import synthetic
from coterie.data.interactions import Interactions
from coterie.evaluation.problem import Problem, Task
from coterie.evaluation.protocols import ProtocolOptions, prepare

USERS, ITEMS = 16, 220
TRAINED = np.where(np.arange(USERS) < USERS // 2, 5, 12)
"""Training interactions of each user: two sizes keep the plain loop cheap, and one bucket then has padding."""


def interactions(seed: int = 0) -> Interactions:
    """Draw a tiny set whose users share items, so that clients meet in the rows they train."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(USERS, dtype=np.int32), TRAINED + 2)
    items = np.concatenate([_taken(rng, count) for count in TRAINED + 2])
    return Interactions(
        name="toy",
        users=users,
        items=items.astype(np.int32),
        ratings=rng.integers(1, 6, len(users)).astype(np.float32),
        timestamps=None,
        user_ids=tuple(f"u{number}" for number in range(USERS)),
        item_ids=tuple(f"i{number}" for number in range(ITEMS)),
    )


def _taken(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    weight = 1.0 / np.arange(1, ITEMS + 1)
    return rng.choice(ITEMS, size=count, replace=False, p=weight / weight.sum())


def problem(task: Task = "ranking", seed: int = 0) -> Problem:
    """Prepare the tiny set; the last client has lost its training data."""
    name = "loo99" if task == "ranking" else "rating-dirichlet"
    whole = prepare(interactions(), name, seed=seed, options=ProtocolOptions(platforms=3))
    return without_data(whole, whole.n_clients - 1)


def without_data(whole: Problem, client: int) -> Problem:
    """Return the problem after a client lost its training data."""
    kept = whole.client != client
    return replace(whole, train=whole.train[kept], client=whole.client[kept])


def planted(task: Task = "ranking", seed: int = 0) -> Problem:
    """Prepare a set of communities, in which knowing people pays."""
    name = "loo99" if task == "ranking" else "rating-dirichlet"
    made = synthetic.make(users=300, items=400, communities=4, interactions_per_user=30, noise=0.1, seed=seed)
    return prepare(made, name, seed=seed)
