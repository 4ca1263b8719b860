"""A data set under a protocol: what is trained on, where it lives, and what is asked at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.data.interactions import IntArray, Interactions
from coterie.data.ragged import Ragged

Task = Literal["ranking", "rating"]
Part = Literal["validation", "test"]


@dataclass(frozen=True)
class Protocol:
    """How a number is measured; its name stands beside every number.

    `candidates` is the number of sampled items the held-out one competes with; None ranks all items.
    `leaks` is the published form: training negatives are never drawn from a user's held-out items, or, where ratings
    are predicted, the test chooses the round.
    `select` is the validation metric that chooses the round.
    """

    name: str
    task: Task
    split: Literal["leave-one-out", "user-ratio", "global-ratio", "given"]
    layout: Literal["users", "groups", "dirichlet", "given"]
    candidates: int | None
    k: int
    select: str
    leaks: bool
    about: str

    @property
    def selecting(self) -> str:
        """The name of the metric that chooses the round."""
        return self.select if self.task == "rating" else f"{self.select}@{self.k}"

    @property
    def lower_is_better(self) -> bool:
        """Whether the selecting metric is an error."""
        return self.task == "rating"


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows of one part, by user and ascending item number.

    `candidates[u]` are the sampled rivals (users x n), or None.
    """

    items: Ragged
    ratings: Ragged
    candidates: IntArray | None


@dataclass(frozen=True)
class Problem:
    """Everything the engine needs to train and to evaluate.

    `train` holds row numbers of `data`; `client` is the client of each training row; `home` is the client
    whose model answers for a user; `never_negative[u]` lists, sorted and without repeats, the items never
    drawn as training negatives of user u.
    """

    data: Interactions
    protocol: Protocol
    seed: int
    train: NDArray[np.int64]
    client: IntArray
    home: IntArray
    n_clients: int
    never_negative: Ragged
    validation: HeldOut
    test: HeldOut

    @property
    def popularity(self) -> IntArray:
        """Training interactions per item."""
        counts = np.bincount(self.data.items[self.train], minlength=self.data.n_items)
        return counts.astype(np.int32)

    def held_out(self, part: Part) -> HeldOut:
        """Return the held-out rows of a part."""
        return self.validation if part == "validation" else self.test

    def masked(self, part: Part) -> Ragged:
        """Items of each user, sorted, that take no place in a full ranking of a part.

        These are the training items and, when testing, the validation items too.
        """
        users, items = self.data.users[self.train], self.data.items[self.train]
        if part == "test":
            users = np.concatenate([users, np.repeat(np.arange(self.data.n_users), self.validation.items.lengths)])
            items = np.concatenate([items, self.validation.items.values])
        return Ragged.group(users, items, self.data.n_users).sorted()
