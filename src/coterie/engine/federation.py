"""The server steps of a federation: clients train, uploads arrive and are checked, the server moves.

[ train ] per bucket, one program each  ->  malicious uploads  ->  checks  ->  sums, or a defence  ->  server step
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from coterie.algorithm import Message, Received
from coterie.defence import Defence, DefenceConfig
from coterie.engine import intake, singles
from coterie.engine.attackers import Attackers
from coterie.engine.participation import Step
from coterie.engine.plan import Layout, Plan
from coterie.engine.round import Keys, Outcome, Programs
from coterie.engine.serverside import ServerSide, added
from coterie.engine.state import Beside, State
from coterie.engine.store import Store
from coterie.errors import CoterieError
from coterie.uploads import Uploads

T = TypeVar("T")
POOL = ThreadPoolExecutor(os.cpu_count())

Clients = NDArray[np.int64]


@dataclass(frozen=True)
class Guard:
    """A defence and its settings."""

    defence: Defence
    config: DefenceConfig


@dataclass(frozen=True)
class Stepped:
    """What came of a step: the outcomes of the buckets, how many uploads were used, and whose were refused."""

    outcomes: list[Outcome]
    uploads: int
    refused: list[str]


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients in buckets, malicious ones beside them, and a server; `most` clients take part in a step."""

    programs: Programs
    plan: Plan
    store: Store
    server: ServerSide
    upload: Message
    most: int
    attackers: Attackers | None = None
    guard: Guard | None = None

    @property
    def n_clients(self) -> int:
        """Number of clients, malicious ones included."""
        return self.plan.n_clients + (self.attackers.count if self.attackers else 0)

    def start(self, server: Message, key: Array) -> Beside:
        """Return what is kept beside the state before the first round."""
        beside = self.server.start(server)
        if self.guard:
            zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self.upload)
            beside = beside._replace(defence=self.guard.defence.init(self.guard.config, zeros))
        if self.attackers:
            beside = beside._replace(attackers=self.attackers.start(key))
        return beside

    def step(self, drawn: Keys, key: Array, state: State, step: Step) -> Stepped:
        """Take one server step; the private states of `state` are used up and replaced."""
        honest = step.arrived[step.arrived < self.plan.n_clients]
        outcomes = self.train(drawn, state, honest)
        state.stores = [out.store for out in outcomes]
        refused = self._refused(outcomes)
        state.beside, evil, more = self._attacked(key, state, step.arrived[step.arrived >= self.plan.n_clients])
        uploads = sum(int(out.clients) for out in outcomes) + len(evil)
        if uploads:
            received, state.beside = self._received(state.beside, outcomes, evil)
            state.server, state.beside = self.server.step(key, state.server, state.beside, received)
        return Stepped(outcomes, uploads, refused + more)

    def train(self, drawn: Keys, state: State, clients: Clients) -> list[Outcome]:
        """Train clients; the private states of `state` are used up."""

        def train(number: int, layout: Layout) -> Outcome:
            store, members = self.store.fetch(state.stores[number]), self.members(number, clients, self.most)
            out = self.programs.train(drawn, state.server, store, layout.bucket, *members)
            return out._replace(store=self.store.keep(out.store), uploads=self.store.keep(out.uploads))

        return self.at_once(train)

    def _refused(self, outcomes: list[Outcome]) -> list[str]:
        """Name the clients whose uploads were not fit to be used."""
        found = []
        for layout, out in zip(self.plan.layouts, outcomes, strict=True):
            found += np.asarray(layout.bucket.client)[np.asarray(out.refused)].tolist()
        return [f"client {number}: its upload has numbers that are not finite, or is too long" for number in found]

    def _attacked(self, key: Array, state: State, who: Clients) -> tuple[Beside, list[Message], list[str]]:
        """Let the malicious clients among those that arrived craft their uploads, and check these."""
        if self.attackers is None or not len(who):
            return state.beside, [], []
        numbers = who - self.plan.n_clients
        sent, memory = self.attackers.craft(key, state.server, state.beside.attackers, numbers)
        uploads, refused = [], []
        for number, upload in zip(numbers.tolist(), sent, strict=True):
            try:
                uploads.append(intake.checked(upload, self.upload, self.programs.bound))
            except CoterieError as error:
                refused.append(f"malicious client {number}: its upload was refused, {error}")
        return state.beside._replace(attackers=memory), uploads, refused

    def _received(self, beside: Beside, outcomes: list[Outcome], evil: list[Message]) -> tuple[Received, Beside]:
        """Put together what reaches the server: sums, or what a defence takes them to be, or the single uploads."""
        sums = [Received(out.total, out.weight, out.clients, out.touched) for out in outcomes]
        if evil:
            sums.append(self._summed(evil, outcomes))
        received = added(sums)
        if self.guard:
            rows = singles.gathered([out.singles for out in outcomes], evil, self.programs, self._claimed(outcomes))
            total, memory = self.guard.defence.combine(self.guard.config, rows, beside.defence)
            return received._replace(total=jax.tree.map(jnp.asarray, total)), beside._replace(defence=memory)
        if self.server.algorithm.info.server_sees == "updates":
            place = np.argsort(np.concatenate([layout.bucket.client for layout in self.plan.layouts]))
            uploads = Uploads([self._uploads(out) for out in outcomes], place)
            present = np.concatenate([np.asarray(out.present) for out in outcomes])[place]
            received = received._replace(uploads=uploads, present=jnp.asarray(present))
        return received, beside

    def _claimed(self, outcomes: list[Outcome]) -> float:
        """Return the weight that a malicious client claims: that of an average client of the step."""
        clients = sum(int(out.clients) for out in outcomes)
        return sum(float(out.weight) for out in outcomes) / clients if clients else 1.0

    def _summed(self, evil: list[Message], outcomes: list[Outcome]) -> Received:
        weight = np.float32(self._claimed(outcomes))
        total = jax.tree.map(lambda *leaves: weight * sum(leaves), *evil)
        touched = None
        if outcomes[0].touched is not None:
            touched = np.sum([singles.moved(upload, self.programs) for upload in evil], 0).astype(np.float32)
        return Received(total, jnp.float32(weight * len(evil)), jnp.int32(len(evil)), touched)

    def _uploads(self, out: Outcome) -> Message:
        """Return the single uploads of a bucket; those that a client also keeps are read where it keeps them."""
        if out.uploads is not None:
            return out.uploads
        return out.total._replace(**{name: getattr(out.store, name) for name in out.total._fields})

    def receive(self, state: State, clients: Clients) -> dict[str, int]:
        """Let clients receive their answers; returns, by flag, how many answers had it."""

        def receive(number: int, layout: Layout) -> tuple[Message, dict[str, Any]]:
            store, members = self.store.fetch(state.stores[number]), self.members(number, clients)
            store, flags = self.programs.receive(state.server, store, layout.bucket, *members)
            return self.store.keep(store), flags

        received = self.at_once(receive)
        state.stores = [store for store, _ in received]
        return {name: sum(int(counts[name]) for _, counts in received) for name in received[0][1]}

    def at_once(self, call: Callable[[int, Layout], T]) -> list[T]:
        """Call a program for every bucket, as many at a time as there are cores.

        One program leaves most of a second core idle, because its steps are small; two side by side do not.
        """
        layouts = self.plan.layouts
        wait = lambda number: jax.block_until_ready(call(number, layouts[number]))  # noqa: E731
        largest_first = sorted(range(len(layouts)), key=lambda number: -layouts[number].bucket.items.size)
        begun = {number: POOL.submit(wait, number) for number in largest_first}
        return [begun[number].result() for number in range(len(layouts))]

    def members(self, bucket: int, clients: Clients, most: int | None = None) -> tuple[NDArray[np.int32], int]:
        """Rows of the bucket that take part, in chunks of fixed length (-1 is nobody), and how many chunks.

        There is room for `most` clients, without it for all.
        """
        layout = self.plan.layouts[bucket]
        rows = self.plan.row_of[clients[self.plan.bucket_of[clients] == bucket]]
        chunks = -(-min(layout.clients, most or layout.clients) // layout.chunk)
        table = np.full(chunks * layout.chunk, -1, np.int32)
        table[: len(rows)] = rows
        return table.reshape(chunks, layout.chunk), -(-len(rows) // layout.chunk)
