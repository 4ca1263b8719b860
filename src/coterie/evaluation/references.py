"""Closed-form recommenders, measured on exactly the held-out items and candidates of a problem.

They show what a number is worth: a method below popularity has learned nothing about people, and a rating
model near the constant has learned nothing at all. They see all training rows at once, so they are no
federated methods; EASE is the upper reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse import csr_matrix

from coterie.data.interactions import IntArray
from coterie.data.ragged import Ragged
from coterie.evaluation.metrics import MISS, mae, rmse, summarise
from coterie.evaluation.problem import Part, Problem

Scores = NDArray[np.float64]
ScoreUsers = Callable[[IntArray], NDArray[np.floating]]
"""Scores of every item for a block of users: (users in the block, items)."""

BLOCK_BYTES = 64 * 2**20
EASE_MOST_ITEMS = 15_000
SHRINK = 5.0
SWEEPS = 30


def references(problem: Problem) -> dict[str, dict[str, float]]:
    """Return the test metrics of every reference that applies to the problem, by its name."""
    if problem.protocol.task == "rating":
        return {name: _rating_errors(problem, fit(problem)) for name, fit in _RATING.items()}
    left_out = skipped(problem)
    fitted = {name: fit for name, fit in _RANKING.items() if name not in left_out}
    return {name: _ranking_metrics(problem, fit(problem)) for name, fit in fitted.items()}


def skipped(problem: Problem) -> dict[str, str]:
    """Return the references that `references` leaves out for this problem, each with the reason."""
    if problem.protocol.task == "rating":
        return {}
    reasons: dict[str, str] = {}
    if np.ptp(problem.data.ratings[problem.train]) == 0:
        reasons |= dict.fromkeys(("item_bias", "user_item_bias"), "all training ratings are equal")
    if problem.data.n_items > EASE_MOST_ITEMS:
        reasons["ease"] = (
            f"EASE inverts an items x items matrix; {problem.data.n_items:,} items are more than {EASE_MOST_ITEMS:,}"
        )
    return reasons


def evaluate_scores(problem: Problem, score_users: ScoreUsers, part: Part = "test") -> IntArray:
    """Rank the held-out items of a part by the scores of any NumPy model.

    Row u, column j of the answer is the rank of `problem.held_out(part).items[u][j]` by the rule of
    `metrics.rank_of`: against the user's candidates where the protocol samples them, else against all
    items but the masked ones. Users are scored in blocks of at most 64 MB.
    """
    held = problem.held_out(part)
    lengths = held.items.lengths
    ranks = np.zeros((problem.data.n_users, int(lengths.max(initial=0))), np.int32)
    masked = problem.masked(part)
    for users in _blocks(np.flatnonzero(lengths), problem.data.n_items):
        row, items = _lists(held.items, users)
        # The copy may be overwritten: a scorer is free to hand out a read-only or shared array.
        scores = np.array(score_users(users), dtype=np.float64)
        own = scores[row, items]
        rivals, n_rivals = _rivals(scores, held.items, masked, held.candidates, users)
        column = np.arange(len(row)) - np.searchsorted(row, row)
        ranks[users[row], column] = _ranks(rivals, n_rivals, row, items, own)
    return ranks


def _blocks(users: NDArray[np.int64], n_items: int) -> list[IntArray]:
    # Two float64 matrices of a block are alive at once: the scorer's and the copy that is sorted.
    rows = max(1, BLOCK_BYTES // (2 * 8 * n_items))
    return [users[start : start + rows].astype(np.int32) for start in range(0, len(users), rows)]


def _lists(lists: Ragged, users: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Flatten the lists of some users: the place of the user in the block, and the value."""
    lengths = lists.lengths[users]
    row = np.repeat(np.arange(len(users)), lengths)
    start_in_block = np.cumsum(lengths) - lengths
    index = np.arange(len(row)) - start_in_block[row] + lists.offsets[users][row]
    return row, lists.values[index]


def _rivals(
    scores: Scores, held_out: Ragged, masked: Ragged, candidates: IntArray | None, users: IntArray
) -> tuple[Scores, NDArray[np.int64]]:
    """Scores of the rivals of each user, with NaN for items outside the contest, and their number."""
    if candidates is not None:
        return np.take_along_axis(scores, candidates[users], axis=1), np.full(len(users), candidates.shape[1])
    outside = np.zeros(scores.shape, bool)
    for lists in (held_out, masked):
        outside[_lists(lists, users)] = True
    scores[outside] = np.nan
    return scores, scores.shape[1] - np.count_nonzero(outside, axis=1)


def _ranks(
    rivals: Scores, n_rivals: NDArray[np.int64], row: NDArray[np.int64], items: IntArray, own: Scores
) -> IntArray:
    """Rank of each held-out item: 1 + rivals not below it + held-out items of the same user before it."""
    # NaN sorts behind every number and so is never below: right for a rival's NaN, and it makes items
    # outside the contest harmless, because the number of real rivals is known apart.
    rivals.sort(axis=1)
    not_below = n_rivals[row] - _count_below(rivals, row, own)
    order = np.lexsort((items, -own, row))
    before = np.empty(len(row), np.int64)
    before[order] = np.arange(len(row)) - np.searchsorted(row, row)
    return np.where(np.isnan(own), MISS, 1 + not_below + before).astype(np.int32)


