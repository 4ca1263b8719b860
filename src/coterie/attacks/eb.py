"""EB, explicit boosting: the targets are all that a made-up user likes (after Zhang et al., WSDM 2022).

A malicious client has the targets for its history, draws negatives from all other items, and trains like everybody. The
name is that of the plainest part of PipAttack, which adds a classifier of popularity; that is not here.
"""

from __future__ import annotations

from jax import Array
from pydantic import Field

from coterie import attack
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Profile, Scene

info = AttackInfo(
    name="eb",
    summary="trains like everybody, with the targets as the only likes",
    paper="PipAttack: Poisoning Federated Recommender Systems for Manipulating Item Promotion (WSDM 2022)",
)


class Config(AttackConfig):
    """Nothing is multiplied unless asked for."""

    boost: float = Field(1.0, gt=0, description="what the upload is multiplied by")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """A user who likes the targets."""
    return Profile(scene.targets, attack.a_client(key, scene))


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload what training on this history gives."""
    return attack.train_on(key, scene, download, memory, config.boost)
