"""What a client answers: the rank of each held-out item, or a predicted rating.

All ranking metrics are functions of these ranks (`evaluation.metrics`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

EXPOSED = (5, 10, 20, 30)
"""Lengths of the lists in which exposure is measured."""

PAIRS = 1 << 18
"""Scores computed at a time, which bounds memory whatever the number of users."""

RECORDS = 1 << 12
"""Ratings predicted at a time."""

ScoreUser = Callable[[Array, Array], Array]


class Answers(NamedTuple):
    """Per local user: ranks (0 beyond the held-out items) or predicted ratings.

    `watched` has, where items are watched, the rank of each among all that the user has never interacted with; 0 where
    it is not among them.
    """

    validation: Any
    test: Any
    watched: Any = None


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


def full(score: ScoreUser, row: Bucket, users: Array, n_items: int, watched: Sequence[int] = ()) -> Answers:
    """Rank held-out items among all items but the user's training items (and, for test, validation items).

    Watched items are ranked among those that are not held out either.
    """
    everything, watched_items = jnp.arange(n_items), jnp.array(watched, jnp.int32)

    def one(user: Array) -> tuple[Array, ...]:
        scores = score(user, everything)
        assert row.seen is not None
        free = jnp.ones(n_items + 1, bool).at[row.seen[user]].set(False)
        answers = []
        for part in (row.validation, row.test):
            held = jax.tree.map(lambda leaf: leaf[user], part._replace(candidates=None))
            real = _held(held)
            free = free.at[jnp.where(real, held.items, n_items)].set(False)
            answers.append(ranks(scores[held.items], real, scores, free[:n_items]))
        if watched:
            answers.append(_watched_ranks(scores, free[:n_items], watched_items))
        return tuple(answers)

    return Answers(*_each(one, users, n_items))


def _watched_ranks(scores: Array, free: Array, watched: Array) -> Array:
    """Return the rank of each watched item among the free ones, ties against it; 0 where it is not free."""
    own = scores[watched]
    before = jnp.sum(~(scores[None, :] < own[:, None]) & free[None, :], 1)  # it is one of them itself
    rank = jnp.where(jnp.isnan(own), MISS, before)
    return jnp.where(free[watched], rank, 0).astype(jnp.int32)


def predicted(score: ScoreUser, row: Bucket) -> Answers:
    """Predict the rating of each held-out record, one by one: few users have as many as the table has room for."""

    def table(part: Part) -> Array:
        width = part.items.shape[-1]

        def one(place: Array) -> Array:
            return score(place // width, part.items.ravel()[place][None])[0]

        found = jax.lax.map(one, part.places, batch_size=RECORDS)
        return jnp.zeros(part.items.size).at[part.places].set(found, mode="drop").reshape(part.items.shape)

    return Answers(table(row.validation), table(row.test))


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


def exposure(watched: np.ndarray, targets: int) -> dict[str, float]:
    """Return ER@K: the share of users, among those who never met a target, that have it in their first K items.

    The first `targets` columns are the targets, the others untouched items of equal popularity.
    """
    found = {}
    for name, ranks in (("", watched[:, :targets]), ("control ", watched[:, targets:])):
        asked = np.maximum((ranks > 0).sum(0), 1)
        for k in EXPOSED:
            found[f"{name}er@{k}"] = float(np.mean(((ranks > 0) & (ranks <= k)).sum(0) / asked)) if ranks.size else 0.0
    return found
