"""The tiny problem in the plain loop: what its rounds come to, and what travels in the first of them."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.algorithm import Algorithm, Client, Message
from coterie.engine.evaluate import MISS
from coterie.engine.reference import Reference
from coterie.evaluation.problem import Task
from coterie.testing.contract.runs import ROUNDS, tasks, trained

QUICK = {"xla_backend_optimization_level": 0}


class Followed(NamedTuple):
    """What the plain loop came to: server, private states, and the test answers of one user after the other."""

    server: Message
    privates: list[Message]
    answers: NDArray[Any]


class Exchange(NamedTuple):
    """One client in the first round: what it is sent, what it sends, its private state before and after."""

    client: int
    download: Message
    upload: Message
    before: Message
    after: Message


@lru_cache(maxsize=4)
def loop(algorithm: Algorithm, task: Task) -> Reference:
    """Return the plain loop over the tiny problem, its functions compiled one by one, without much ado."""
    like = trained(algorithm, task)
    compiled: dict[str, Any] = {
        name: jax.jit(getattr(algorithm, name), static_argnums=place, compiler_options=QUICK)
        for name, place in {"local_update": 1, "score": 0}.items()
    }
    return Reference(dataclasses.replace(algorithm, **compiled), like.config, like.catalogue, like.problem)


@lru_cache(maxsize=4)
def followed(algorithm: Algorithm, task: Task) -> Followed:
    """Run the plain loop."""
    reference = loop(algorithm, task)
    server, privates = reference.start()
    for number in range(ROUNDS):
        before = server
        server, privates, views = reference.round(number, server, privates)
    answers = []
    for user in range(reference.problem.data.n_users):
        client = int(reference.problem.home[user])
        view = _seen_by(reference, client, before, server, views)
        answers.append(_answered(reference, view, privates[client], client, user))
    return Followed(server, privates, np.concatenate(answers))


def _seen_by(reference: Reference, client: int, before: Message, after: Message, views: dict[int, Message]) -> Message:
    """What a client is evaluated with: the new global state, or its own view of what it downloaded."""
    local = reference.config.eval_table == "local" and reference.algorithm.personalise is not None
    if local and client in views:
        return views[client]
    return _downloaded(reference, before if local else after, client)


def _downloaded(reference: Reference, server: Message, client: int) -> Message:
    room = max(1, len(reference.users(client)))
    return reference.algorithm.download(reference.config, server, Client(client, room))


def _answered(reference: Reference, view: Message, private: Message, client: int, user: int) -> NDArray[Any]:
    if reference.problem.protocol.task == "ranking":
        return np.minimum(reference.test_ranks(view, private, client, user), MISS)
    items, known_as = jnp.asarray(reference.problem.test.items[user]), reference.number(client, user)
    return np.asarray(reference.algorithm.score(reference.config, view, private, known_as, items))


@lru_cache(maxsize=4)
def exchanges(algorithm: Algorithm) -> list[Exchange]:
    """Train each client that has data once, from the start."""
    reference = loop(algorithm, tasks(algorithm)[0])
    server, privates = reference.start()
    found = []
    for client in np.unique(reference.problem.client).tolist():
        upload, after, _, _ = reference.train(0, server, privates[client], client)
        found.append(Exchange(client, _downloaded(reference, server, client), upload, privates[client], after))
    return found
