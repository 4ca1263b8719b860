"""Noise on what a client uploads, and clipping before it: pure functions of one upload.

All numbers of an upload are one long vector: changes of tables, towers, prototypes and their flags. Noise goes on every
number of it, so that rows of items a client never met look like the others. With `clip`, the vector is first
shortened to that length (L1 before Laplace noise, L2 before Gaussian), which is what bounds the influence of the data
and makes the noise a mechanism with a budget; one whose length is no finite number is sent as zeros, because leaving it
out would say something too.

Lengths and noise are single-precision numbers, and a simulation draws the noise from its seed; a real client must draw
from a secret of its own.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie.algorithm import Algorithm, ClientConfig, Message, Settings
from coterie.errors import CoterieError


class Privacy(Settings):
    """What every honest client does to its upload, and for whom a budget is stated."""

    noise: Literal["none", "laplace", "gaussian"] = Field(
        default="none", description="noise that clients add to their uploads"
    )
    noise_scale: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="scale of Laplace noise, standard deviation of Gaussian noise",
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="longest upload before noise; there is no budget without it",
    )
    privacy_unit: Literal["client", "interaction"] = Field(
        default="client", description="what the budget protects one of"
    )
    delta: float = Field(
        default=1e-5, gt=0, lt=1, description="the delta at which the epsilon of Gaussian noise is stated"
    )

    @property
    def noised(self) -> bool:
        """Whether clients add noise."""
        return self.noise != "none"

    def check(self, algorithm: Algorithm, config: ClientConfig) -> None:
        """Refuse combinations that make no sense, or whose budget would be false."""
        if not self.noised:
            for name in ("noise_scale", "clip"):
                if getattr(self, name) is not None:
                    raise CoterieError(f"{name} does nothing without noise; choose noise=laplace or noise=gaussian.")
            return
        if self.noise_scale is None:
            raise CoterieError(f"noise={self.noise} needs noise_scale, how much of it.")
        if algorithm.central or algorithm.info.server_sees == "nothing":
            raise CoterieError(
                f"Noise is for what clients upload, and those of {algorithm.info.name} upload nothing; "
                "leave noise at none."
            )
        if self.clip is not None and config.aggregation == "weighted":
            raise CoterieError(
                "aggregation=weighted tells the server how much data a client has, which noise on uploads does not "
                "hide; choose another rule, or drop clip and with it the budget."
            )

    def check_upload(self, algorithm: Algorithm, upload: Message) -> None:
        """Refuse an upload, given by its shapes, with numbers that noise would not hide."""
        if self.noised and not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(upload)):
            raise CoterieError(
                f"{algorithm.info.name} uploads whole numbers, which noise does not hide; leave noise at none."
            )


def length(noise: str, upload: Message) -> Array:
    """Return the L1 length of an upload for Laplace noise, the L2 length for Gaussian."""
    size = jnp.abs if noise == "laplace" else jnp.square
    total = sum((jnp.sum(size(leaf)) for leaf in jax.tree.leaves(upload)), jnp.zeros(()))
    return total if noise == "laplace" else jnp.sqrt(total)


def clipped(noise: str, most: float, upload: Message) -> Message:
    """Shorten an upload to at most that length; shorter ones stay as they are."""
    size = length(noise, upload)
    finite = jnp.isfinite(size)
    factor = jnp.minimum(1.0, most / size)
    return jax.tree.map(lambda leaf: jnp.where(finite, factor * leaf, 0), upload)


def noised(key: Array, noise: str, scale: float, upload: Message) -> Message:
    """Add independent noise to every number."""
    draw = jax.random.laplace if noise == "laplace" else jax.random.normal
    leaves, tree = jax.tree.flatten(upload)
    keys = (jax.random.fold_in(key, place) for place in range(len(leaves)))
    return jax.tree.unflatten(
        tree, [leaf + scale * draw(own, leaf.shape, leaf.dtype) for own, leaf in zip(keys, leaves, strict=True)]
    )


def protected(key: Array, privacy: Privacy, upload: Message) -> Message:
    """Return an upload, item tables whole, as it leaves its client."""
    if not privacy.noised:
        return upload
    assert privacy.noise_scale is not None
    if privacy.clip is not None:
        upload = clipped(privacy.noise, privacy.clip, upload)
    return noised(key, privacy.noise, privacy.noise_scale, upload)
