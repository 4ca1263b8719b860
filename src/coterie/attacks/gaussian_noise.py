"""Gaussian noise in place of an upload (after Blanchard et al., NeurIPS 2017).

A malicious client makes up an ordinary history, items drawn by popularity, and trains on it. It uploads noise: each
array is as long as that of the honest upload, times `boost`, and has no direction. Every row of an item table has some
of it, also those that an honest client would not have sent.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import attack
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Profile, Scene

info = AttackInfo(
    name="gaussian_noise",
    summary="sends noise as long as an honest upload",
    paper="Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent (NeurIPS 2017)",
    targeted=False,
)


class Config(AttackConfig):
    """Thirty items, about as many as an ordinary user has; as long as an honest upload."""

    profile_size: int = Field(30, ge=1, description="items of a malicious client")
    boost: float = Field(1.0, gt=0, description="length of the noise, in honest uploads")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """An ordinary user."""
    return attack.ordinary(key, scene, config.profile_size)


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload noise as long as what training on this history gives."""
    of_training, of_noise = jax.random.split(key)
    honest, memory = attack.train_on(of_training, scene, download, memory)
    leaves, tree = jax.tree.flatten(honest)
    keys = jax.random.split(of_noise, len(leaves))
    noise = [config.boost * as_long(key, leaf) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, noise), memory


def as_long(key: Array, leaf: Array) -> Array:
    """Return noise of the length of an array."""
    drawn = jax.random.normal(key, leaf.shape)
    return drawn * (jnp.sqrt(jnp.sum(leaf**2)) / jnp.sqrt(jnp.sum(drawn**2)))
