"""The server's step: what the algorithm makes of the sums, its optimiser, and what it does when a round is over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import optax
from jax import Array

from coterie import nn, regulariser
from coterie.algorithm import Algorithm, ClientConfig, Message, Received
from coterie.engine.asking import QUICK
from coterie.engine.state import Beside
from coterie.errors import CoterieError
from coterie.regulariser import Popularity, Sides


@dataclass(frozen=True)
class ServerSide:
    """The server of one algorithm; `learned` are the fields of its state that uploads are about."""

    algorithm: Algorithm
    config: ClientConfig
    popularity: Popularity
    learned: tuple[str, ...]

    @classmethod
    def of(
        cls, algorithm: Algorithm, config: ClientConfig, popularity: Popularity, server: Message, upload: Message
    ) -> ServerSide:
        """Refuse what an algorithm cannot be combined with."""
        learned: tuple[str, ...] = ()
        if not algorithm.central and algorithm.info.upload != "other":
            learned = tuple(name for name in upload._fields if name in server._fields)
        if config.server_optimiser != "none" and not learned:
            raise CoterieError(
                f"server_optimiser={config.server_optimiser} needs uploads that are changes or gradients, and those of "
                f"{algorithm.info.name} are not; leave it at none."
            )
        made = cls(algorithm, config, popularity, learned)
        if config.regulariser != "none" and not made._tables(server):
            raise CoterieError(
                f"regulariser={config.regulariser} needs an item table on the server, and {algorithm.info.name} "
                "has none; leave it at none."
            )
        return made

    def _tables(self, server: Message) -> list[str]:
        tables = [name for name in self.algorithm.info.item_tables if name in server._fields]
        return [name for name in tables if getattr(server, name).ndim == 2 and getattr(server, name).dtype.kind == "f"]

    def start(self, server: Message) -> Beside:
        """Return what is kept beside the state before the first round."""
        moments: Any = ()
        if self.config.server_optimiser != "none":
            moments = self._optimiser.init(self._public(server))
        kept = ()
        if self.config.regulariser != "none":
            kept = tuple(regulariser.init(self.popularity, getattr(server, name)) for name in self._tables(server))
        return Beside(moments, kept)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return nn.OPTIMISERS[self.config.server_optimiser](self.config.server_lr)

    def _public(self, server: Message) -> dict[str, Any]:
        return {name: getattr(server, name) for name in self.learned}

    def step(self, key: Array, server: Message, beside: Beside, received: Received) -> tuple[Message, Beside]:
        """Take one step; an algorithm that sees single uploads takes its own outside compiled programs."""
        if self.algorithm.info.server_sees == "updates":
            after = self.algorithm.server_update(key, self.config, server, received)
            return self._moved(server, after, beside)
        return self._stepped(key, server, beside, received)

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def _stepped(self, key: Array, server: Message, beside: Beside, received: Received) -> tuple[Message, Beside]:
        after = self.algorithm.server_update(key, self.config, server, received)
        return self._moved(server, after, beside)

    def _moved(self, server: Message, after: Message, beside: Beside) -> tuple[Message, Beside]:
        """Let the optimiser make a step of the change that the algorithm made."""
        if self.config.server_optimiser == "none":
            return after, beside
        old = self._public(server)
        change, moments = self._optimiser.update(nn.difference(old, self._public(after)), beside.moments)
        return after._replace(**optax.apply_updates(old, change)), beside._replace(moments=moments)

    def end_round(self, key: Array, server: Message, beside: Beside, sides: Sides | None) -> tuple[Message, Beside]:
        """Do what is due after the last step of a round."""
        if sides is None and self.algorithm.end_round is None:
            return server, beside
        return self._ended(key, server, beside, sides)

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def _ended(self, key: Array, server: Message, beside: Beside, sides: Sides | None) -> tuple[Message, Beside]:
        of_tables, of_algorithm = jax.random.split(key)
        if sides is not None:
            kept: list[Any] = []
            for name, moments in zip(self._tables(server), beside.regulariser, strict=True):
                table, moments = regulariser.apply(of_tables, self.popularity, getattr(server, name), sides, moments)
                server, kept = server._replace(**{name: table}), [*kept, moments]
            beside = beside._replace(regulariser=tuple(kept))
        if self.algorithm.end_round is not None:
            server = self.algorithm.end_round(of_algorithm, self.config, server)
        return server, beside


@partial(jax.jit, compiler_options=QUICK)
def added(sums: list[Received]) -> Received:
    """Add up what buckets, and malicious clients, have sent."""
    return jax.tree.map(lambda *leaves: sum(leaves), *sums)
