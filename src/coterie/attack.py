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
import optax
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


def descend_private(
    private: Message, loss: Callable[[Message], Array], optimiser: optax.GradientTransformation, steps: int
) -> Message:
    """Let an optimiser take steps on the numbers of a private state, counters left alone."""
    leaves, tree = jax.tree.flatten(private)
    start = {place: leaf for place, leaf in enumerate(leaves) if _moves(leaf)}

    def whole(numbers: dict[int, Array]) -> Message:
        return jax.tree.unflatten(tree, [numbers.get(place, leaf) for place, leaf in enumerate(leaves)])

    def step(_: Array, state: tuple[dict[int, Array], Any]) -> tuple[dict[int, Array], Any]:
        numbers, moments = state
        slope = jax.grad(lambda numbers: loss(whole(numbers)))(numbers)
        change, moments = optimiser.update(slope, moments)
        return optax.apply_updates(numbers, change), moments

    return whole(jax.lax.fori_loop(0, steps, step, (start, optimiser.init(start)))[0])


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
    count = scene.config.negatives * len(liked)
    items = jnp.concatenate([liked, nn.others(key, liked, scene.catalogue.n_items, count)]).astype(jnp.int32)
    labels = jnp.concatenate([jnp.ones(len(liked)), jnp.zeros(count)])
    return Samples(jnp.zeros(len(items), jnp.int32), items, labels, len(items), len(items))


def profile_size(scene: Scene, wanted: int) -> int:
    """Return how many items a made-up user has: no more than half of all, so that there are negatives."""
    return max(1, min(wanted, scene.catalogue.n_items // 2))


def beside_targets(scene: Scene, wanted: int) -> int:
    """Return how many items a made-up user has that are no targets, if it has all targets."""
    return max(0, profile_size(scene, wanted) - len(scene.targets))


def others(scene: Scene) -> Array:
    """Return 1 for every item that is no target, 0 for targets."""
    return jnp.ones(scene.catalogue.n_items).at[scene.targets].set(0)


def draw_items(key: Array, weight: Array, count: int) -> Array:
    """Draw distinct items, likelier the larger their weight; without one an item comes after all others.

    The largest sums of logarithmic weights and Gumbel noise are a draw without replacement.
    """
    return jax.lax.top_k(jnp.log(weight) + jax.random.gumbel(key, weight.shape), count)[1]


def most_popular(scene: Scene, count: int) -> Array:
    """Return the most popular items that are no targets, the lower number first among equals."""
    return jax.lax.top_k(jnp.where(others(scene) > 0, scene.catalogue.popularity, -1), count)[1]


class Profile(NamedTuple):
    """The memory of a malicious client that trains on a made-up history: its items and its private state."""

    items: Array
    private: Message


def train_on(
    key: Array, scene: Scene, download: Message, memory: Profile, boost: float = 1.0
) -> tuple[Message, Profile]:
    """Train like an honest client with that history, and multiply what it would send."""
    of_samples, of_training = jax.random.split(key)
    data = profile_samples(of_samples, scene, memory.items)
    upload, private, _ = scene.algorithm.local_update(of_training, scene.config, download, memory.private, data)
    return jax.tree.map(lambda leaf: boost * leaf, upload), Profile(memory.items, private)


def ordinary(key: Array, scene: Scene, wanted: int) -> Profile:
    """Make up a user like many: its items are drawn by popularity."""
    of_items, of_client = jax.random.split(key)
    items = draw_items(of_items, scene.catalogue.popularity, profile_size(scene, wanted))
    return Profile(items, a_client(of_client, scene))


def to_one(logits: Array) -> Array:
    """Mean cross-entropy of logits that are to be likes."""
    return jnp.mean(nn.bce(logits, jnp.ones_like(logits)))
