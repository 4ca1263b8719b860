"""Runs of the tiny problem, which the points compare with one another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic.fields import FieldInfo

from coterie.algorithm import Algorithm, Message
from coterie.engine.evaluate import Answers
from coterie.engine.plan import Plan
from coterie.engine.simulate import Conduct, Simulation
from coterie.engine.state import Record, State
from coterie.evaluation.problem import Problem, Task
from coterie.testing import toys

Point = Callable[[Algorithm], None]

ROUNDS = 2

FULL = Conduct.model_validate({"rounds": ROUNDS})
HALF = FULL.model_copy(update={"participation": "fraction", "fraction": 0.5, "dropout": 0.3})

LAYOUT = {"buckets": 1, "chunk_size": 48}
"""One bucket of clients with 5 and 12 interactions: chunks of four, with padding."""


def federated(point: Point) -> Point:
    """Let a centralised algorithm pass a point about clients, which it does not have."""

    @wraps(point)
    def unless_central(algorithm: Algorithm) -> None:
        if not algorithm.central:
            point(algorithm)

    return unless_central


class Watched(Simulation):
    """A simulation that keeps the answers of its last evaluation; `order` lays out clients another way."""

    def __init__(self, *args: Any, order: int | None = None, **layout: Any) -> None:
        self.order, self.answers = order, Answers(None, None)
        super().__init__(*args, **(LAYOUT | layout))

    def _plan(self, buckets: int | None, chunk_size: int) -> Plan:
        plan = super()._plan(buckets, chunk_size)
        return plan if self.order is None else shuffled(plan, self.order)

    def _judge(self, record: Record, answers: Answers, before: State | None) -> None:
        self.answers = answers
        super()._judge(record, answers, before)

    def run(self, rounds: int) -> Watched:
        """Run some rounds."""
        for _ in range(rounds):
            self.advance()
        return self

    def privates(self) -> list[Message]:
        """Return everybody's private state, by client number."""
        stores = [jax.tree.map(np.asarray, store) for store in self.state.stores]
        places = zip(self.plan.bucket_of.tolist(), self.plan.row_of.tolist(), strict=True)
        return [jax.tree.map(lambda leaf, row=row: leaf[row], stores[bucket]) for bucket, row in places]


def shuffled(plan: Plan, seed: int) -> Plan:
    """Return the same plan with the clients of each bucket in another order."""
    rng, row_of, layouts = np.random.default_rng(seed), plan.row_of.copy(), []
    for layout in plan.layouts:
        order = rng.permutation(layout.clients)
        bucket = jax.tree.map(lambda leaf, order=order: jnp.asarray(np.asarray(leaf)[order]), layout.bucket)
        row_of[np.asarray(bucket.client)] = np.arange(layout.clients)
        layouts.append(dataclasses.replace(layout, bucket=bucket, user_numbers=layout.user_numbers[order]))
    return dataclasses.replace(plan, layouts=layouts, row_of=row_of)


_NONE = FieldInfo()


def small(algorithm: Algorithm, task: Task) -> dict[str, Any]:
    """Return settings that make several batches and two passes out of a toy client's few samples.

    Defaults are chosen to rank; a squared error on ratings up to 5 has gradients so much larger that it needs
    small rates to stay finite, and with momentum smaller ones. Adam divides a gradient by its own size, so where
    terms cancel it makes much of a rounding: who can step plainly does. A tower of two small layers compiles in half
    the time of three. Toy items have no text.
    """
    fields = algorithm.Config.model_fields
    rates = [name for name in fields if name.endswith("lr")] if task == "rating" else []
    plain = [
        name
        for name in ("optimiser", "user_optimiser", "server_optimiser")
        if fields.get(name, _NONE).default == "adam"
    ]
    rate = 0.005 if "momentum" in fields else 0.05
    tower = {"layers": (8, 4)} if "layers" in fields else {}
    few: dict[str, Any] = {"batch_size": 16, "local_epochs": 2}
    few |= {"embedding_dim": 8} if fields.get("embedding_dim", _NONE).default == 512 else {}
    few |= {"text": "random"} if "text" in fields else {}
    return few | tower | dict.fromkeys(rates, rate) | dict.fromkeys(plain, "sgd")


@lru_cache(maxsize=2)
def toy(task: Task) -> Problem:
    """Return the tiny problem of a task."""
    return toys.problem(task)


def tasks(algorithm: Algorithm) -> list[Task]:
    """Return the tasks of an algorithm that there is toy data for; the first serves where one is enough."""
    known: tuple[Task, ...] = ("ranking", "rating")
    return [task for task in known if task in algorithm.info.tasks]


def simulation(algorithm: Algorithm, conduct: Conduct = FULL, task: Task | None = None, **layout: Any) -> Watched:
    """Return a simulation of the tiny problem, before its first round."""
    task = task or tasks(algorithm)[0]
    return Watched(algorithm, small(algorithm, task), toy(task), conduct, **layout)


def trained(algorithm: Algorithm, task: Task | None = None) -> Watched:
    """Return the simulation of the tiny problem after its rounds; not to be advanced."""
    return _trained(algorithm, task or tasks(algorithm)[0])


@lru_cache(maxsize=4)
def _trained(algorithm: Algorithm, task: Task) -> Watched:
    return simulation(algorithm, task=task).run(ROUNDS)
