"""UNION's contrastive loss on clients (Yu et al., Untargeted Attack against Federated Recommendation, 2023).

The recommender is that of `fedsgd`. Each interacted item is an anchor: another interacted item of the same user is to
score higher than `rivals` items drawn from all others, by a cross-entropy over inner products. The defence of the
same name, which looks at single uploads, is not part of it; CL4FedRec compares with the loss alone.

The rivals are drawn from the local negatives: a client sees no rows but those of its samples. There are no more anchors
than so many samples have interactions, so the term costs what positives cost, not what all samples do.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import fedsgd, nn
from coterie.algorithm import Info, Samples
from coterie.fedsgd import Private, Server, Upload, download, init_client, init_server, score, server_update

__all__ = ["Private", "Server", "Upload", "download", "init_client", "init_server", "score", "server_update"]

info = Info(
    name="union",
    summary="fedsgd with interacted items drawn together",
    paper="Untargeted Attack against Federated Recommendation Systems via Poisonous Item Embeddings and the Defense "
    "(AAAI 2023)",
    bibtex="""@inproceedings{yu2023untargeted,
  title = {Untargeted Attack against Federated Recommendation Systems via Poisonous Item Embeddings and the Defense},
  author = {Yu, Yang and Liu, Qi and Wu, Likang and Yu, Runlong and Yu, Sanshi Lei and Zhang, Zaixi},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  year = {2023}
}""",
    item_tables=("items",),
    upload="gradient",
    rounds=20,
)

Download = Server


class Config(fedsgd.Config):
    """Weight and number of rivals are those of the authors' code."""

    item_weight: float = Field(1.0, ge=0, description="weight of the item term")
    rivals: int = Field(15, ge=1, description="items that each positive competes with")


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Take the gradient of the recommendation loss and the item term."""

    def contrast(key: Array, users: Array, public: Download, data: Samples) -> Array:
        share = (1 + config.virtual_ratings) / (1 + config.negatives + config.virtual_ratings)
        size = data.items.shape[0]
        most = min(size, 1 + int(share * size))
        return config.item_weight * union(key, public.items, data, config.rivals, most)

    return fedsgd.local_update(key, config, download, private, data, contrast)


def union(key: Array, items: Array, data: Samples, rivals: int, most: int) -> Array:
    """Mean over interacted items, `most` at most, of the cross-entropy of another one against the rivals.

    A user with one item has none.
    """
    liked = (data.labels > 0) & (data.real > 0)
    (positives, n_positives), (negatives, n_negatives) = (listed(mask) for mask in (liked, ~liked & (data.real > 0)))
    of_other, of_rivals = jax.random.split(key)
    anchor, number = positives[:most], jnp.arange(most)
    step = jax.random.randint(of_other, number.shape, 1, jnp.maximum(n_positives, 2))
    other = positives[(number + step) % jnp.maximum(n_positives, 1)]
    drawn = negatives[jax.random.randint(of_rivals, (most, rivals), 0, jnp.maximum(n_negatives, 1))]
    rows = items[data.items]
    mine = rows[anchor]
    right = jnp.sum(mine * rows[other], 1)
    wrong = jnp.einsum("nd,nrd->nr", mine, rows[drawn])
    scores = jnp.concatenate([right[:, None], wrong], 1)
    # A client of several users draws without looking at whose the other item is; pairs of two users do not count.
    real = (number < n_positives) & (n_positives > 1) & (data.users[other] == data.users[anchor])
    return nn.weighted_mean(jax.nn.logsumexp(scores, 1) - right, real.astype(rows.dtype))


def listed(mask: Array) -> tuple[Array, Array]:
    """Return the places where a mask holds, in order (0 beyond them), and how many they are."""
    place = jnp.where(mask, jnp.cumsum(mask) - 1, len(mask))
    return jnp.zeros(len(mask), jnp.int32).at[place].set(jnp.arange(len(mask)), mode="drop"), mask.sum()
