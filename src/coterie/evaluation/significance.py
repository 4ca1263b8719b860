"""How far a number can be trusted: intervals over users and seeds, paired tests, several comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from coterie.errors import CoterieError

Values = NDArray[np.float64]

_BLOCK_ENTRIES = 4 * 2**20
"""Most entries of a block of draws: the random numbers of a block stay near 32 MB."""


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval; the ends are NaN where one value gives none."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedTest:
    """The mean difference a - b over the users, and the probability of one as large by chance."""

    difference: float
    p_value: float


def bootstrap_interval(per_user_values: ArrayLike, level: float = 0.95, draws: int = 2000, seed: int = 0) -> Interval:
    """Percentile interval of the mean over users: draw users with replacement, take quantiles of the means.

    It covers the choice of users, not the training seed. Users whose value is NaN are left out.
    """
    _check_level(level)
    values = _present(per_user_values)
    rng = np.random.default_rng(seed)
    means = [
        values[rng.integers(len(values), size=(rows, len(values)))].mean(axis=1) for rows in _blocks(draws, len(values))
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def paired_test(a: ArrayLike, b: ArrayLike, draws: int = 10_000, seed: int = 0) -> PairedTest:
    """Two-sided sign-flip permutation test of equal means over the same users.

    If a and b were exchangeable, each difference d_u would be as likely with either sign:
    p = (1 + #{draws with |sum s_u d_u| >= |sum d_u|}) / (1 + draws), never 0. It assumes no distribution,
    which suits metrics that are 0 or 1 for most users. Users without a value are left out.
    """
    difference = _differences(a, b)
    # A user with equal values adds nothing to any sum.
    moving = difference[difference != 0]
    observed = abs(moving.sum())
    # Sums of the same numbers in another order differ by rounding; those count as equal.
    threshold = observed - 1e-12 * np.abs(moving).sum()
    as_large = sum(np.count_nonzero(np.abs(sums) >= threshold) for sums in _flipped_sums(moving, draws, seed))
    return PairedTest(float(difference.mean()), (1 + int(as_large)) / (1 + draws))


def interval_over_seeds(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student-t interval of the mean of independent runs: mean +- t_(n-1) s / sqrt(n)."""
    _check_level(level)
    runs = _present(values)
    mean = float(runs.mean())
    if len(runs) < 2:
        return Interval(mean, float("nan"), float("nan"))
    reach = stats.t.ppf((1 + level) / 2, len(runs) - 1) * runs.std(ddof=1) / np.sqrt(len(runs))
    return Interval(mean, mean - float(reach), mean + float(reach))


def holm(p_values: ArrayLike) -> Values:
    """Adjust the p-values of m comparisons by Holm's step-down rule, in the order given.

    The i-th smallest becomes max_{j <= i} min(1, (m - j + 1) p_(j)); it controls the chance of a single
    false finding under any dependence.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    raw = np.asarray(p_values, np.float64)
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    scaled = raw[order] * np.arange(len(raw), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def _flipped_sums(differences: Values, draws: int, seed: int) -> Iterator[Values]:
    """Sums of the differences under random signs, a block of draws at a time."""
    rng = np.random.default_rng(seed)
    for rows in _blocks(draws, len(differences)):
        flipped = rng.integers(2, size=(rows, len(differences)), dtype=np.int8)
        yield differences.sum() - 2.0 * (flipped.astype(np.float64) @ differences)


def _blocks(draws: int, width: int) -> list[int]:
    """Cut a number of draws into blocks of bounded memory."""
    rows = max(1, _BLOCK_ENTRIES // max(width, 1))
    return [min(rows, draws - start) for start in range(0, draws, rows)]


def _differences(a: ArrayLike, b: ArrayLike) -> Values:
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.shape != second.shape or (np.isnan(first) != np.isnan(second)).any():
        raise CoterieError("A paired test needs both methods measured on the same users; these differ.")
    return _present(first - second)


def _present(values: ArrayLike) -> Values:
    array = np.asarray(values, np.float64)
    present = array[~np.isnan(array)]
    if not present.size:
        raise CoterieError("There is no value to take an interval or a test of; no user has one.")
    return present


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise CoterieError(f"The confidence level is {level}; use a number between 0 and 1, such as 0.95.")
