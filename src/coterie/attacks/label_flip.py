"""Label flip: likes are taken for dislikes and dislikes for likes (after Tolpegin et al., ESORICS 2020).

A malicious client makes up an ordinary history, items drawn by popularity, and draws negatives as everybody does. It
trains on all of them with the labels turned round. It promotes nothing and makes recommendations worse.
"""

from __future__ import annotations

import jax
from jax import Array
from pydantic import Field

from coterie import attack
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Profile, Scene

info = AttackInfo(
    name="label_flip",
    summary="trains like everybody, on likes and dislikes that have changed places",
    paper="Data Poisoning Attacks Against Federated Learning Systems (ESORICS 2020)",
    targeted=False,
)


class Config(AttackConfig):
    """Thirty items, about as many as an ordinary user has."""

    profile_size: int = Field(30, ge=1, description="items of a malicious client")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """An ordinary user."""
    return attack.ordinary(key, scene, config.profile_size)


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload what training on the flipped labels gives."""
    of_samples, of_training = jax.random.split(key)
    data = attack.profile_samples(of_samples, scene, memory.items)
    flipped = data._replace(labels=1 - data.labels)
    upload, private, _ = scene.algorithm.local_update(of_training, scene.config, download, memory.private, flipped)
    return upload, Profile(memory.items, private)
