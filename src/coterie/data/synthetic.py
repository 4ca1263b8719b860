"""A set on which the right answer is known: planted communities, skewed popularity, item biases, platforms' habits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.data.interactions import FloatArray, IntArray, Interactions, Truth
from coterie.data.streams import Stream, generator
from coterie.errors import CoterieError

MIN_PER_USER = 5
POPULARITY_EXPONENT = 0.8
STRUCTURED_DRAWS = 20
ON_OWN_PLATFORM = 0.8
"""Share of the users that are on the platform of their community for sure."""
FIRST_SECOND = 1_577_836_800  # 2020-01-01
SECONDS = 365 * 24 * 3600

COMMUNITIES = (
    "Adventure",
    "Comedy",
    "Crime",
    "Drama",
    "Family",
    "History",
    "Music",
    "Nature",
    "Space",
    "Sport",
)
ADJECTIVES = (
    "Amber", "Bold", "Calm", "Distant", "Early", "Faint", "Golden", "Hidden", "Idle", "Jolly", "Kind",
    "Late", "Mellow", "Narrow", "Open", "Pale", "Quiet", "Rapid", "Silver", "Tender", "Upper", "Vivid",
    "Warm", "Young",
)  # fmt: skip
NOUNS = (
    "Anchor", "Bridge", "Canyon", "Door", "Engine", "Forest", "Garden", "Harbour", "Island", "Journey",
    "Kite", "Lantern", "Meadow", "Night", "Orchard", "Pier", "Quarry", "River", "Signal", "Tower",
    "Umbrella", "Valley", "Window", "Yard", "Zephyr",
)  # fmt: skip


def make(
    *,
    users: int = 400,
    items: int = 600,
    communities: int = 6,
    interactions_per_user: int = 40,
    seed: int = 0,
    noise: float = 0.1,
    platforms: int = 0,
) -> Interactions:
    """Draw a set in which each user mostly takes items of one community, popular ones more often.

    `interactions_per_user` is a mean; every user has at least 5 and no pair repeats. `noise` is the share
    of draws that ignore the user's community. With `platforms`, each user is on one of them, mostly on that of
    the community, and its habit moves all ratings there: from a star less on the first to a star more on the last.
    """
    _check(users, items, communities, interactions_per_user, noise, platforms)
    rng = generator(seed, Stream.SYNTHETIC)
    truth = _plant(rng, users, items, communities)
    wanted = _activity(rng, users, items, interactions_per_user)
    pairs = _draw_pairs(rng, truth, wanted, communities, noise)
    times = FIRST_SECOND + np.sort(rng.integers(SECONDS, size=len(pairs)))
    pairs = rng.permutation(pairs)
    row_users, row_items = (pairs // items).astype(np.int32), (pairs % items).astype(np.int32)
    on = _platforms(rng, truth, platforms)[row_users] if platforms else None
    habit = 0.0 if on is None else np.linspace(-1, 1, platforms)[on]
    return Interactions(
        name="demo",
        users=row_users,
        items=row_items,
        ratings=_rate(rng, truth, row_users, row_items, habit),
        timestamps=times,
        user_ids=tuple(map(str, range(1, users + 1))),
        item_ids=tuple(map(str, range(1, items + 1))),
        titles=_titles(rng, items),
        categories=tuple((_community_name(c),) for c in truth.item_community),
        truth=truth,
        platforms=on,
        platform_ids=tuple(map(str, range(1, platforms + 1))),
        notes=(f"made up of {communities} planted communities with seed {seed} and noise {noise}",),
    )


def _check(users: int, items: int, communities: int, per_user: int, noise: float, platforms: int) -> None:
    limits = (
        ("users", users, 1, np.inf, ""),
        ("items", items, 2 * MIN_PER_USER, np.inf, ""),
        ("communities", communities, 1, min(users, items), ", at most one per user and item"),
        ("interactions_per_user", per_user, MIN_PER_USER, items // 2, ", at most half the items"),
        ("noise", noise, 0, 1, ""),
        ("platforms", platforms, 0, users, ", at most one per user"),
    )
    for name, value, low, high, why in limits:
        if not low <= value <= high:
            reach = f"at least {low}" if high == np.inf else f"a number from {low} to {high}{why}"
            raise CoterieError(f"A synthetic set with {name}={value} cannot be made; use {reach}.")


def _plant(rng: np.random.Generator, users: int, items: int, communities: int) -> Truth:
    return Truth(
        user_community=rng.permutation(np.arange(users) % communities).astype(np.int32),
        item_community=rng.permutation(np.arange(items) % communities).astype(np.int32),
        item_bias=rng.normal(0.0, 0.7, items).astype(np.float32),
    )


def _platforms(rng: np.random.Generator, truth: Truth, platforms: int) -> IntArray:
    """Return the platform of each user."""
    users = len(truth.user_community)
    anywhere = rng.integers(platforms, size=users)
    return np.where(rng.random(users) < ON_OWN_PLATFORM, truth.user_community % platforms, anywhere).astype(np.int32)


def _activity(rng: np.random.Generator, users: int, items: int, mean: int) -> NDArray[np.int64]:
    """Heavy-tailed numbers of interactions with about the given mean, between 5 and half the items."""
    raw = rng.pareto(2.5, users)  # mean 1 / 1.5
    counts = np.rint(MIN_PER_USER + (mean - MIN_PER_USER) * 1.5 * raw).astype(np.int64)
    return np.minimum(counts, items // 2)


def _draw_pairs(
    rng: np.random.Generator, truth: Truth, wanted: NDArray[np.int64], communities: int, noise: float
) -> NDArray[np.int64]:
    """Draw distinct (user, item) pairs, coded user * items + item, until every user has the wanted number.

    Repeats are thrown away and drawn again. A user who has nearly emptied a community would wait long for
    the last draws, so after a while all draws are uniform, which always ends: half the items stay free.
    """
    n_items = len(truth.item_community)
    draw = _Draw(rng, truth, communities)
    taken = np.empty(0, dtype=np.int64)
    attempt = 0
    while (missing := wanted - np.bincount(taken // n_items, minlength=len(wanted))).any():
        users = np.repeat(np.arange(len(wanted)), missing)
        structured = attempt < STRUCTURED_DRAWS
        items = draw.items(users, noise) if structured else rng.integers(n_items, size=len(users))
        taken = _distinct(np.concatenate([taken, users * n_items + items]))
        attempt += 1
    return taken


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    # np.unique hashes whole numbers and is forty times slower on codes as regular as these.
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])]


class _Draw:
    """Weighted draws from one community each, by one search in a cumulative table over all of them."""

    def __init__(self, rng: np.random.Generator, truth: Truth, communities: int) -> None:
        self.rng, self.truth, self.communities = rng, truth, communities
        weights = rng.permutation(np.arange(1, len(truth.item_community) + 1) ** -POPULARITY_EXPONENT)
        self.order = np.argsort(truth.item_community, kind="stable")
        self.cumulative = np.cumsum(weights[self.order])
        ends = np.searchsorted(truth.item_community[self.order], np.arange(communities), side="right") - 1
        self.upper = self.cumulative[ends]
        self.lower = np.concatenate([[0.0], self.upper[:-1]])

    def items(self, users: NDArray[np.int64], noise: float) -> NDArray[np.int64]:
        """Draw one item for each of `users`, of the user's community except for the share `noise`."""
        community = self.truth.user_community[users]
        stray = self.rng.random(len(users)) < noise
        low = np.where(stray, 0.0, self.lower[community])
        high = np.where(stray, self.cumulative[-1], self.upper[community])
        place = np.searchsorted(self.cumulative, self.rng.uniform(low, high), side="right")
        return self.order[np.minimum(place, len(self.order) - 1)]


def _rate(
    rng: np.random.Generator, truth: Truth, users: IntArray, items: IntArray, habit: float | NDArray[np.float64]
) -> FloatArray:
    """Rate 1 to 5: the item's bias, the user's mood, the platform's habit, a little more for the own community."""
    mood = rng.normal(0.0, 0.4, len(truth.user_community))[users]
    at_home = np.where(truth.user_community[users] == truth.item_community[items], 0.3, -0.3)
    score = 3.2 + truth.item_bias[items] + mood + habit + at_home + rng.normal(0.0, 0.5, len(users))
    return np.clip(np.rint(score), 1, 5).astype(np.float32)


def _titles(rng: np.random.Generator, items: int) -> tuple[str, ...]:
    """Name items "Quiet Harbour"; a second round of the same names is numbered "Quiet Harbour 2"."""
    names = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
    order = rng.permutation(len(names))
    rounds = (divmod(i, len(names)) for i in range(items))
    return tuple(names[order[k]] + (f" {again + 1}" if again else "") for again, k in rounds)


def _community_name(number: int) -> str:
    again, k = divmod(int(number), len(COMMUNITIES))
    return COMMUNITIES[k] + (f" {again + 1}" if again else "")
