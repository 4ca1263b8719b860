"""A-hum: promote targets for hard users (Rong et al., IJCAI 2022).

As A-ra, but the made-up users are first made hard to win: `hard_steps` gradient steps on their vectors, with the public
part held still, teach them to dislike the targets. What wins them over wins over many.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from pydantic import Field

from coterie import attack, nn
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Scene

info = AttackInfo(
    name="a_hum",
    summary="makes targets likes of users that were taught to dislike them",
    paper="Poisoning Deep Learning based Recommender Model in Federated Learning Scenarios (IJCAI 2022)",
)


class Config(AttackConfig):
    """Values of the authors' code."""

    drawn_users: int = Field(10, ge=1, description="made-up users per upload")
    user_scale: float = Field(0.01, gt=0, description="standard deviation of their first vectors")
    hard_steps: int = Field(30, ge=0, description="steps that make a user hard")
    hard_lr: float = Field(0.001, gt=0, description="rate of these steps")


def init(key: Array, config: Config, scene: Scene) -> Any:
    """Nothing is remembered."""
    return ()


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Any) -> tuple[Message, Any]:
    """Upload the gradient that makes the targets likes of the hard users."""
    users = jax.vmap(lambda key: hard_user(key, config, scene, download))(jax.random.split(key, config.drawn_users))

    def liking(public: Message) -> Array:
        each = lambda user: attack.to_one(attack.scores(scene, public, user, scene.targets))  # noqa: E731
        return jnp.mean(jax.vmap(each)(users))

    return attack.submitted(scene, download, liking), memory


def hard_user(key: Array, config: Config, scene: Scene, download: Message) -> Message:
    """Draw a user and teach it to dislike the targets."""

    def disliking(user: Message) -> Array:
        logits = attack.scores(scene, download, user, scene.targets)
        return jnp.mean(nn.bce(logits, jnp.zeros_like(logits)))

    user = attack.a_client(key, scene, config.user_scale)
    return attack.descend_private(user, disliking, optax.sgd(config.hard_lr), config.hard_steps)
