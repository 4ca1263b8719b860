"""The contract of attacks: what a malicious client uploads, given what everybody is sent.

An attack is one file of pure functions, written for one malicious client. Malicious clients are added to the
federation, take part like others, and see the download and public facts about the items, nothing else. `init` gives a
client's memory, `craft` an upload and the memory after it. Both work with any algorithm whose uploads are changes or
gradients of what it sends down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from coterie import nn
from coterie.algorithm import Algorithm, Catalogue, Client, ClientConfig, Message, Samples, Settings


class AttackConfig(Settings):
    """Settings of an attack; each adds its own."""


class Scene(NamedTuple):
    """What a malicious client knows: the algorithm and its settings, public facts about items, and its targets."""

    algorithm: Algorithm
    config: ClientConfig
    catalogue: Catalogue
    targets: Array


@dataclass(frozen=True)
class AttackInfo:
    """What an attack declares about itself; a `reconstruction` follows a description, because there is no code."""

    name: str
    summary: str
    paper: str = ""
    targeted: bool = True
    reconstruction: bool = False
    compiled: bool = True


@dataclass(frozen=True)
class Attack:
    """The functions of one attack file.

    `init(key, config, scene)` returns the memory of one malicious client, a tree of arrays.
    `craft(key, config, scene, download, memory)` returns its upload and its memory.
    """

    info: AttackInfo
    Config: type[AttackConfig]
    init: Callable[..., Any]
    craft: Callable[..., tuple[Message, Any]]

    @classmethod
    def from_module(cls, module: ModuleType) -> Attack:
        """Collect the functions of an attack file."""
        return cls(module.info, module.Config, module.init, module.craft)


def a_client(key: Array, scene: Scene, scale: float | None = None) -> Message:
    """Return the private state of a made-up client with one user; with `scale`, its numbers are N(0, scale^2)."""
    private = scene.algorithm.init_client(key, scene.config, scene.catalogue, Client(scene.catalogue.n_clients, 1))
    if scale is None:
        return private
    leaves, tree = jax.tree.flatten(private)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(tree, [_redrawn(k, leaf, scale) for k, leaf in zip(keys, leaves, strict=True)])


def _redrawn(key: Array, leaf: Array, scale: float) -> Array:
    return scale * jax.random.normal(key, leaf.shape) if _moves(leaf) else leaf


def _moves(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def scores(scene: Scene, download: Message, private: Message, items: Array) -> Array:
    """Return the scores that a made-up user gives to items."""
    return scene.algorithm.score(scene.config, download, private, 0, items)


def descend_private(private: Message, loss: Callable[[Message], Array], lr: float, steps: int) -> Message:
    """Take gradient steps on the numbers of a private state, counters left alone."""

    def step(_: Array, private: Message) -> Message:
        slope = jax.grad(loss, allow_int=True)(private)
        return jax.tree.map(lambda p, g: p - lr * g if _moves(p) else p, private, slope)

    return jax.lax.fori_loop(0, steps, step, private)


def submitted(scene: Scene, download: Message, loss: Callable[[Message], Array]) -> Message:
    """Return the upload of a client whose loss this is, as a function of the download.

    Where honest clients send gradients it is the gradient, where they send changes it is a step along it at their
    rates.
    """
    slope = jax.grad(loss, allow_int=True)(download)
    fields = upload_fields(scene, download)
    if scene.algorithm.info.upload == "gradient":
        return fields(slope)
    rate = scene.config.lr  # type: ignore[attr-defined]
    of_items = getattr(scene.config, "item_lr", rate)
    tables = scene.algorithm.info.item_tables
    moved = {name: -(of_items if name in tables else rate) for name in slope._fields}
    return fields(slope._replace(**{n: jax.tree.map(lambda g, n=n: moved[n] * g, getattr(slope, n)) for n in moved}))


def upload_fields(scene: Scene, download: Message) -> Callable[[Message], Message]:
    """Return what makes an upload out of a message that has at least its fields."""
    sample = jnp.zeros(1, jnp.int32)
    data = Samples(sample, sample, jnp.zeros(1), 1, 1)

    def one(download: Message) -> Message:
        key = jax.random.key(0)
        return scene.algorithm.local_update(key, scene.config, download, a_client(key, scene), data)[0]

    like = jax.eval_shape(one, download)
    return lambda message: type(like)(*(getattr(message, name) for name in like._fields))


def profile_samples(key: Array, scene: Scene, liked: Array) -> Samples:
    """Return the samples of a made-up user with these items and, as everywhere, negatives from all others."""
    known = jnp.sort(liked)
    count = scene.config.negatives * len(liked)
    drawn = jax.random.randint(key, (count,), 0, scene.catalogue.n_items - len(liked))
    others = drawn + jnp.searchsorted(known - jnp.arange(len(liked)), drawn, side="right").astype(jnp.int32)
    items = jnp.concatenate([liked, others]).astype(jnp.int32)
    labels = jnp.concatenate([jnp.ones(len(liked)), jnp.zeros(count)])
    return Samples(jnp.zeros(len(items), jnp.int32), items, labels, len(items), len(items))


def fillers(key: Array, scene: Scene, pool: Array, count: int) -> Array:
    """Draw distinct items of a pool that are not targets."""
    free = ~jnp.isin(pool, scene.targets)
    chance = jnp.where(free, jax.random.uniform(key, pool.shape), -1.0)
    return pool[jax.lax.top_k(chance, count)[1]]


class Profile(NamedTuple):
    """The memory of a malicious client that trains on a made-up history: its items and its private state."""

    items: Array
    private: Message


def train_on(key: Array, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Train like an honest client with that history."""
    of_samples, of_training = jax.random.split(key)
    data = profile_samples(of_samples, scene, memory.items)
    upload, private, _ = scene.algorithm.local_update(of_training, scene.config, download, memory.private, data)
    return upload, Profile(memory.items, private)


def to_one(logits: Array) -> Array:
    """Mean cross-entropy of logits that are to be likes."""
    return jnp.mean(nn.bce(logits, jnp.ones_like(logits)))
