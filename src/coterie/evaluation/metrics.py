"""Metrics as functions of ranks, each with its formula.

A rank matrix has one row per user and one column per held-out item: the 1-based place of that item in the
user's list, 0 where the user has fewer held-out items. A rank beyond the list is a miss. Notation: T the
held-out items of a user, r_1 < r_2 < ... < r_h the ranks of those within the first k, h their number.

Every ranking metric returns one value per user, and NaN for a user without held-out items: such a user has
no value and enters no mean.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coterie.data.interactions import IntArray

Values = NDArray[np.float64]
Metric = Callable[[IntArray, int], Values]

MISS = np.iinfo(np.int32).max
"""The rank of an item that no list contains."""


def hit_rate(ranks: IntArray, k: int) -> Values:
    """1 if any held-out item is within the first k, else 0: [h > 0].

    >>> hit_rate(np.array([[3, 12], [11, 0]]), 10)
    array([1., 0.])
    """
    return _defined(ranks, np.where(_hits(ranks, k).any(axis=1), 1.0, 0.0))


def recall(ranks: IntArray, k: int) -> Values:
    """Share of the held-out items within the first k: h / |T|."""
    return _ratio(_hits(ranks, k).sum(axis=1), _held_out(ranks))


def precision(ranks: IntArray, k: int) -> Values:
    """Share of the first k that is held out: h / k."""
    return _defined(ranks, _hits(ranks, k).sum(axis=1) / k)


def mrr(ranks: IntArray, k: int) -> Values:
    """Reciprocal rank of the best hit: 1 / r_1, and 0 without a hit in the first k."""
    return _defined(ranks, _over_hits(ranks, k, lambda place: 1.0 / place).max(axis=1, initial=0.0))


def ndcg(ranks: IntArray, k: int) -> Values:
    """Normalised discounted gain: sum_j 1/log2(r_j + 1) over sum_{j <= min(|T|, k)} 1/log2(j + 1)."""
    return _ratio(_dcg(ranks, k), _ideal(np.minimum(_held_out(ranks), k)))


def ndcg_hits(ranks: IntArray, k: int) -> Values:
    """NDCG whose ideal list holds only the hits obtained: the ideal sum runs to h; 0 without a hit.

    Published by FedCIA under the name NDCG. It measures the order of the hits and not how many there are,
    is never below `ndcg`, and equals it where h = min(|T|, k).
    """
    hits = _hits(ranks, k).sum(axis=1)
    return _defined(ranks, _dcg(ranks, k) / _ideal(np.maximum(hits, 1)))


def average_precision(ranks: IntArray, k: int) -> Values:
    """Average precision: (1 / min(|T|, k)) sum_j j / r_j, so a perfect list of k scores 1."""
    ordered = np.sort(np.where(ranks > 0, ranks, MISS), axis=1)
    place_among_hits = np.arange(1, ranks.shape[1] + 1)
    gains = np.where(ordered <= k, place_among_hits / ordered, 0.0)
    return _ratio(gains.sum(axis=1), np.minimum(_held_out(ranks), k))


RANKING: dict[str, Metric] = {
    "hr": hit_rate,
    "ndcg": ndcg,
    "ndcg_hits": ndcg_hits,
    "recall": recall,
    "precision": precision,
    "mrr": mrr,
    "map": average_precision,
}
"""Every ranking metric by the name that settings, command line and report use."""


def per_user(ranks: IntArray, k: int) -> dict[str, Values]:
    """Return every ranking metric as one value per user, NaN where a user holds nothing out."""
    return {name: metric(ranks, k) for name, metric in RANKING.items()}


def summarise(ranks: IntArray, k: int) -> dict[str, float]:
    """Return every ranking metric, averaged over the users with held-out items, named like `hr@10`."""
    return {f"{name}@{k}": mean(values) for name, values in per_user(ranks, k).items()}


def mean(values: Values) -> float:
    """Mean of the values that exist; NaN if none does."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else float("nan")


def coverage(top_lists: NDArray[np.integer], n_items: int) -> float:
    """Share of the catalogue that at least one user is shown; negative entries are padding."""
    return float(np.count_nonzero(_exposure(top_lists, n_items)) / n_items)


