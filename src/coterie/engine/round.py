"""The compiled round: every client of a bucket trained, counted and evaluated in one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from coterie.algorithm import Client, Message, Samples
from coterie.data.negatives import draw, n_samples
from coterie.engine import evaluate, intake, tables
from coterie.engine.asking import QUICK, Asking, Trained, each_client
from coterie.engine.evaluate import Answers, Lists
from coterie.engine.keys import at, stream
from coterie.engine.plan import Bucket
from coterie.privacy.mechanisms import Privacy, protected


class Keys(NamedTuple):
    """The keys of a round by client number: for drawing negatives, for local training, for noise on the upload."""

    negatives: Array
    training: Array
    noise: Array


def streams(seed: int) -> Keys:
    """Return the keys that those of all rounds and clients come from."""
    return Keys(*(stream(seed, name) for name in Keys._fields))


@partial(jax.jit, static_argnums=2)
def round_keys(streams: Keys, number: Array, n_clients: int, redraw: bool = True) -> Keys:
    """Return the keys of every client for one round; `redraw` is whether negatives are drawn anew in each."""
    each = jax.vmap(at, in_axes=(None, None, 0))
    numbers = Keys(jnp.where(redraw, number, 0), number, number)
    return Keys(*(each(key, when, jnp.arange(n_clients)) for key, when in zip(streams, numbers, strict=True)))


class Singles(NamedTuple):
    """Single uploads of a step, rows of item tables apart, in the order of its members (`sent`: who sent one).

    Row i of a client's tables is of item `ids[i]`, if it is its `own`; its other fields are whole.
    """

    sent: Any
    weight: Any
    ids: Any
    own: Any
    upload: Message


class Outcome(NamedTuple):
    """What a bucket hands on: private states, weighted sums, and sums of metrics and answers.

    `uploads` holds the single ones, by row of the bucket, and `present` who sent one, if the server asks for them;
    uploads that are in the private states as they are need no place of their own. `singles` has them for a defence.
    `refused` says, by row of the bucket, whose upload was not fit to be used.
    """

    store: Message
    total: Message
    weight: Any
    clients: Any
    touched: Any
    uploads: Message | None
    present: Any
    singles: Singles | None
    refused: Any
    metrics: dict[str, Array]
    answers: Answers | None


class Shapes(NamedTuple):
    """Shapes of the messages of one client and of what it measures; nothing for centralised methods."""

    download: Message
    upload: Message
    answer: Message
    metrics: dict[str, Array]


@dataclass(frozen=True)
class Programs(Asking):
    """The functions of an algorithm, made into functions of a whole bucket.

    `defended` is whether a defence asks for single uploads, `bound` the longest upload that is taken, `privacy` what a
    client does to its upload before it leaves.
    """

    defended: bool = False
    bound: float | None = None
    privacy: Privacy = field(default_factory=Privacy)

    def shapes(self, server: Message, store: Message) -> Shapes:
        """Return the shapes of what one client sends and is sent, item tables whole, without computing them."""
        algorithm, key, sample = self.algorithm, jax.random.key(0), jnp.zeros(1, jnp.int32)
        data = Samples(sample, sample, jnp.zeros(1), 1, 1)

        def one(server: Message, store: Message) -> Shapes:
            if algorithm.central:
                return Shapes((), (), (), {})
            client = Client(0, 1)
            down = algorithm.download(self.config, server, client)
            private = jax.tree.map(lambda leaf: leaf[0], store)
            upload, _, metrics = algorithm.local_update(key, self.config, down, private, data)
            answer = algorithm.answer(self.config, server, client) if algorithm.answer else ()
            return Shapes(down, upload, answer, metrics)

        return jax.eval_shape(one, server, store)

    # -- one client ---------------------------------------------------------------------------------------

    def samples(self, keys: Keys, row: Bucket) -> Samples:
        """Draw the samples of one client for one round."""
        drawn = draw(
            keys.negatives[row.client], self.config.negatives, self.n_items,
            row.users, row.items, row.labels, row.count, row.gaps, row.bounds, self.config.virtual_ratings,
        )  # fmt: skip
        return drawn._replace(users=self.number(row, drawn.users))

    def n_samples(self, count: Array) -> Array:
        """Return the number of samples that a client with `count` interactions draws."""
        return n_samples(count, self.config.negatives, self.config.virtual_ratings)

    def train_client(
        self, keys: Keys, server: Message, store: Message, turn: Array | int, row: Bucket, client: Array,
        active: Array, most: Array, slot: Array | None,
    ) -> Trained:  # fmt: skip
        """Download, draw samples, train: one client, seen through its rows where that is enough (see `renumber`)."""
        algorithm = self.algorithm
        data = self.samples(keys, row)
        data = data._replace(count=jnp.where(active, data.count, 0), most=most)
        down = algorithm.download(self.config, server, Client(row.client, row.bounds.shape[0] - 1))
        rows, view = None, down
        if slot is not None:
            rows, data = tables.renumber(slot, turn, data)
            view = tables.take(down, self.names, rows.ids)
        private = tables.take_stored(store, self.names, client, rows.ids if rows else None)
        key = keys.training[row.client]
        upload, private, metrics = algorithm.local_update(key, self.config, view, private, data)
        return Trained(upload, private, metrics, down, rows, active)

    # -- one bucket ---------------------------------------------------------------------------------------

    @partial(jax.jit, static_argnums=0, donate_argnums=3, compiler_options=QUICK)
    def train(
        self, keys: Keys, server: Message, store: Message, bucket: Bucket, members: Array, chunks: Array
    ) -> Outcome:
        """Train the clients `members[:chunks]` (chunks x clients; -1 is nobody) of a bucket."""

        def chunk(i: Array, carry: tuple[Outcome, Array | None]) -> tuple[Outcome, Array | None]:
            out, slots = carry
            there = members[i] >= 0
            client = jnp.where(there, members[i], 0)
            rows = jax.tree.map(lambda leaf: leaf[client], bucket)
            active = there & (rows.count > 0)
            each = partial(self.train_client, keys, server, out.store, i)
            trained = self._train_chunk(each, rows, client, active, slots)
            where = jnp.where(there, members[i], len(bucket.client))
            outgoing = self._outgoing(keys, rows, trained)
            out = self._collect(out, trained, outgoing, bucket, rows, where, i)
            return out, trained.rows.slot if trained.rows else None

        slots = jnp.full((members.shape[1], self.n_items), tables.FREE) if self.rows else None
        nobody = self._nobody(keys, server, store, bucket, members.size)
        return jax.lax.fori_loop(0, chunks, chunk, (nobody, slots))[0]

    def _train_chunk(
        self, train: Callable[..., Trained], rows: Bucket, client: Array, active: Array, slots: Array | None
    ) -> Trained:
        """Train clients side by side, or, where each of them works on a whole catalogue, one after the other.

        Large matrices of many clients at once leave the processor's cache: that is several times slower.
        """
        samples = jnp.where(active, self.n_samples(rows.count), 0)
        if self.rows:
            return jax.vmap(train, in_axes=(0, 0, 0, None, 0))(rows, client, active, jnp.max(samples), slots)
        return jax.lax.map(lambda each: train(*each, None), (rows, client, active, samples))

    def _nobody(self, keys: Keys, server: Message, store: Message, bucket: Bucket, members: int) -> Outcome:
        """Return the outcome of a bucket in which nobody took part, with room for so many members."""
        clients, shape = len(bucket.client), self.shapes(server, store)
        asks = self.algorithm.info.server_sees == "updates"
        stored = set(shape.upload._fields) <= set(self.algorithm.info.shares) and not self.privacy.noised
        return Outcome(
            store=store,
            total=_zeros(shape.upload),
            weight=jnp.zeros(()),
            clients=jnp.zeros((), jnp.int32),
            touched=jnp.zeros(self.n_items) if self.config.aggregation == "per_item_mean" else None,
            uploads=_zeros(shape.upload, clients) if asks and not stored else None,
            present=jnp.zeros(clients, bool) if asks else None,
            singles=self._no_singles(keys, shape.upload, bucket, members) if self.defended else None,
            refused=jnp.zeros(clients, bool),
            metrics=_zeros(shape.metrics),
            answers=self.no_answers(bucket) if self.local_view else None,
        )

    def _no_singles(self, keys: Keys, upload: Message, bucket: Bucket, members: int) -> Singles:
        """Return the place for the single uploads of so many members."""
        samples = jax.eval_shape(self.samples, keys, jax.tree.map(lambda leaf: leaf[0], bucket))
        by_rows = self.rows and not self.privacy.noised
        rows = min(samples.items.shape[0], self.n_items) if by_rows else self.n_items
        by_row = {
            name: jax.ShapeDtypeStruct((rows, *getattr(upload, name).shape[1:]), getattr(upload, name).dtype)
            for name in tables.fields(upload, self.names)
        }
        return Singles(
            sent=jnp.zeros(members, bool),
            weight=jnp.zeros(members),
            ids=jnp.zeros((members, rows), jnp.int32),
            own=jnp.zeros((members, rows), bool),
            upload=_zeros(upload._replace(**by_row), members),
        )

    def _outgoing(self, keys: Keys, rows: Bucket, trained: Trained) -> Trained:
        """Return a chunk of trained clients with the uploads that leave them; noise is on whole tables."""
        if not self.privacy.noised:
            return trained
        upload = trained.upload
        if trained.rows is not None:
            whole = partial(tables.whole_changes, tables=self.names, n_items=self.n_items)
            upload = jax.vmap(whole)(upload, rows=trained.rows)
        protect = jax.vmap(lambda key, upload: protected(key, self.privacy, upload))
        return trained._replace(upload=protect(keys.noise[rows.client], upload), rows=None)

    def _collect(
        self, out: Outcome, trained: Trained, outgoing: Trained, bucket: Bucket, rows: Bucket, where: Array, turn: Array
    ) -> Outcome:
        """Add a chunk of trained clients to the outcome; clients go by what they `trained`, the server by `outgoing`.

        Those not active leave no trace. An upload that is not fit to be used is dropped; its client keeps what it has
        learned.
        """
        active = trained.active
        sent = active & jax.vmap(partial(intake.fit, bound=self.bound), axis_size=len(active))(self._own_rows(outgoing))
        weight = sent * (rows.count if self.config.aggregation == "weighted" else 1.0)
        place, heard = (jnp.where(mask, where, len(bucket.client)) for mask in (active, sent))
        answers, uploads = out.answers, out.uploads
        if answers is not None:
            new = jax.vmap(self.trained_answers)(rows, trained)
            answers = jax.tree.map(lambda all_, mine: all_.at[where].set(mine, mode="drop"), answers, new)
        return Outcome(
            store=self._written(out.store, trained.private, trained.rows, place),
            total=self._summed(out.total, outgoing, weight),
            weight=out.weight + weight.sum(),
            clients=out.clients + sent.sum(dtype=jnp.int32),
            touched=None if out.touched is None else self._count_touched(out.touched, outgoing, sent),
            uploads=None if uploads is None else self._written(uploads, outgoing.upload, outgoing.rows, heard),
            present=None if out.present is None else out.present.at[heard].set(True, mode="drop"),
            singles=None if out.singles is None else self._kept_apart(out.singles, outgoing, sent, weight, turn),
            refused=out.refused.at[place].set(~sent, mode="drop"),
            metrics=jax.tree.map(lambda s, m: s + jnp.sum(jnp.where(sent, m, 0)), out.metrics, trained.metrics),
            answers=answers,
        )

    def _own_rows(self, trained: Trained) -> Message:
        """Return the uploads of a chunk with zeros in rows that stand for no item."""
        rows, upload = trained.rows, trained.upload
        if rows is None:
            return upload
        mine = {name: getattr(upload, name) for name in tables.fields(upload, self.names)}
        return upload._replace(**{name: _silenced(rows.own, table) for name, table in mine.items()})

    def _kept_apart(self, kept: Singles, trained: Trained, sent: Array, weight: Array, turn: Array) -> Singles:
        """Write a chunk of uploads where the members of its turn have their place."""
        rows, upload = trained.rows, trained.upload
        if rows is None:
            own = self._moved(upload)
            ids = jnp.broadcast_to(jnp.arange(self.n_items, dtype=jnp.int32)[None, :], own.shape)
        else:
            ids, own = rows.ids, rows.own
        new = Singles(sent, weight.astype(kept.weight.dtype), ids, own & sent[:, None], upload)
        start = turn * len(sent)
        return jax.tree.map(lambda old, part: jax.lax.dynamic_update_slice_in_dim(old, part, start, 0), kept, new)

    def _summed(self, total: Message, trained: Trained, weight: Array) -> Message:
        rows = trained.rows
        by_row = tables.fields(total, self.names)

        def grow(name: str) -> Any:
            old, new = getattr(total, name), getattr(trained.upload, name)
            if rows is None or name not in by_row:
                return jax.tree.map(lambda o, n: o + jnp.einsum("c,c...->...", weight, _silenced(weight, n)), old, new)
            share = jnp.where(rows.own, weight[:, None], 0)
            change = _silenced(share, new) * share.reshape(*share.shape, *[1] * (new.ndim - 2))
            return old.at[rows.ids.reshape(-1)].add(change.reshape(-1, *new.shape[2:]))

        return total._replace(**{name: grow(name) for name in total._fields})

    def _count_touched(self, touched: Array, trained: Trained, sent: Array) -> Array:
        if trained.rows is not None:
            return touched.at[trained.rows.ids].add((trained.rows.own & sent[:, None]).astype(touched.dtype))
        return touched + (self._moved(trained.upload) & sent[:, None]).sum(0)

    def _moved(self, uploads: Message) -> Array:
        """Whether a client's whole tables say something of an item, for each client and item of a chunk."""
        mine = [getattr(uploads, name) for name in tables.fields(uploads, self.names)]
        return jnp.any(jnp.stack([jnp.any(t != 0, axis=tuple(range(2, t.ndim))) for t in mine]), axis=0)

    def _written(self, kept: Message, new: Message, rows: tables.Rows | None, place: Array) -> Message:
        """Write a chunk of clients' messages into arrays that hold one of each client of the bucket."""
        by_row = tables.fields(kept, self.names)

        def write(name: str) -> Any:
            old, mine = getattr(kept, name), getattr(new, name)
            if rows is None or name not in by_row:
                return jax.tree.map(lambda o, n: o.at[place].set(n, mode="drop"), old, mine)
            ids = jnp.where(rows.own, rows.ids, self.n_items)
            return old.at[place[:, None], ids].set(mine, mode="drop")

        return kept._replace(**{name: write(name) for name in kept._fields})

    @partial(jax.jit, static_argnums=0, donate_argnums=2, compiler_options=QUICK)
    def receive(
        self, server: Message, store: Message, bucket: Bucket, members: Array, chunks: Array
    ) -> tuple[Message, dict[str, Array]]:
        """Hand their answers to the clients `members[:chunks]`; also counts, by flag, the answers that have it."""
        send, keep = self.algorithm.answer, self.algorithm.receive
        flags = sorted({flag for _, flag in self.algorithm.info.only_if})
        assert send and keep

        def chunk(i: Array, carry: tuple[Message, dict[str, Array]]) -> tuple[Message, dict[str, Array]]:
            store, counts = carry
            there = members[i] >= 0
            client = jnp.where(there, members[i], 0)
            rows = jax.tree.map(lambda leaf: leaf[client], bucket)

            def one(each: tuple[Bucket, Array]) -> tuple[Message, dict[str, Array]]:
                row, client = each
                answer = send(self.config, server, Client(row.client, row.bounds.shape[0] - 1))
                private = tables.take_stored(store, self.names, client, None)
                return keep(self.config, answer, private), {name: getattr(answer, name) for name in flags}

            private, flagged = jax.lax.map(one, (rows, client))
            active = there & (rows.count > 0)
            place = jnp.where(active, members[i], len(bucket.client))
            counts = {name: counts[name] + jnp.sum(active & flagged[name], dtype=jnp.int32) for name in flags}
            return self._written(store, private, None, place), counts

        start = store, {name: jnp.zeros((), jnp.int32) for name in flags}
        return jax.lax.fori_loop(0, chunks, chunk, start)

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def train_centrally(self, keys: Keys, server: Message, bucket: Bucket) -> tuple[Message, dict[str, Array]]:
        """Train on all data in one place: one pass over the pooled samples."""
        assert self.algorithm.train
        row = jax.tree.map(lambda leaf: leaf[0], bucket)
        return self.algorithm.train(keys.training[0], self.config, server, self.samples(keys, row))

    @partial(jax.jit, static_argnums=(0, 1, 2), compiler_options=QUICK)
    def top(
        self, k: int, trained: bool, keys: Keys, server: Message, store: Message, bucket: Bucket, hidden: Array,
        members: Array, chunks: Array,
    ) -> Lists:  # fmt: skip
        """Return the first k items of the users of `members[:chunks]`, as they are or after they `trained`."""

        def one(row: Bucket, client: Array) -> Lists:
            score = self.scorer(server, store, row, client)
            if trained:
                most = self.n_samples(jnp.max(bucket.count))
                after = self.train_client(keys, server, store, 0, row, client, row.count > 0, most, None)
                score = self.trained_scorer(row, after)
            users = jnp.arange(row.bounds.shape[0] - 1)
            return evaluate.top(score, hidden[client], users, self.n_items, k)

        shape = (*hidden.shape[:2], k)
        nothing = Lists(jnp.zeros(shape, jnp.int32), jnp.zeros(shape))
        return each_client(one, nothing, bucket, members, chunks)


def _silenced(weight: Array, values: Array) -> Array:
    """Return the values, zero where the weight is: a number that is none must not reach a sum by way of 0 * NaN."""
    return jnp.where(weight.reshape(*weight.shape, *[1] * (values.ndim - weight.ndim)) > 0, values, 0)


def _zeros(shape: Any, *lead: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros((*lead, *leaf.shape), leaf.dtype), shape)
