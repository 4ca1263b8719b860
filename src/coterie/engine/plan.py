"""Clients laid out in a few buckets of padded arrays, so that a round is a handful of compiled programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from coterie.data.ragged import Ragged
from coterie.evaluation.problem import HeldOut, Problem

Ints = NDArray[np.int64]

SLOTS = 1 << 22
"""Most (client, item) slots that a chunk may have."""


WORTH = 20_000
"""Interactions for which one more bucket is worth the time that it takes to compile."""


class Part(NamedTuple):
    """Held-out items of the users of a bucket: (clients, users, items), how many, and the sampled rivals.

    `places` are those of the real ones among (users x items) of a client, where each is asked about by itself.
    """

    items: Any
    count: Any
    candidates: Any
    places: Any = None


class Bucket(NamedTuple):
    """Clients of similar size; every array has a leading axis of clients.

    `user_numbers` are those of the local users in the whole federation (0 beyond the last one). `gaps` and `bounds`
    describe the items that are never drawn as negatives (see `data.negatives`), by local user.
    `seen` lists each user's training items (n_items beyond the end); it is there where all items are ranked.
    """

    client: Array
    user_numbers: Array
    users: Array
    items: Array
    labels: Array
    count: Array  # type: ignore[assignment]
    gaps: Array
    bounds: Array
    seen: Array | None
    validation: Part
    test: Part


@dataclass(frozen=True)
class Layout:
    """A bucket, the user number of each of its local users (-1: answered elsewhere), and its chunk length."""

    bucket: Bucket
    user_numbers: NDArray[np.int32]
    chunk: int

    @property
    def clients(self) -> int:
        """Number of clients in the bucket."""
        return len(self.user_numbers)

    @property
    def room(self) -> int:
        """Number of local users that each client has room for."""
        return self.user_numbers.shape[1]


@dataclass(frozen=True)
class Plan:
    """All buckets of a problem, and where each client is: its bucket and its row there."""

    layouts: list[Layout]
    bucket_of: NDArray[np.int32]
    row_of: NDArray[np.int32]
    n_items: int
    n_users: int

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.bucket_of)


def capacities(sizes: Ints, most: int) -> list[int]:
    """Choose at most `most` capacities that waste the least padding over all clients.

    >>> capacities(np.array([1, 2, 2, 9, 10]), most=2)
    [2, 10]
    """
    values, counts = np.unique(_rounded(sizes), return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    cost = np.where(before == 0, 0, np.iinfo(np.int64).max // 4)
    choice = []
    for _ in range(min(most, len(values))):
        # paid[i, j]: the values i..j-1 share the capacity values[j - 1]
        paid = cost[:, None] + (before[None, :] - before[:, None]) * np.concatenate([[0], values])[None, :]
        paid[np.tril_indices(len(cost), -1)] = np.iinfo(np.int64).max // 2
        choice.append(paid.argmin(0))
        cost = paid.min(0)
    place, chosen = len(values), []
    for pick in reversed(choice):
        if place > 0 and pick[place] < place:
            chosen.append(int(values[place - 1]))
        place = int(pick[place])
    return chosen[::-1]


def enough_buckets(interactions: int, clients: int) -> int:
    """Return how many buckets are worth compiling: one for small data, half as many as clients, four at most."""
    return min(4, 1 + interactions // WORTH, max(1, clients // 2))


def _rounded(sizes: Ints) -> Ints:
    """Round sizes up to steps of about an eighth, so that the choice stays cheap on any data."""
    step = np.maximum(1, 2 ** np.maximum(np.floor(np.log2(np.maximum(sizes, 1))) - 3, 0)).astype(np.int64)
    return np.maximum(-(-sizes // step) * step, 1)


def make_plan(
    problem: Problem,
    *,
    buckets: int | None = None,
    chunk_size: int = 4096,
    cohort: int | None = None,
    chunk_clients: int | None = None,
    part_clients: int | None = None,
    seen: bool = False,
) -> Plan:
    """Lay out the clients of a problem.

    A chunk holds about `chunk_size` interactions, which keeps its working set in the processor's cache, and no
    more clients than a bucket is expected to have in a step of `cohort` clients, nor than `chunk_clients`. A bucket
    of more than `part_clients` is cut into several. Training items are listed where all items are ranked, or `seen`.
    """
    sizes = np.bincount(problem.client, minlength=problem.n_clients)
    limits = capacities(sizes, buckets or enough_buckets(len(problem.train), problem.n_clients))
    bucket_of = np.searchsorted(limits, sizes).astype(np.int32)
    ranks_all = problem.protocol.task == "ranking" and problem.protocol.candidates is None
    local, seen = LocalUsers.of(problem), seen or ranks_all
    row_of = np.zeros(problem.n_clients, np.int32)
    layouts = []
    for number, capacity in enumerate(limits):
        members = np.flatnonzero(bucket_of == number)
        row_of[members] = np.arange(len(members))
        share = len(members) if cohort is None else -(-len(members) * cohort // problem.n_clients)
        # The engine keeps a number for each item and client of a chunk (`tables.renumber`): bound that too.
        chunk = max(1, min(chunk_size // capacity, share, len(members), SLOTS // problem.data.n_items))
        layouts.append(_layout(problem, local, members, capacity, min(chunk, chunk_clients or chunk), seen))
    plan = Plan(layouts, bucket_of, row_of, problem.data.n_items, problem.data.n_users)
    return plan if part_clients is None else _cut(plan, part_clients)


def _cut(plan: Plan, most: int) -> Plan:
    """Cut buckets into parts of at most `most` clients; parts of a bucket keep its shapes, and so its programs."""
    bucket_of, row_of = plan.bucket_of.copy(), plan.row_of.copy()
    layouts: list[Layout] = []
    for number, layout in enumerate(plan.layouts):
        members = np.flatnonzero(plan.bucket_of == number)
        size = -(-layout.clients // -(-layout.clients // most))
        for start in range(0, layout.clients, size):
            some = slice(start, start + size)
            bucket_of[members[some]], row_of[members[some]] = len(layouts), np.arange(len(members[some]))
            bucket = jax.tree.map(lambda leaf, some=some: leaf[some], layout.bucket)
            layouts.append(Layout(bucket, layout.user_numbers[some], min(layout.chunk, size)))
    return replace(plan, layouts=layouts, bucket_of=bucket_of, row_of=row_of)


@dataclass(frozen=True)
class LocalUsers:
    """The users of each client, numbered from 0 within it: those with records there or answered there."""

    users: Ragged
    row_users: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem) -> LocalUsers:
        """Number the users of every client in ascending order."""
        n = problem.data.n_users
        rows = problem.client.astype(np.int64) * n + problem.data.users[problem.train]
        homes = problem.home.astype(np.int64) * n + np.arange(n)
        codes = np.unique(np.concatenate([rows, homes]))
        users = Ragged.group(codes // n, codes % n, problem.n_clients)
        return cls(users, np.searchsorted(codes, rows) - users.offsets[problem.client])


def _layout(problem: Problem, local: LocalUsers, members: Ints, capacity: int, chunk: int, seen: bool) -> Layout:
    data = problem.data
    by_client = Ragged.group(problem.client, np.arange(len(problem.train)), problem.n_clients)
    rows, filled = pad(by_client, members, capacity)
    source = problem.train[rows] if len(problem.train) else rows
    users, real_user = pad(local.users, members, max(1, int(local.users.lengths[members].max())))
    gaps, bounds = _never_negative(problem, users, real_user)
    home = real_user & (problem.home[users] == members[:, None])
    arrays = {
        "client": members.astype(np.int32),
        "user_numbers": users.astype(np.int32),
        "users": np.where(filled, local.row_users[rows], 0).astype(np.int32),
        "items": np.where(filled, data.items[source], 0).astype(np.int32),
        "labels": np.where(filled, _labels(problem)[source], 0).astype(np.float32),
        "count": filled.sum(1).astype(np.int32),
        "gaps": gaps,
        "bounds": bounds,
        "seen": _seen(problem, users, home) if seen else None,
        "validation": _part(problem.validation, users, home, problem.protocol.task == "rating"),
        "test": _part(problem.test, users, home, problem.protocol.task == "rating"),
    }
    return Layout(Bucket(**jax.device_put(arrays)), np.where(home, users, -1).astype(np.int32), chunk)


def _labels(problem: Problem) -> NDArray[np.float32]:
    ratings = problem.data.ratings
    return ratings if problem.protocol.task == "rating" else np.ones_like(ratings)


def pad(lists: Ragged, members: Ints, width: int) -> tuple[NDArray, NDArray[np.bool_]]:
    """Return the lists of `members` as a table of `width` columns (0 beyond the end), and what is real."""
    place = np.arange(width)[None, :]
    filled = place < lists.lengths[members][:, None]
    where = np.where(filled, lists.offsets[members][:, None] + place, 0)
    values = lists.values[where] if len(lists.values) else np.zeros(where.shape, lists.values.dtype)
    return np.where(filled, values, 0), filled


def _never_negative(
    problem: Problem, users: Ints, real: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Gaps of the never-negative lists of each client's users, one after the other, and their bounds."""
    lists = problem.never_negative
    lengths = np.where(real, lists.lengths[users], 0)
    bounds = np.concatenate([np.zeros((len(users), 1), np.int64), np.cumsum(lengths, 1)], 1)
    gaps = np.zeros((len(users), max(1, int(bounds[:, -1].max()))), np.int32)
    total = lengths.ravel()
    within = np.arange(total.sum()) - np.repeat(np.cumsum(total) - total, total)
    source = np.repeat(lists.offsets[users.ravel()], total) + within
    row = np.repeat(np.repeat(np.arange(len(users)), users.shape[1]), total)
    gaps[row, np.repeat(bounds[:, :-1].ravel(), total) + within] = lists.values[source] - within
    return gaps, bounds.astype(np.int32)