def _count_below(ascending: Scores, row: NDArray[np.int64], value: Scores) -> NDArray[np.int64]:
    """Count the entries of `ascending[row]` below each value: a binary search in all rows at once."""
    low = np.zeros(len(row), np.int64)
    high = np.full(len(row), ascending.shape[1])
    for _ in range(ascending.shape[1].bit_length()):
        middle = (low + high) // 2
        # Where low == high the search is over; the clipped look-up is then not used.
        below = (low < high) & (ascending[row, np.minimum(middle, ascending.shape[1] - 1)] < value)
        low, high = np.where(below, middle + 1, low), np.where(below, high, np.minimum(middle, high))
    return low


def _ranking_metrics(problem: Problem, score_users: ScoreUsers) -> dict[str, float]:
    return summarise(evaluate_scores(problem, score_users), problem.protocol.k)


def popularity(problem: Problem) -> ScoreUsers:
    """Score an item by the number of its training rows, alike for everybody."""
    return _same_for_all(problem.popularity)


def ease(problem: Problem, ridge: float = 300.0) -> ScoreUsers:
    """Embarrassingly shallow autoencoder: scores X B with B_ij = -P_ij / P_jj off the diagonal, 0 on it.

    P = (X'X + ridge I)^-1, where X is the 0/1 matrix of training rows (Steck, WWW 2019); a ranking
    problem repeats no row.
    """
    history = _history(problem)
    gram = (history.T @ history).toarray()
    gram[np.diag_indices_from(gram)] += ridge
    weights = _inverse(gram)
    weights /= -np.diag(weights).copy()
    np.fill_diagonal(weights, 0.0)
    return lambda users: history[users] @ weights


def _history(problem: Problem) -> csr_matrix:
    data, train = problem.data, problem.train
    rows = (data.users[train], data.items[train])
    return csr_matrix((np.ones(len(train)), rows), shape=(data.n_users, data.n_items))


def _inverse(gram: Scores) -> Scores:
    """Invert a symmetric positive definite matrix through its Cholesky factor, in half the work."""
    factor, failed = lapack.dpotrf(gram, lower=True, overwrite_a=True)
    if failed:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
    lower = np.tril(inverse, -1)
    return lower + lower.T + np.diag(np.diag(inverse))


@dataclass(frozen=True)
class Biases:
    """The prediction mean + user[u] + item[i]."""

    mean: float
    user: Scores
    item: Scores

    def predict(self, users: NDArray[np.integer], items: NDArray[np.integer]) -> Scores:
        """Predict the rating of each (user, item) pair."""
        return self.mean + self.user[users] + self.item[items]


def constant(problem: Problem) -> Biases:
    """Predict the mean training rating everywhere."""
    mean = float(problem.data.ratings[problem.train].mean(dtype=np.float64))
    return Biases(mean, np.zeros(problem.data.n_users), np.zeros(problem.data.n_items))


def item_bias(problem: Problem, shrink: float = SHRINK) -> Biases:
    """Fit b_i = sum_u (r_ui - mean) / (n_i + shrink) to the training rows."""
    base = constant(problem)
    data, train = problem.data, problem.train
    rest = data.ratings[train].astype(np.float64) - base.mean
    return Biases(base.mean, base.user, _shrunk_means(data.items[train], rest, data.n_items, shrink))


def user_item_bias(problem: Problem, shrink: float = SHRINK) -> Biases:
    """Fit both biases by least squares with the penalty shrink (|b_u|^2 + |b_i|^2), alternately."""
    data, train = problem.data, problem.train
    users, items = data.users[train], data.items[train]
    base = constant(problem)
    rest = data.ratings[train].astype(np.float64) - base.mean
    user, item = base.user, base.item
    for _ in range(SWEEPS):
        item = _shrunk_means(items, rest - user[users], data.n_items, shrink)
        user = _shrunk_means(users, rest - item[items], data.n_users, shrink)
    return Biases(base.mean, user, item)


def _shrunk_means(keys: IntArray, values: Scores, n: int, shrink: float) -> Scores:
    return np.bincount(keys, values, minlength=n) / (np.bincount(keys, minlength=n) + shrink)


def _rating_errors(problem: Problem, biases: Biases) -> dict[str, float]:
    held = problem.test
    users = np.repeat(np.arange(problem.data.n_users), held.items.lengths)
    predicted = biases.predict(users, held.items.values)
    return {"mae": mae(predicted, held.ratings.values), "rmse": rmse(predicted, held.ratings.values)}


def _same_for_all(item_scores: NDArray[np.number]) -> ScoreUsers:
    """Score items alike for every user."""
    return lambda users: np.broadcast_to(item_scores.astype(np.float64), (len(users), len(item_scores)))


_RANKING: dict[str, Callable[[Problem], ScoreUsers]] = {
    "popularity": popularity,
    # The mean and the user's bias move no item past another, so the item biases are the whole ranking.
    "item_bias": lambda problem: _same_for_all(item_bias(problem).item),
    "user_item_bias": lambda problem: _same_for_all(user_item_bias(problem).item),
    "ease": ease,
}
_RATING: dict[str, Callable[[Problem], Biases]] = {
    "constant": constant,
    "item_bias": item_bias,
    "user_item_bias": user_item_bias,
}
