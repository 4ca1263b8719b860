"""What a client answers: the rank of each held-out item, or a predicted rating.

All ranking metrics are functions of these ranks (`evaluation.metrics`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from coterie.engine.plan import Bucket, Part
from coterie.evaluation import metrics
from coterie.evaluation.problem import Problem

MISS = 2**30
"""The rank of an item whose score is not a number."""

PAIRS = 1 << 18
"""Scores computed at a time, which bounds memory whatever the number of users."""

ScoreUser = Callable[[Array, Array], Array]


class Answers(NamedTuple):
    """Per local user: ranks (0 beyond the held-out items) or predicted ratings."""

    validation: Any
    test: Any


class Lists(NamedTuple):
    """Per local user: the items with the highest scores (-1 where there are no more), and their scores."""

    items: Any
    scores: Any


def ranks(held: Array, real: Array, rivals: Array, allowed: Array) -> Array:
    """Return 1 + how many come before: ties go against the held-out item, NaN loses, earlier ones break ties.

    `held` are the scores of a user's held-out items (`real` ones first), `rivals` those of all others.
    """
    beaten = jnp.sum(~(rivals[None, :] < held[:, None]) & allowed[None, :], 1)
    place = jnp.arange(held.shape[0])
    equal = (held[None, :] == held[:, None]) & (place[None, :] < place[:, None])
    among = jnp.sum(((held[None, :] > held[:, None]) | equal) & real[None, :], 1)
    rank = jnp.where(jnp.isnan(held), MISS, 1 + beaten + among)
    return jnp.where(real, rank, 0).astype(jnp.int32)


def _held(part: Part) -> Array:
    return jnp.arange(part.items.shape[-1]) < part.count[..., None]


def sampled(score: ScoreUser, row: Bucket, users: Array) -> Answers:
    """Rank held-out items among the sampled candidates, in one call of `score(user, items)` per user."""

    def one(user: Array) -> tuple[Array, ...]:
        parts = [jax.tree.map(lambda leaf: leaf[user], part) for part in (row.validation, row.test)]
        lists = [ids for part in parts for ids in (part.items, part.candidates)]
        scores = jnp.split(score(user, jnp.concatenate(lists)), np.cumsum([len(ids) for ids in lists])[:-1])
        allowed = [jnp.ones(part.candidates.shape, bool) for part in parts]
        return tuple(ranks(scores[2 * i], _held(parts[i]), scores[2 * i + 1], allowed[i]) for i in range(2))

    lists = jax.tree.leaves([(part.items, part.candidates) for part in (row.validation, row.test)])
    width = sum(int(leaf.shape[-1]) for leaf in lists)
    return Answers(*_each(one, users, width))


def _each(one: Callable[[Array], tuple[Array, ...]], users: Array, scores: int) -> tuple[Array, ...]:
    """Call `one` for every user, as many at a time as PAIRS allows when each needs that many scores."""
    together = max(1, PAIRS // scores)
    return jax.vmap(one)(users) if len(users) <= together else jax.lax.map(one, users, batch_size=together)


def full(score: ScoreUser, row: Bucket, users: Array, n_items: int) -> Answers:
    """Rank held-out items among all items but the user's training items (and, for test, validation items)."""
    everything = jnp.arange(n_items)

    def one(user: Array) -> tuple[Array, Array]:
        scores = score(user, everything)
        assert row.seen is not None
        free = jnp.ones(n_items + 1, bool).at[row.seen[user]].set(False)
        answers = []
        for part in (row.validation, row.test):
            held = jax.tree.map(lambda leaf: leaf[user], part._replace(candidates=None))
            real = _held(held)
            free = free.at[jnp.where(real, held.items, n_items)].set(False)
            answers.append(ranks(scores[held.items], real, scores, free[:n_items]))
        return answers[0], answers[1]

    return Answers(*_each(one, users, n_items))


def predicted(score: ScoreUser, row: Bucket, users: Array) -> Answers:
    """Predict the rating of each held-out record."""

    def one(user: Array) -> tuple[Array, Array]:
        return score(user, row.validation.items[user]), score(user, row.test.items[user])

    return Answers(*_each(one, users, row.validation.items.shape[-1] + row.test.items.shape[-1]))


def top(score: ScoreUser, hidden: Array, users: Array, n_items: int, k: int) -> Lists:
    """Return each user's first k items outside `hidden`; equal scores in order of item number."""
    everything = jnp.arange(n_items)

    def one(user: Array) -> Lists:
        scores = jnp.nan_to_num(score(user, everything), nan=-jnp.inf).at[hidden[user]].set(-jnp.inf, mode="drop")
        best, items = jax.lax.top_k(scores, k)
        return Lists(jnp.where(jnp.isneginf(best), -1, items), best)

    return Lists(*_each(one, users, n_items))


def measure(problem: Problem, answers: Answers, part: str) -> dict[str, float]:
    """Turn answers into the protocol's metrics."""
    table = getattr(answers, part)
    if problem.protocol.task == "ranking":
        return metrics.summarise(table, problem.protocol.k)
    held = getattr(problem, part)
    real = np.arange(table.shape[1]) < held.items.lengths[:, None]
    predicted, actual = table[real], held.ratings.values
    return {"mae": metrics.mae(predicted, actual), "rmse": metrics.rmse(predicted, actual)}
