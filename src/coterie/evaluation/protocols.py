"""The protocols by name, and the problem that a data set becomes under one of them.

Each protocol exists in two forms, the honest one and, with the suffix `-paper`, the published one. Ranking protocols
differ in the pool of training negatives: the honest form draws from everything outside the user's training items, as a
real client must; the published one never draws a held-out item, and so tells training which items are held out.
Rating protocols draw no negatives. Papers that predict ratings name no validation part: the published form trains on
all that is not tested, and the test ratings choose the round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from coterie.data import clients, splits
from coterie.data.clients import Clients
from coterie.data.interactions import UNKNOWN_TIME, IntArray, Interactions
from coterie.data.ragged import Ragged
from coterie.data.splits import Split
from coterie.errors import CoterieError, unknown
from coterie.evaluation.problem import HeldOut, Problem, Protocol

_CANDIDATE_STREAM, _MISCLICK_STREAM = 701, 702
"""Second half of the seed of these draws, so that they share no numbers with splits or clients."""


class ProtocolOptions(BaseModel):
    """Sizes that a client layout may choose: groups of users, platforms, and how skewed the platforms are.

    `misclicks` adds interactions with random items: so many for each of a user's own, or, with `misclicks_of=unseen`,
    for each item that the user never touched. They are added to the training part, or, with `misclicks_in=data`, before
    the split: then misclicks are held out too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    clients: int = Field(default=100, ge=1)
    platforms: int = Field(default=5, ge=1)
    beta: float = Field(default=1.0, gt=0)
    misclicks: float = Field(default=0.0, ge=0, le=1)
    misclicks_of: Literal["own", "unseen"] = "own"
    misclicks_in: Literal["training", "data"] = "training"


DEFAULT_OPTIONS = ProtocolOptions()

_HONEST = (
    Protocol(
        name="loo99",
        task="ranking",
        split="leave-one-out",
        layout="users",
        candidates=99,
        k=10,
        select="hr",
        leaks=False,
        about="Each user's last item against 99 items the user never touched; one user per client.",
    ),
    Protocol(
        name="loo-full",
        task="ranking",
        split="leave-one-out",
        layout="users",
        candidates=None,
        k=10,
        select="hr",
        leaks=False,
        about="Each user's last item against all items the user has not trained on; one user per client.",
    ),
    Protocol(
        name="ratio-full",
        task="ranking",
        split="user-ratio",
        layout="users",
        candidates=None,
        k=20,
        select="recall",
        leaks=False,
        about="A random fifth of each user's items against all others; one user per client.",
    ),
    # FedCIA stops on F1@10; recall chooses the round here, because it is what the papers report.
    Protocol(
        name="groups",
        task="ranking",
        split="user-ratio",
        layout="groups",
        candidates=None,
        k=10,
        select="recall",
        leaks=False,
        about="A random fifth of each user's items against all others; each client holds a block of users.",
    ),
    Protocol(
        name="given-full",
        task="ranking",
        split="given",
        layout="users",
        candidates=None,
        k=10,
        select="recall",
        leaks=False,
        about="The split that comes with the data, against all other items; one user per client.",
    ),
    Protocol(
        name="rating-dirichlet",
        task="rating",
        split="global-ratio",
        layout="dirichlet",
        candidates=None,
        k=10,
        select="mae",
        leaks=False,
        about="A random fifth of all ratings is predicted; platforms own records, skewed by rating value.",
    ),
    Protocol(
        name="rating-platforms",
        task="rating",
        split="global-ratio",
        layout="given",
        candidates=None,
        k=10,
        select="mae",
        leaks=False,
        about="A random fifth of all ratings is predicted; the data says which platform owns a record.",
    ),
)


def _paper_form(protocol: Protocol) -> Protocol:
    leak = (
        "Nothing is held out for validation: the test ratings choose the round, which is too kind to every method."
        if protocol.task == "rating"
        else "Training negatives never include held-out items, as in published code: this leaks them."
    )
    return replace(protocol, name=f"{protocol.name}-paper", leaks=True, about=f"{protocol.about} {leak}")


_PROTOCOLS = {p.name: p for honest in _HONEST for p in (honest, _paper_form(honest))}


def names() -> tuple[str, ...]:
    """Return the names of all protocols, the honest form before the published one."""
    return tuple(_PROTOCOLS)


def get(name: str) -> Protocol:
    """Return a protocol by name."""
    if name not in _PROTOCOLS:
        raise unknown("protocol", name, _PROTOCOLS)
    return _PROTOCOLS[name]


