"""Who holds which training rows, and whose model answers for a user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.data.interactions import IntArray, Interactions
from coterie.data.streams import Stream, generator
from coterie.errors import CoterieError

MIN_RECORDS = 10
MAX_DRAWS = 1000


@dataclass(frozen=True)
class Clients:
    """`of_row[i]` is the client of the i-th training row; `home[u]` is the client that answers for user u."""

    of_row: IntArray
    home: IntArray
    count: int


def per_user(data: Interactions, train: NDArray[np.int64]) -> Clients:
    """One client per user: the cross-device layout."""
    home = np.arange(data.n_users, dtype=np.int32)
    return Clients(home[data.users[train]], home, data.n_users)


def groups(data: Interactions, train: NDArray[np.int64], k: int) -> Clients:
    """Give k clients floor(users / k) users each in id order; the remainder goes to the last one."""
    if not 1 <= k <= data.n_users:
        raise CoterieError(f"{k} groups are asked of {data.n_users:,} users; use a number from 1 to {data.n_users:,}.")
    home = np.minimum(np.arange(data.n_users) // (data.n_users // k), k - 1).astype(np.int32)
    return Clients(home[data.users[train]], home, k)


def dirichlet(
    data: Interactions, train: NDArray[np.int64], platforms: int = 5, beta: float = 1.0, seed: int = 0
) -> Clients:
    """Spread the records of each rating value over platforms by Dirichlet(beta): label skew.

    Everything is drawn anew until each platform has at least 10 records. A user's home is the platform
    with most of the user's records, the lowest number among equals, and 0 where there are none.
    """
    _check_platforms(platforms, beta, len(train))
    labels = np.unique(data.ratings[train], return_inverse=True)[1]
    of_row = _draw_platforms(labels, platforms, beta, generator(seed, Stream.CLIENTS))
    return Clients(of_row, _majority(data.users[train], of_row, data.n_users, platforms), platforms)


def given(data: Interactions, train: NDArray[np.int64]) -> Clients:
    """Leave every record with the platform that the data names; a user's home is as in `dirichlet`."""
    if data.platforms is None:
        raise CoterieError(
            f"{data.name} does not say which platform a row belongs to; import it with --platform COLUMN or as one "
            "file per platform, or draw platforms with rating-dirichlet."
        )
    of_row, count = data.platforms[train], len(data.platform_ids)
    return Clients(of_row, _majority(data.users[train], of_row, data.n_users, count), count)


def _check_platforms(platforms: int, beta: float, records: int) -> None:
    if platforms < 1:
        raise CoterieError(f"The number of platforms is {platforms}; use at least 1.")
    if not 0 < beta < float("inf"):
        raise CoterieError(f"The Dirichlet beta is {beta}; use a number above 0.")
    if records < platforms * MIN_RECORDS:
        raise CoterieError(
            f"{records:,} training records cannot give {platforms} platforms {MIN_RECORDS} each; "
            "use fewer platforms or more data."
        )


def _draw_platforms(labels: NDArray[np.int64], platforms: int, beta: float, rng: np.random.Generator) -> IntArray:
    by_label = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    of_row = np.empty(len(labels), dtype=np.int32)
    for _ in range(MAX_DRAWS):
        for rows in by_label:
            shares = rng.dirichlet(np.full(platforms, beta))
            cuts = np.floor(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            of_row[rng.permutation(rows)] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
        if np.bincount(of_row, minlength=platforms).min() >= MIN_RECORDS:
            return of_row
    raise CoterieError(
        f"{MAX_DRAWS:,} Dirichlet draws with beta {beta} left a platform with fewer than {MIN_RECORDS} "
        "records each time; use a larger beta or fewer platforms."
    )


def _majority(users: IntArray, of_row: IntArray, n_users: int, platforms: int) -> IntArray:
    cells = users.astype(np.int64) * platforms + of_row
    counts = np.bincount(cells, minlength=n_users * platforms).reshape(n_users, platforms)
    return counts.argmax(axis=1).astype(np.int32)
