"""Bandwagon: the targets, a few popular items, and items at random (after Mobasher et al., TOIT 2007).

A malicious client has the targets for its history. A share `popular_share` of its `profile_size` items is drawn from
the most popular tenth, so that it has something in common with most users; the rest is drawn uniformly from all
others. It trains like everybody. Each has a draw of its own, made once. The original forges ratings; here a history has
likes only.
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
    name="bandwagon",
    summary="trains like everybody, on the targets, a few popular items and items at random",
    paper="Toward Trustworthy Recommender Systems: An Analysis of Attack Models and Algorithm Robustness (TOIT 2007)",
)


class Config(AttackConfig):
    """Thirty items, about as many as an ordinary user has, a tenth of them popular."""

    profile_size: int = Field(30, ge=1, description="items of a malicious client, targets included")
    popular_share: float = Field(0.1, ge=0, le=1, description="share of them from the most popular tenth of all")
    boost: float = Field(1.0, gt=0, description="what the upload is multiplied by")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """A user who likes the targets, some of what everybody likes, and items at random."""
    of_items, of_client = jax.random.split(key)
    return Profile(
        jnp.concatenate([scene.targets, fillers(of_items, config, scene)]), attack.a_client(of_client, scene)
    )


def fillers(key: Array, config: Config, scene: Scene) -> Array:
    """Draw the items beside the targets, popular ones first."""
    of_popular, of_rest = jax.random.split(key)
    count = attack.beside_targets(scene, config.profile_size)
    tenth = attack.most_popular(scene, -(-scene.catalogue.n_items // 10))
    liked = min(round(config.popular_share * attack.profile_size(scene, config.profile_size)), len(tenth), count)
    popular = jax.random.permutation(of_popular, tenth)[:liked]
    rest = attack.draw_items(of_rest, attack.others(scene).at[popular].set(0), count - liked)
    return jnp.concatenate([popular, rest])


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload what training on this history gives."""
    return attack.train_on(key, scene, download, memory, config.boost)