def prepare(data: Interactions, name: str, seed: int = 0, options: ProtocolOptions = DEFAULT_OPTIONS) -> Problem:
    """Split the data, place it on clients, and draw what the held-out items compete with.

    The honest and the published form of a protocol share split, clients and candidates at equal seeds.
    """
    protocol = get(name)
    if seed < 0:
        raise CoterieError(f"The seed is {seed}; use a whole number from 0.")
    known = _item_sets(data, np.arange(len(data)))
    if protocol.task == "ranking":
        _refuse_repeated_pairs(data, known)
    data, split = _split_with_misclicks(data, known, protocol, options, seed)
    if options.misclicks:
        known = _item_sets(data, np.arange(len(data)))
    layout = _place(data, protocol, split.train, seed, options)
    for_validation, for_test = _candidates(data, known, protocol, seed)
    never = known if protocol.leaks else _item_sets(data, split.train)
    if protocol.task == "ranking":
        _require_negatives(data, never)
    return Problem(
        data=data,
        protocol=protocol,
        seed=seed,
        train=split.train,
        client=layout.of_row,
        home=layout.home,
        n_clients=layout.count,
        never_negative=never,
        validation=_held_out(data, split.validation, for_validation),
        test=_held_out(data, split.test, for_test),
    )


def _refuse_repeated_pairs(data: Interactions, known: Ragged) -> None:
    repeats = len(data) - len(known.values)
    if repeats:
        raise CoterieError(
            f"{data.name} holds {repeats:,} repeated (user, item) rows, so a held-out item could also be "
            "trained on; load it with deduplicate=True for a ranking protocol."
        )


def _split(data: Interactions, protocol: Protocol, seed: int) -> Split:
    match protocol.split:
        case "leave-one-out":
            return splits.leave_one_out(data)
        case "user-ratio":
            return splits.user_ratio(data, test=0.2, validation=0.1, seed=seed)
        case "global-ratio" if protocol.leaks:
            split = splits.global_ratio(data, test=0.2, validation=0.0, seed=seed)
            return replace(split, validation=split.test)
        case "global-ratio":
            return splits.global_ratio(data, test=0.2, validation=0.1, seed=seed)
        case "given":
            return splits.given(data)


def _split_with_misclicks(
    data: Interactions, known: Ragged, protocol: Protocol, options: ProtocolOptions, seed: int
) -> tuple[Interactions, Split]:
    """Split the data, with misclicks in all of it or in the training part, if there are any."""
    if not options.misclicks:
        return data, _split(data, protocol, seed)
    if protocol.task == "rating":
        raise CoterieError("misclicks adds likes; it does not apply where ratings are predicted.")
    if options.misclicks_in == "data":
        data = _with_misclicks(data, np.arange(len(data)), known, options, seed)
        return data, _split(data, protocol, seed)
    split = _split(data, protocol, seed)
    noisy = _with_misclicks(data, split.train, known, options, seed)
    return noisy, replace(split, train=np.append(split.train, np.arange(len(data), len(noisy))))


