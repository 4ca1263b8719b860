"""Random: the targets among items at random (after Lam & Riedl, WWW 2004).

A malicious client has the targets for its history and, up to `profile_size` items, others drawn uniformly, and trains
like everybody. Each has a draw of its own, made once. The original forges ratings; here a history has likes only.
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
    name="random",
    summary="trains like everybody, on the targets and items at random",
    paper="Shilling Recommender Systems for Fun and Profit (WWW 2004)",
)


class Config(AttackConfig):
    """Thirty items, about as many as an ordinary user has."""

    profile_size: int = Field(30, ge=1, description="items of a malicious client, targets included")
    boost: float = Field(1.0, gt=0, description="what the upload is multiplied by")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """A user who likes the targets and items at random."""
    of_items, of_client = jax.random.split(key)
    fillers = attack.draw_items(of_items, attack.others(scene), attack.beside_targets(scene, config.profile_size))
    return Profile(jnp.concatenate([scene.targets, fillers]), attack.a_client(of_client, scene))


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload what training on this history gives."""
    return attack.train_on(key, scene, download, memory, config.boost)
