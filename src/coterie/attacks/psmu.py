"""PSMU: promote targets with synthetic users (after Yuan et al., SIGIR 2023). A reconstruction: no code is public.

A malicious client makes up a user with `profile_size` items at random and negatives. When it takes part,

  1. it fits the user's vector to this history, with the public part held still (`fit_steps` of Adam, from where the
     vector was the last time);
  2. it looks for what competes with the targets: the `best_items` best other items for this user, and the `near_items`
     items whose rows are closest to that of a target;
  3. it uploads the gradient of a loss that makes the targets likes and lets each of them beat each competitor.

So the rows of the targets and of the competitors move, and the tower. Only the outline of this is published; the sizes,
the steps of the fit and the equal weights of both terms are chosen here. Call results PSMU-style.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import Array
from pydantic import Field

from coterie import attack, nn
from coterie.algorithm import Message, Samples
from coterie.attack import AttackConfig, AttackInfo, Profile, Scene

info = AttackInfo(
    name="psmu",
    summary="lets targets beat what a made-up user likes best and what is close to them",
    paper="Manipulating Federated Recommender Systems: Poisoning with Synthetic Users and Its Countermeasures "
    "(SIGIR 2023)",
    reconstruction=True,
)


class Config(AttackConfig):
    """Chosen here, not published."""

    profile_size: int = Field(30, ge=1, description="items of a made-up user")
    fit_steps: int = Field(20, ge=0, description="steps that fit its vector, each time it takes part")
    fit_lr: float = Field(0.001, gt=0, description="rate of these steps")
    best_items: int = Field(5, ge=1, description="competitors that are the user's best items")
    near_items: int = Field(5, ge=0, description="competitors that are closest to a target")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """A user with items at random."""
    of_items, of_client = jax.random.split(key)
    items = attack.draw_items(of_items, attack.others(scene), attack.profile_size(scene, config.profile_size))
    return Profile(items, attack.a_client(of_client, scene))


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Fit the user, find the competitors, upload the gradient that lets the targets beat them."""
    user = fitted(config, scene, download, memory.private, attack.profile_samples(key, scene, memory.items))
    competitors = alternatives(config, scene, download, user)
    upload = attack.submitted(scene, download, lambda public: winning(scene, public, user, competitors))
    return upload, Profile(memory.items, user)


def fitted(config: Config, scene: Scene, download: Message, user: Message, data: Samples) -> Message:
    """Fit a user's vector to its samples."""

    def loss(user: Message) -> Array:
        return jnp.mean(nn.bce(attack.scores(scene, download, user, data.items), data.labels))

    return attack.descend_private(user, loss, optax.adam(config.fit_lr), config.fit_steps)


def alternatives(config: Config, scene: Scene, download: Message, user: Message) -> Array:
    """Return the user's best items and, of the rest, those closest to a target; no target is among them."""
    liking = attack.scores(scene, download, user, jnp.arange(scene.catalogue.n_items))
    free = attack.others(scene)
    left = scene.catalogue.n_items - len(scene.targets)
    best = jax.lax.top_k(jnp.where(free > 0, liking, -jnp.inf), min(config.best_items, left))[1]
    free = free.at[best].set(0)
    alike = jnp.where(free > 0, closeness(scene, download), -jnp.inf)
    near = jax.lax.top_k(alike, min(config.near_items, left - len(best)))[1]
    return jnp.concatenate([best, near])


def closeness(scene: Scene, download: Message) -> Array:
    """Cosine of each item's row with that of the target closest to it."""
    tables = [getattr(download, name) for name in scene.algorithm.info.item_tables]
    rows = jnp.concatenate([table.reshape(scene.catalogue.n_items, -1) for table in tables], 1)
    unit = rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return jnp.max(unit @ unit[scene.targets].T, 1)


def winning(scene: Scene, download: Message, user: Message, competitors: Array) -> Array:
    """Loss of the targets as likes, and of each target against each competitor."""
    mine, theirs = (attack.scores(scene, download, user, items) for items in (scene.targets, competitors))
    return attack.to_one(mine) + attack.to_one(mine[:, None] - theirs[None, :])