def _with_misclicks(
    data: Interactions, own: NDArray[np.int64], known: Ragged, options: ProtocolOptions, seed: int
) -> Interactions:
    """Add interactions with items that a user never touched; `own` are the rows that count as the user's.

    Items that are known are never among them. They have the rating that is most common in the data.
    """
    unseen = data.n_items - known.lengths
    base = np.bincount(data.users[own], minlength=data.n_users) if options.misclicks_of == "own" else unseen
    wanted = np.round(options.misclicks * base).astype(np.int64)
    users = np.repeat(np.arange(data.n_users), np.minimum(wanted, unseen // 2))
    rng = np.random.default_rng([seed, _MISCLICK_STREAM])
    places = rng.integers(0, unseen[users])
    while len(again := _repeated(users, places)):
        places[again] = rng.integers(0, unseen[users[again]])
    items = _unseen_items(known, places, data.n_items, users)
    kinds, counts = np.unique(data.ratings, return_counts=True)
    where = "the training data" if options.misclicks_in == "training" else "all data"
    return replace(
        data,
        users=np.append(data.users, users.astype(np.int32)),
        items=np.append(data.items, items),
        ratings=np.append(data.ratings, np.full(len(users), kinds[counts.argmax()])),
        timestamps=None if data.timestamps is None else np.append(data.timestamps, np.full(len(users), UNKNOWN_TIME)),
        split=None if data.split is None else np.append(data.split, np.full(len(users), "train")),
        platforms=None,
        notes=(*data.notes, f"added {len(users):,} interactions with random items to {where}"),
    )


def _repeated(users: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where a (user, place) pair stands that stood before."""
    pairs = np.stack([users, places], 1)
    return np.setdiff1d(np.arange(len(pairs)), np.unique(pairs, axis=0, return_index=True)[1])


def _place(
    data: Interactions, protocol: Protocol, train: NDArray[np.int64], seed: int, options: ProtocolOptions
) -> Clients:
    match protocol.layout:
        case "users":
            return clients.per_user(data, train)
        case "groups":
            return clients.groups(data, train, options.clients)
        case "dirichlet":
            return clients.dirichlet(data, train, platforms=options.platforms, beta=options.beta, seed=seed)
        case "given":
            return clients.given(data, train)


def _held_out(data: Interactions, rows: NDArray[np.int64], candidates: IntArray | None) -> HeldOut:
    rows = rows[np.argsort(data.items[rows], kind="stable")]
    users = data.users[rows]
    return HeldOut(
        items=Ragged.group(users, data.items[rows], data.n_users),
        ratings=Ragged.group(users, data.ratings[rows], data.n_users),
        candidates=candidates,
    )


def _item_sets(data: Interactions, rows: NDArray[np.int64]) -> Ragged:
    """Items of each user over the given rows, sorted and without repeats."""
    pairs = np.sort(data.users[rows].astype(np.int64) * data.n_items + data.items[rows])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    users, items = np.divmod(pairs, data.n_items)
    offsets = np.searchsorted(users, np.arange(data.n_users + 1))
    return Ragged(items.astype(np.int32), offsets.astype(np.int64))


def _require_negatives(data: Interactions, never: Ragged) -> None:
    full = np.flatnonzero(never.lengths >= data.n_items)
    if full.size:
        raise CoterieError(
            f"User '{data.user_ids[full[0]]}' of {data.name} has all {data.n_items:,} items, "
            "so there is no item left to draw as a training negative; drop that user."
        )


def _candidates(
    data: Interactions, known: Ragged, protocol: Protocol, seed: int
) -> tuple[IntArray | None, IntArray | None]:
    """Draw, per user, distinct items never interacted with: one half for validation, one for test."""
    if protocol.candidates is None:
        return None, None
    needed = 2 * protocol.candidates
    unseen = data.n_items - known.lengths
    if unseen.min(initial=needed) < needed:
        user = data.user_ids[int(unseen.argmin())]
        raise CoterieError(
            f"User '{user}' of {data.name} has {unseen.min():,} unseen items and {protocol.name} needs "
            f"{needed}; use {protocol.name.replace('loo99', 'loo-full')}, which ranks all items."
        )
    rng = np.random.default_rng([seed, _CANDIDATE_STREAM])
    drawn = _unseen_items(known, _distinct(rng, unseen, needed), data.n_items)
    return drawn[:, : protocol.candidates], drawn[:, protocol.candidates :]


def _distinct(rng: np.random.Generator, sizes: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Draw n distinct numbers below `sizes[u]` for each row u, uniform over ordered draws.

    Repeats within a row are drawn again until none is left. No number is treated differently from any
    other, so every sequence of n distinct numbers stays equally likely.
    """
    drawn = rng.integers(0, sizes[:, None], size=(len(sizes), n))
    open_rows = np.arange(len(sizes))
    while open_rows.size:
        repeated = _repeats(drawn[open_rows])
        row, column = np.nonzero(repeated)
        drawn[open_rows[row], column] = rng.integers(0, sizes[open_rows[row]])
        open_rows = open_rows[repeated.any(axis=1)]
    return drawn


def _repeats(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark every entry that already stands further left in its row."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    repeated = np.zeros(rows.shape, bool)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return repeated


def _unseen_items(
    known: Ragged, places: NDArray[np.int64], n_items: int, users: NDArray[np.int64] | None = None
) -> IntArray:
    """Turn places 0, 1, ... among a user's unseen items into item numbers; a row of places for each user, or `users`.

    The j-th known item v_j has v_j - j unseen items before it, so place p lies behind every known item
    with v_j - j <= p. One search serves all users: their ascending lists are set one after the other.
    """
    users = np.arange(len(known))[:, None] if users is None else users
    owner = np.repeat(np.arange(len(known)), known.lengths)
    position = np.arange(len(known.values)) - known.offsets[owner]
    unseen_before = owner * (n_items + 1) + known.values - position
    found = np.searchsorted(unseen_before, users * (n_items + 1) + places, side="right")
    return (places + found - known.offsets[:-1][users]).astype(np.int32)
