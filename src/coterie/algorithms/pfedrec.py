"""PFedRec: dual personalisation (Zhang et al., IJCAI 2023).

A user has no vector: a private linear scorer `w.v + b` plays its part, and the item table a client ranks with is the
global one after its own local training.

  private    w, b       the scorer of each user
  download   V          the item table (n_items x d)
  upload     V_u - V    the change of the table
  server     V + mean of the changes

In each batch the scorer steps first, then the items step against the new scorer. The published code multiplies the
item rate by the number of items; `item_lr` is the effective value. All clients start from one draw, the private
scorer included. Where a client holds several users each has a scorer of its own: one for all could not rank
differently for them.

Deviation: a client that did not take part in a round is evaluated with the table it would download.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Samples

info = Info(
    name="pfedrec",
    summary="private scorer, item table personalised by local training",
    paper="Dual Personalization on Federated Recommendation (IJCAI 2023)",
    bibtex="""@inproceedings{zhang2023dual,
  title = {Dual Personalization on Federated Recommendation},
  author = {Zhang, Chunxu and Long, Guodong and Zhou, Tianyi and Yan, Peng and Zhang, Zijian and Zhang, Chengqi
            and Yang, Bo},
  booktitle = {Proceedings of the Thirty-Second International Joint Conference on Artificial Intelligence},
  year = {2023}
}""",
    tasks=("ranking", "rating"),
    item_tables=("items",),
    rounds=100,
)


class Config(ClientConfig):
    """Defaults are those of the authors' code."""

    embedding_dim: int = Field(32, ge=1)
    lr: float = Field(0.1, gt=0, description="rate of the scorer")
    item_lr: float = Field(0, ge=0, description="rate of the items; 0: 80 * lr * n_items")
    eval_table: Literal["global", "local"] = "local"


class Server(NamedTuple):
    """The item table."""

    items: Array


Download = Server
Upload = Server


class Private(NamedTuple):
    """A scorer for each user."""

    weight: Array
    bias: Array


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """Fill in the item rate, which depends on the size of the catalogue."""
    item_lr = config.item_lr or 80 * config.lr * catalogue.n_items
    return config.model_copy(update={"item_lr": item_lr})


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Item rows are N(0, 1)."""
    return Server(jax.random.normal(key, (catalogue.n_items, config.embedding_dim)))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """One draw for all: U(-1/sqrt(d), 1/sqrt(d))."""
    bound = config.embedding_dim**-0.5
    draw = jax.random.uniform(key, (config.embedding_dim + 1,), minval=-bound, maxval=bound)
    return Private(jnp.tile(draw[:-1], (client.users, 1)), jnp.tile(draw[-1], client.users))


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the table."""
    return server


def predict(private: Private, users: Array, rows: Array) -> Array:
    """Logits `w_u . v + b_u`."""
    return jnp.sum(nn.pick(private.weight, users) * rows, -1) + nn.pick(private.bias, users)


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train the scorer and the table in turn, batch by batch."""

    def loss(private: Private, rows: Array, batch: nn.Batch) -> Array:
        errors = nn.LOSSES[config.loss](predict(private, batch.users, rows), batch.labels)
        return nn.weighted_mean(errors, batch.weights)

    def step(state: tuple[Array, Private], batch: nn.Batch) -> tuple[tuple[Array, Private], Array]:
        items, private = state
        rows = items[batch.items]
        value, gradient = jax.value_and_grad(loss)(private, rows, batch)
        private = nn.descend(private, gradient, config.lr)
        gradient = jax.grad(loss, argnums=1)(private, rows, batch)
        return (items.at[batch.items].add(-config.item_lr * gradient), private), value

    (items, private), value = nn.passes(
        key,
        data,
        batch_size=config.batch_size,
        epochs=config.local_epochs,
        step=step,
        state=(download.items, private),
    )
    return Upload(items - download.items), private, {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the mean change."""
    return nn.add(server, nn.combine(config.aggregation, received, info.item_tables))


def personalise(config: Config, download: Download, upload: Upload, private: Private) -> Download:
    """The table as this client trained it."""
    return nn.add(download, upload)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return view.items[items] @ private.weight[user] + private.bias[user]
