"""FedCIA: clients share how alike items are, not what they look like (Han et al., SIGIR 2025).

  private    u, V_k       a vector for each user, and an item table of one's own
  download   W            a factor of the mean similarity: W W^T is the nearest matrix of rank d to S
  upload     V_k V_k^T    the similarity of all pairs of items, with Laplace noise
  server     S = mean of the similarities, and its factor

A client trains users and table for one pass by Adam, sends the similarities, and replaces its table by the one that
has the mean similarity: the published code takes 100 gradient steps on |V V^T - S|; here it is the minimiser, W Q,
with the rotation Q that brings it nearest to the table it replaces. All clients start from one table. They are ranked
with their own.

`compat` is the published loss: the squared distance of each element of u * v to the label, averaged over dimensions.
It has no inner product in it, although ranking goes by one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import factors, nn
from coterie.algorithm import Catalogue, Client, Info, Received, Rule, Samples

info = Info(
    name="fedcia",
    summary="item similarities travel, item tables stay",
    paper="FedCIA: Federated Collaborative Information Aggregation for Privacy-Preserving Recommendation (SIGIR 2025)",
    bibtex="""@inproceedings{han2025fedcia,
  title = {{FedCIA}: Federated Collaborative Information Aggregation for Privacy-Preserving Recommendation},
  author = {Han, Mingzhe and Li, Dongsheng and Xia, Jiafeng and Liu, Jiahao and Gu, Hansu and Zhang, Peng and Gu, Ning
    and Lu, Tun},
  booktitle = {Proceedings of the 48th International ACM SIGIR Conference},
  year = {2025}
}""",
    item_tables=("items", "alike"),
    touches="catalogue",
    upload="other",
    rounds=100,
)


class Config(factors.Config):
    """Rates of the authors' code differ by data set; this one was not tuned."""

    similarity_noise: float = Field(0.001, ge=0, description="scale of Laplace noise on the similarities")
    compat: bool = Field(False, description="train with the published loss")
    aggregation: Rule = Field("mean", description="how uploads are combined")


class Server(NamedTuple):
    """The factor of the mean similarity, and how many rounds there were."""

    items: Array
    round: Array


Download = Server


class Upload(NamedTuple):
    """Similarities of all pairs of items."""

    alike: Array


class Private(NamedTuple):
    """User vectors, the moments of their optimiser, and the client's own table."""

    users: Array
    moments: factors.optax.OptState
    items: Array


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Item rows are N(0, init_scale^2): the table that all clients start from."""
    return Server(config.init_scale * jax.random.normal(key, (catalogue.n_items, config.embedding_dim)), jnp.int32(0))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """User vectors of one's own; there is no table before the first download."""
    own = factors.init_client(key, config, catalogue, client)
    return Private(*own, jnp.zeros((catalogue.n_items, config.embedding_dim)))


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the factor."""
    return server


def aligned(factor: Array, table: Array) -> Array:
    """Rotate the factor so that it is nearest to the table (orthogonal Procrustes)."""
    left, _, right = jnp.linalg.svd(factor.T @ table, full_matrices=False)
    return factor @ (left @ right)


def own_table(download: Download, private: Private) -> Array:
    """Return what a client has for a table after a download: before the first round, that of all."""
    empty = jnp.all(private.items == 0)
    first = empty | (download.round == 0)
    return jax.lax.cond(first, lambda: download.items, lambda: aligned(download.items, private.items))


def published_loss(users: Array, rows: Array, labels: Array) -> Array:
    """Squared distance of the elements of u * v to the label, averaged over dimensions."""
    return jnp.mean((users * rows - labels[:, None]) ** 2, -1)


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Take over the mean similarity, train, and compare all items with one another."""
    of_training, of_noise = jax.random.split(key)
    start, mine = own_table(download, private), factors.Private(private.users, private.moments)
    loss = published_loss if config.compat else None
    items, mine, value = factors.train(of_training, config, mine, start, lambda table, ids: table[ids], data, loss)
    alike = items @ items.T
    if config.similarity_noise:
        alike += config.similarity_noise * jax.random.laplace(of_noise, alike.shape)
    return Upload(alike), Private(*mine, items), {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Factorise the mean similarity, and turn the factor towards the last one: eigenvectors have no sign."""
    mean = nn.combine(config.aggregation, received).alike
    values, vectors = jnp.linalg.eigh((mean + mean.T) / 2)
    rank = server.items.shape[1]
    found = vectors[:, -rank:] * jnp.sqrt(jnp.maximum(values[-rank:], 0))[None, :]
    factor = jnp.zeros_like(server.items).at[:, : found.shape[1]].set(found)
    return Server(aligned(factor, server.items), server.round + 1)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Inner products of items, as the client's table has them, with one user."""
    return own_table(view, private)[items] @ private.users[user]
