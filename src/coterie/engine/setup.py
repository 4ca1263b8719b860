"""What a simulation is built from: the problem as the algorithm needs it, the catalogue, the resolved settings."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from coterie.algorithm import Algorithm, Catalogue, ClientConfig, TextConfig
from coterie.data import text
from coterie.errors import CoterieError
from coterie.evaluation.problem import Problem

MOST_LEVELS = 100
"""Ratings of more different values are taken for measurements, which have no levels."""


def check_task(algorithm: Algorithm, problem: Problem) -> None:
    """Refuse an algorithm that cannot do what the protocol asks."""
    task = problem.protocol.task
    if task not in algorithm.info.tasks:
        does = " and ".join(algorithm.info.tasks)
        raise CoterieError(
            f"{algorithm.info.name} does {does}, and protocol {problem.protocol.name} asks for {task}; choose another."
        )


def pooled(problem: Problem) -> Problem:
    """Return the problem with all data in one place."""
    nowhere = np.zeros_like(problem.client), np.zeros_like(problem.home)
    return dataclasses.replace(problem, client=nowhere[0], home=nowhere[1], n_clients=1)


def catalogue_of(problem: Problem) -> Catalogue:
    """Return the sizes and public item facts of a problem."""
    data = problem.data
    values = np.unique(data.ratings)
    levels = tuple(values.tolist()) if len(values) <= MOST_LEVELS else ()
    return Catalogue(data.n_items, data.n_users, problem.n_clients, jnp.asarray(problem.popularity), levels)


def configured(algorithm: Algorithm, settings: dict[str, Any], problem: Problem, catalogue: Catalogue) -> ClientConfig:
    """Build an algorithm's settings and fill in what depends on the task and the data."""
    rating = problem.protocol.task == "rating"
    config = algorithm.configure(({"negatives": 0} if rating else {}) | settings)
    if rating and config.virtual_ratings:
        raise CoterieError("virtual_ratings adds likes and dislikes; it does not apply where ratings are predicted.")
    if config.loss == "auto":
        config = config.model_copy(update={"loss": "squared" if rating else "bce"})
    return algorithm.resolve(config, catalogue) if algorithm.resolve else config


def with_vectors(catalogue: Catalogue, config: ClientConfig, problem: Problem) -> tuple[Catalogue, tuple[str, ...]]:
    """Add vectors of item text for an algorithm that asks for them; also returns a note on where they come from."""
    if not isinstance(config, TextConfig):
        return catalogue, ()
    found = text.vectors(problem.data, config.text, config.text_dim, problem.seed)
    return catalogue._replace(vectors=jnp.asarray(found.rows)), (found.source,)
