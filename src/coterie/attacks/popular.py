"""Popular: the targets among the most popular items.

A malicious client has the targets for its history and, up to `profile_size` items, the most popular others, and trains
like everybody: it looks like many users at once, and its likes of the targets are to spread to them. All malicious
clients have the same history.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import attack
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Profile, Scene

info = AttackInfo(name="popular", summary="trains like everybody, on the targets and the most popular items")


class Config(AttackConfig):
    """Thirty items, about as many as an ordinary user has."""

    profile_size: int = Field(30, ge=1, description="items of a malicious client, targets included")
    boost: float = Field(1.0, gt=0, description="what the upload is multiplied by")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """A user who likes the targets and what everybody likes."""
    fillers = attack.most_popular(scene, attack.beside_targets(scene, config.profile_size))
    return Profile(jnp.concatenate([scene.targets, fillers]), attack.a_client(key, scene))


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload what training on this history gives."""
    return attack.train_on(key, scene, download, memory, config.boost)
