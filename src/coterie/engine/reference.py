"""The same round as a plain loop over clients: slow, obvious, and the truth that the compiled round must equal.

Nothing is padded, chunked or renumbered here: each client gets whole item tables and its own samples, one after
the other, and held-out items are ranked by the plainest rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from coterie.algorithm import Algorithm, Catalogue, Client, ClientConfig, Message, Received, Samples
from coterie.data import negatives
from coterie.engine import keys
from coterie.engine.serverside import ServerSide
from coterie.engine.state import Beside
from coterie.evaluation.metrics import rank_of
from coterie.evaluation.problem import Problem
from coterie.privacy.mechanisms import Privacy, protected
from coterie.regulariser import Popularity, Sides
from coterie.uploads import Uploads

draw = jax.jit(negatives.draw, static_argnums=(1, 2, 9))


@dataclass
class Reference:
    """One algorithm on one problem; `beside` is what its server keeps beside its state, from round to round.

    `privacy` is what a client does to its upload before it leaves.
    """

    algorithm: Algorithm
    config: ClientConfig
    catalogue: Catalogue
    problem: Problem
    beside: Beside | None = None
    privacy: Privacy = field(default_factory=Privacy)

    def users(self, client: int) -> NDArray[np.int64]:
        """Users with records at a client or answered there, ascending."""
        problem = self.problem
        rows = problem.train[problem.client == client]
        return np.union1d(problem.data.users[rows], np.flatnonzero(problem.home == client))

    def start(self) -> tuple[Message, list[Message]]:
        """Return the initial server state and each client's private state."""
        self.beside = None
        seed, config = self.problem.seed, self.config
        server = self.algorithm.init_server(keys.stream(seed, "server"), config, self.catalogue)
        key = keys.stream(seed, "client")
        room = [max(1, len(self.users(number))) for number in range(self.problem.n_clients)]
        privates = [
            self.algorithm.init_client(key, config, self.catalogue, Client(number, users))
            for number, users in enumerate(room)
        ]
        return server, privates

    def samples(self, number: int, client: int) -> Samples:
        """Draw a client's samples of a round."""
        problem, users = self.problem, self.users(client)
        rows = problem.train[problem.client == client]
        known = [problem.never_negative[user] for user in users]
        gaps = np.concatenate([items - np.arange(len(items)) for items in known]) if known else np.zeros(1)
        bounds = np.concatenate([[0], np.cumsum([len(items) for items in known])])
        rating = problem.protocol.task == "rating"
        drawn = draw(
            keys.at(keys.stream(problem.seed, "negatives"), number if self.config.redraw else 0, client),
            self.config.negatives,
            problem.data.n_items,
            jnp.asarray(np.searchsorted(users, problem.data.users[rows]), jnp.int32),
            jnp.asarray(problem.data.items[rows]),
            jnp.asarray(problem.data.ratings[rows] if rating else np.ones(len(rows)), jnp.float32),
            jnp.int32(len(rows)),
            jnp.asarray(gaps, jnp.int32),
            jnp.asarray(bounds, jnp.int32),
            self.config.virtual_ratings,
        )
        shared = self.algorithm.info.users == "global"
        return drawn._replace(users=jnp.asarray(users, jnp.int32)[drawn.users]) if shared else drawn

    def number(self, client: int, user: int) -> Array:
        """Return the number under which the algorithm knows a user of a client."""
        shared = self.algorithm.info.users == "global"
        return jnp.int32(user if shared else np.searchsorted(self.users(client), user))

    def train(
        self, number: int, server: Message, private: Message, client: int
    ) -> tuple[Message, Message, dict[str, Array], Message]:
        """Train one client; returns upload, private state, metrics and the client's own view."""
        down = self.algorithm.download(self.config, server, Client(client, max(1, len(self.users(client)))))
        key = keys.at(keys.stream(self.problem.seed, "training"), number, client)
        data = self.samples(number, client)
        upload, private, measured = self.algorithm.local_update(key, self.config, down, private, data)
        view = down
        if self.config.eval_table == "local" and self.algorithm.personalise:
            view = self.algorithm.personalise(self.config, down, upload, private)
        return upload, private, measured, view

    def round(
        self, number: int, server: Message, privates: list[Message], clients: NDArray[np.int64] | None = None
    ) -> tuple[Message, list[Message], dict[int, Message]]:
        """Run one round over `clients`; returns server, private states and the views of who took part.

        A server that nobody reports back to takes no step.
        """
        config, privates, views = self.config, list(privates), {}
        sizes = np.bincount(self.problem.client, minlength=self.problem.n_clients)
        uploads, weights = [], []
        everybody = range(self.problem.n_clients) if clients is None else clients.tolist()
        for client in everybody:
            if sizes[client] == 0:
                continue
            upload, privates[client], _, views[client] = self.train(number, server, privates[client], client)
            noise = keys.at(keys.stream(self.problem.seed, "noise"), number, client)
            uploads.append(protected(noise, self.privacy, upload))
            weights.append(float(sizes[client]) if config.aggregation == "weighted" else 1.0)
        if not uploads:
            return server, privates, views
        key = keys.at(keys.stream(self.problem.seed, "server step"), number, 0)
        received = self._received(uploads, weights, list(views))
        server = self._server_step(number, key, server, received)
        if self.algorithm.answer and self.algorithm.receive:
            for client in views:
                answer = self.algorithm.answer(config, server, Client(client, max(1, len(self.users(client)))))
                privates[client] = self.algorithm.receive(config, answer, privates[client])
        return server, privates, views

    def _server_step(self, number: int, key: Array, server: Message, received: Received) -> Message:
        """Let the server take its step, and do what is due at the end of a round."""
        popularity = Popularity()
        side = ServerSide.of(self.algorithm, self.config, popularity, server, received.total)
        server, beside = side.step(key, server, self.beside or side.start(server), received)
        regularised = self.config.regulariser != "none"
        sides = Sides.of(popularity, self.catalogue.popularity) if regularised else None
        ending = keys.at(keys.stream(self.problem.seed, "end of round"), number)
        server, self.beside = side.end_round(ending, server, beside, sides)
        return server

    def _received(self, uploads: list[Message], weights: list[float], present: list[int]) -> Received:
        total = jax.tree.map(lambda *leaves: sum(w * leaf for w, leaf in zip(weights, leaves, strict=True)), *uploads)
        received = Received(total, sum(weights), len(uploads))
        if self.config.aggregation == "per_item_mean":
            tables = [getattr(upload, self.algorithm.info.item_tables[0]) for upload in uploads]
            received = received._replace(touched=jnp.stack([jnp.any(table != 0, axis=1) for table in tables]).sum(0))
        if self.algorithm.info.server_sees == "updates":
            where = jnp.asarray(present)
            blank = jax.tree.map(lambda leaf: jnp.zeros((self.problem.n_clients, *leaf.shape)), uploads[0])
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *uploads)
            received = received._replace(
                uploads=Uploads(
                    [jax.tree.map(lambda b, s: b.at[where].set(s), blank, stacked)], np.arange(self.problem.n_clients)
                ),
                present=jnp.zeros(self.problem.n_clients, bool).at[where].set(True),
            )
        return received

    def test_ranks(self, view: Message, private: Message, client: int, user: int) -> NDArray[np.int32]:
        """Rank a user's test items with a client's view."""
        problem, n_items = self.problem, self.problem.data.n_items
        known_as = self.number(client, user)
        scores = np.asarray(self.algorithm.score(self.config, view, private, known_as, jnp.arange(n_items)))
        held = problem.test.items[user]
        if problem.test.candidates is None:
            return rank_of(scores, held, problem.masked("test")[user])
        outside = np.setdiff1d(np.arange(n_items), np.append(problem.test.candidates[user], held))
        return rank_of(scores, held, outside)
