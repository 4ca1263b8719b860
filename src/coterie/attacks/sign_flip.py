"""Sign flip: what an honest client would send, turned round (after Li et al., AAAI 2019).

A malicious client makes up an ordinary history, items drawn by popularity, and trains on it. It uploads `-boost` times
the outcome. It promotes nothing and takes back what others have learned.
"""

from __future__ import annotations

from jax import Array
from pydantic import Field

from coterie import attack
from coterie.algorithm import Message
from coterie.attack import AttackConfig, AttackInfo, Profile, Scene

info = AttackInfo(
    name="sign_flip",
    summary="sends the opposite of what an honest client would",
    paper="RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed Learning from Heterogeneous Datasets "
    "(AAAI 2019)",
    targeted=False,
)


class Config(AttackConfig):
    """Thirty items, about as many as an ordinary user has; as long as an honest upload."""

    profile_size: int = Field(30, ge=1, description="items of a malicious client")
    boost: float = Field(1.0, gt=0, description="length of the upload, in honest ones")


def init(key: Array, config: Config, scene: Scene) -> Profile:
    """An ordinary user."""
    return attack.ordinary(key, scene, config.profile_size)


def craft(key: Array, config: Config, scene: Scene, download: Message, memory: Profile) -> tuple[Message, Profile]:
    """Upload the opposite of what training on this history gives."""
    return attack.train_on(key, scene, download, memory, -config.boost)