def _seen(problem: Problem, users: Ints, home: NDArray[np.bool_]) -> NDArray[np.int32]:
    train = problem.train
    lists = Ragged.group(problem.data.users[train], problem.data.items[train], problem.data.n_users)
    flat = users.ravel()
    items, filled = pad(lists, flat, max(1, int(lists.lengths[flat].max(initial=0))))
    known = np.where(filled & home.reshape(-1, 1), items, problem.data.n_items)
    return known.reshape(*users.shape, -1).astype(np.int32)


def _part(held: HeldOut, users: Ints, home: NDArray[np.bool_], singly: bool) -> Part:
    flat = users.ravel()
    items, filled = pad(held.items, flat, max(1, int(held.items.lengths[flat].max(initial=0))))
    count = np.where(home, filled.sum(1).reshape(users.shape), 0)
    candidates = None if held.candidates is None else held.candidates[users]
    places = _places((filled & home.reshape(-1, 1)).reshape(len(users), -1)) if singly else None
    return Part(items.reshape(*users.shape, -1).astype(np.int32), count.astype(np.int32), candidates, places)


def _places(real: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return where each row is true; the number of columns beyond the end."""
    row, column = np.nonzero(real)
    places = Ragged.group(row, column, len(real))
    found, filled = pad(places, np.arange(len(real)), max(1, int(places.lengths.max(initial=0))))
    return np.where(filled, found, real.shape[1]).astype(np.int32)
