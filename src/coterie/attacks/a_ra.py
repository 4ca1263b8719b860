"""A-ra: promote targets for users at random (Rong et al., IJCAI 2022).

A malicious client knows no user. It draws `drawn_users` vectors from N(0, user_scale^2), takes them for users, and
uploads the gradient that makes the targets likes of all of them. It needs a model with a tower to gain much: there the
gradient also moves what all users share.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import attack
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Scene

info = AttackInfo(
    name="a_ra",
    summary="makes targets likes of users drawn at random",
    paper="Poisoning Deep Learning based Recommender Model in Federated Learning Scenarios (IJCAI 2022)",
)


class Config(AttackConfig):
    """Values of the authors' code."""

    drawn_users: int = Field(10, ge=1, description="made-up users per upload")
    user_scale: float = Field(0.01, gt=0, description="standard deviation of their vectors")


def init(key: Array, config: Config, scene: Scene) -> Any:
    """Nothing is remembered."""
    return ()


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Any) -> tuple[Message, Any]:
    """Upload the gradient that makes the targets likes of the made-up users."""
    users = jax.vmap(lambda key: attack.a_client(key, scene, config.user_scale))(
        jax.random.split(key, config.drawn_users)
    )
    return attack.submitted(scene, download, lambda public: liking(scene, public, users)), memory


def liking(scene: Scene, download: Message, users: Message) -> Array:
    """Mean loss of the targets as likes of all users."""
    each = lambda user: attack.to_one(attack.scores(scene, download, user, scene.targets))  # noqa: E731
    return jnp.mean(jax.vmap(each)(users))
