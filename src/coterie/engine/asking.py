"""What clients answer: their scores, and the compiled program that asks all of a bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from coterie.algorithm import Algorithm, Client, ClientConfig, Message
from coterie.engine import evaluate, tables
from coterie.engine.evaluate import Answers
from coterie.engine.plan import Bucket

# LLVM's higher levels cost half the compile time again and gain nothing measurable here.
QUICK = {"xla_backend_optimization_level": 1}


class Trained(NamedTuple):
    """What a client has after local training: its messages and what is needed to evaluate it."""

    upload: Message
    private: Message
    metrics: dict[str, Array]
    download: Message
    rows: tables.Rows | None
    active: Array


@dataclass(frozen=True)
class Asking:
    """The functions of an algorithm that clients answer with.

    `rows` is whether item tables are handed over by row; `task` and `candidates` say what is evaluated; `watched` are
    items whose rank is asked of everybody.
    """

    algorithm: Algorithm
    config: ClientConfig
    n_items: int
    task: str
    candidates: bool
    rows: bool
    watched: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the item tables."""
        return self.algorithm.info.item_tables

    @property
    def local_view(self) -> bool:
        """Whether a client is evaluated with what it just trained."""
        return self.config.eval_table == "local" and self.algorithm.personalise is not None

    def number(self, row: Bucket, users: Array) -> Array:
        """Return the numbers under which an algorithm knows the local users of a client."""
        return row.user_numbers[users] if self.algorithm.info.users == "global" else users

    def trained_scorer(self, row: Bucket, trained: Trained) -> evaluate.ScoreUser:
        """Return the scores of a client that sees what it downloaded as it has trained it."""
        personalise, rows = self.algorithm.personalise, trained.rows
        assert personalise

        def score(user: Array, items: Array) -> Array:
            down, upload, private = trained.download, trained.upload, trained.private
            if rows is not None:
                # Only the rows that are asked for: a view of the whole catalogue would cost more than training.
                down, upload = (
                    tables.take(down, self.names, items),
                    tables.take_changes(upload, self.names, rows, items),
                )
                items = jnp.arange(items.shape[0])
            view = personalise(self.config, down, upload, private)
            return self.algorithm.score(self.config, view, private, self.number(row, user), items)

        return score

    def trained_answers(self, row: Bucket, trained: Trained) -> Answers:
        """Evaluate a client with its own view of what it downloaded."""
        return self.answers(self.trained_scorer(row, trained), row)

    def scorer(self, server: Message, store: Message, row: Bucket, client: Array) -> evaluate.ScoreUser:
        """Return the scores of a client that has just downloaded."""
        algorithm = self.algorithm
        if algorithm.central:
            return lambda user, items: algorithm.score(self.config, server, store, user, items)
        view = algorithm.download(self.config, server, Client(row.client, row.bounds.shape[0] - 1))
        by_row = self.candidates and bool(tables.fields(store, self.names))

        def score(user: Array, items: Array) -> Array:
            user = self.number(row, user)
            private = tables.take_stored(store, self.names, client, items if by_row else None)
            if not by_row:
                return algorithm.score(self.config, view, private, user, items)
            seen = tables.take(view, self.names, items)
            return algorithm.score(self.config, seen, private, user, jnp.arange(items.shape[0]))

        return score

    def answers(self, score: evaluate.ScoreUser, row: Bucket) -> Answers:
        """Ask a client about its held-out items, by the protocol."""
        if self.task == "rating":
            return evaluate.predicted(score, row)
        users = jnp.arange(row.bounds.shape[0] - 1)
        if not self.candidates:
            return evaluate.full(score, row, users, self.n_items, self.watched)
        answers = evaluate.sampled(score, row, users)
        if not self.watched:
            return answers
        return answers._replace(watched=evaluate.full(score, row, users, self.n_items, self.watched).watched)

    def no_answers(self, bucket: Bucket) -> Answers:
        """Return the place for the answers of a bucket."""
        kind = jnp.float32 if self.task == "rating" else jnp.int32
        validation, test = (jnp.zeros(part.items.shape, kind) for part in (bucket.validation, bucket.test))
        shape = (*bucket.test.items.shape[:2], len(self.watched))
        return Answers(validation, test, jnp.zeros(shape, jnp.int32) if self.watched else None)

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def ask(self, server: Message, store: Message, bucket: Bucket, members: Array, chunks: Array) -> Answers:
        """Evaluate the clients `members[:chunks]` of a bucket with the server's present state."""

        def one(row: Bucket, client: Array) -> Answers:
            return self.answers(self.scorer(server, store, row, client), row)

        return each_client(one, self.no_answers(bucket), bucket, members, chunks)


def each_client(one: Callable[[Bucket, Array], Any], start: Any, bucket: Bucket, members: Array, chunks: Array) -> Any:
    """Write `one(row, client)` into `start` for the clients `members[:chunks]`, a chunk at a time."""

    def chunk(i: Array, answers: Any) -> Any:
        client = jnp.maximum(members[i], 0)
        new = jax.vmap(one)(jax.tree.map(lambda leaf: leaf[client], bucket), client)
        where = jnp.where(members[i] >= 0, members[i], len(bucket.client))
        return jax.tree.map(lambda all_, mine: all_.at[where].set(mine, mode="drop"), answers, new)

    return jax.lax.fori_loop(0, chunks, chunk, start)