def gini(top_lists: NDArray[np.integer], n_items: int) -> float:
    """Gini coefficient of exposure: sum_i (2i - n - 1) x_i / (n sum_i x_i), counts x ascending.

    0 where every item is shown equally often, near 1 where a few items take every place.

    >>> gini(np.array([[0, 1], [2, 3]]), n_items=4), gini(np.array([[0], [0]]), n_items=4)
    (0.0, 0.75)
    """
    counts = np.sort(_exposure(top_lists, n_items))
    weights = 2 * np.arange(1, n_items + 1) - n_items - 1
    return float(weights @ counts / (n_items * max(counts.sum(), 1)))


def mae(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean absolute error: mean |r - r^|."""
    return float(np.abs(_errors(predicted, actual)).mean())


def rmse(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Root mean squared error: sqrt(mean (r - r^)^2)."""
    return float(np.sqrt(np.square(_errors(predicted, actual)).mean()))


def by_activity(values: Values, activity: NDArray[np.number], groups: int = 3) -> dict[str, float]:
    """Average a per-user metric within equal parts of the users, from the least to the most active.

    Users without a value are left out before the parts are cut; equal activity is ordered by user number.

    >>> by_activity(np.array([0.0, 1.0, 0.5, 1.0]), np.array([9, 2, 5, 7]), groups=2)
    {'1 of 2': 0.75, '2 of 2': 0.5}
    """
    present = np.flatnonzero(~np.isnan(values))
    order = present[np.argsort(activity[present], kind="stable")]
    parts = np.array_split(order, groups)
    return {name: mean(values[part]) for name, part in zip(_part_names(groups), parts, strict=True)}


def rank_of(scores: NDArray[np.floating], held_out: NDArray[np.integer], masked: ArrayLike) -> IntArray:
    """Rank the held-out items of one user in the plainest way: the truth that faster code is tested against.

    rank = 1 + rivals that are not below + held-out items before it (score descending, then id ascending).
    Rivals are the items neither masked nor held out. A tie or a NaN of a rival counts against the held-out
    item, and a held-out item whose own score is NaN is a miss.

    >>> rank_of(np.array([0.5, 0.9, 0.5, 0.7]), np.array([0]), masked=[3]).tolist()
    [3]
    """
    outside = np.concatenate([np.asarray(masked, np.int64), np.asarray(held_out, np.int64)])
    rivals = np.delete(scores, outside)
    ranks = np.full(len(held_out), MISS, np.int32)
    scored = [item for item in held_out.tolist() if not np.isnan(scores[item])]
    for before, item in enumerate(sorted(scored, key=lambda item: (-scores[item], item))):
        not_below = np.count_nonzero(~(rivals < scores[item]))
        ranks[held_out == item] = 1 + not_below + before
    return ranks


def _hits(ranks: IntArray, k: int) -> NDArray[np.bool_]:
    return (ranks > 0) & (ranks <= k)


def _held_out(ranks: IntArray) -> NDArray[np.int64]:
    return np.count_nonzero(ranks > 0, axis=1)


def _over_hits(ranks: IntArray, k: int, gain: Callable[[Values], Values]) -> Values:
    """Apply a gain to the ranks that are hits; 0 elsewhere."""
    hits = _hits(ranks, k)
    return np.where(hits, gain(np.where(hits, ranks, 1).astype(np.float64)), 0.0)


def _dcg(ranks: IntArray, k: int) -> Values:
    return _over_hits(ranks, k, lambda place: 1.0 / np.log2(place + 1.0)).sum(axis=1)


def _ideal(places: NDArray[np.int64]) -> Values:
    """Discounted gain of a list whose first `places` items are all relevant."""
    discounts = 1.0 / np.log2(np.arange(2, places.max(initial=0) + 2))
    return np.concatenate([[0.0], np.cumsum(discounts)])[places]


def _defined(ranks: IntArray, values: Values) -> Values:
    return np.where(_held_out(ranks) > 0, values, np.nan)


def _ratio(above: NDArray[np.number], below: NDArray[np.number]) -> Values:
    result = np.full(len(above), np.nan)
    return np.divide(above, below, out=result, where=below > 0)


def _exposure(top_lists: NDArray[np.integer], n_items: int) -> NDArray[np.int64]:
    shown = np.ravel(top_lists)
    return np.bincount(shown[shown >= 0], minlength=n_items)


def _errors(predicted: ArrayLike, actual: ArrayLike) -> Values:
    return np.asarray(actual, np.float64) - np.asarray(predicted, np.float64)


def _part_names(groups: int) -> list[str]:
    return ["low", "middle", "high"] if groups == 3 else [f"{i} of {groups}" for i in range(1, groups + 1)]
