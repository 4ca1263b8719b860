"""Malicious clients: added to the federation, chosen like others, sending what an attack crafts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from coterie.algorithm import Client, Message
from coterie.attack import Attack, AttackConfig, Scene
from coterie.engine.asking import QUICK
from coterie.engine.keys import at


@dataclass(frozen=True)
class Threat:
    """An attack and how much of it there is: malicious clients per honest one, and which items it promotes."""

    attack: Attack
    config: AttackConfig
    share: float
    target: str


@dataclass(frozen=True, eq=False)
class Attackers:
    """The malicious clients of a federation, numbered after the honest ones."""

    threat: Threat
    scene: Scene
    count: int

    def start(self, key: Array) -> Any:
        """Return the memory of every malicious client."""
        init = partial(self.threat.attack.init, config=self.threat.config, scene=self.scene)
        each = jax.vmap(lambda key, number: init(at(key, number)), in_axes=(None, 0))
        return jax.jit(each, compiler_options=QUICK)(key, jnp.arange(self.count))

    def craft(self, key: Array, server: Message, memory: Any, who: NDArray[np.int64]) -> tuple[list[Any], Any]:
        """Return what those that take part upload, in their order, and the memories after it."""
        if not self.threat.attack.info.compiled:
            uploads = []
            for number in who.tolist():
                mine = jax.tree.map(lambda leaf, number=number: leaf[number], memory)
                upload, mine = self._one(at(key, number), self._download(server, number), mine)
                memory = jax.tree.map(lambda all_, new, number=number: all_.at[number].set(new), memory, mine)
                uploads.append(upload)
            return uploads, memory
        table = np.zeros(self.count, np.int32)
        table[: len(who)] = who
        uploads, memory = self._compiled(key, server, memory, table, len(who))
        return [jax.tree.map(lambda leaf, i=i: leaf[i], uploads) for i in range(len(who))], memory

    @partial(jax.jit, static_argnums=0, compiler_options=QUICK)
    def _compiled(self, key: Array, server: Message, memory: Any, who: Array, count: Array) -> tuple[Message, Any]:

        def one(number: Array) -> tuple[Message, Any]:
            mine = jax.tree.map(lambda leaf: leaf[number], memory)
            return self._one(at(key, number), self._download(server, number), mine)

        def step(i: Array, carry: tuple[Message, Any]) -> tuple[Message, Any]:
            uploads, memory = carry
            upload, mine = one(who[i])
            write = lambda place: lambda all_, new: all_.at[place].set(new)  # noqa: E731
            return jax.tree.map(write(i), uploads, upload), jax.tree.map(write(who[i]), memory, mine)

        shape, _ = jax.eval_shape(one, who[0])
        nothing = jax.tree.map(lambda leaf: jnp.zeros((self.count, *leaf.shape), leaf.dtype), shape)
        return jax.lax.fori_loop(0, count, step, (nothing, memory))

    def _download(self, server: Message, number: Array | int) -> Message:
        client = Client(self.scene.catalogue.n_clients + number, 1)
        return self.scene.algorithm.download(self.scene.config, server, client)

    def _one(self, key: Array, download: Message, memory: Any) -> tuple[Any, Any]:
        return self.threat.attack.craft(key, self.threat.config, self.scene, download, memory)
