"""Local only: every client trains its own scorer and its own item table, and nothing is ever shared.

  private    w, b, V_u    scorer and a whole item table of one's own
  download   nothing
  upload     nothing

With one user per client there is nobody to learn from, so under an honest protocol it can only score at chance. Where
training negatives are never drawn from held-out items it scores far above: whatever it has then comes from the leak.
Training is that of PFedRec, so the two differ by the sharing alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Samples

info = Info(
    upload="other",
    name="local",
    summary="nothing shared: the leak detector",
    server_sees="nothing",
    item_tables=("items",),
    rounds=20,
)


class Config(ClientConfig):
    """The rates of PFedRec."""

    embedding_dim: int = Field(32, ge=1)
    lr: float = Field(0.1, gt=0, description="rate of the scorer")
    item_lr: float = Field(0, ge=0, description="rate of the items; 0: 80 * lr * n_items")


class Server(NamedTuple):
    """Nothing."""


Download = Server
Upload = Server


class Private(NamedTuple):
    """A scorer for each user and the client's own item table."""

    weight: Array
    bias: Array
    items: Array


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """Fill in the item rate, which depends on the size of the catalogue."""
    item_lr = config.item_lr or 80 * config.lr * catalogue.n_items
    return config.model_copy(update={"item_lr": item_lr})


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """There is nothing to keep."""
    return Server()


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """A draw of its own for every client."""
    own, bound = jax.random.fold_in(key, client.number), config.embedding_dim**-0.5
    weight = jax.random.uniform(own, (client.users, config.embedding_dim), minval=-bound, maxval=bound)
    items = jax.random.normal(jax.random.fold_in(own, 1), (catalogue.n_items, config.embedding_dim))
    return Private(weight, jnp.zeros(client.users), items)


def download(config: Config, server: Server, client: Client) -> Download:
    """Nothing."""
    return server


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train the scorer and the table in turn, batch by batch."""

    def loss(weight: Array, bias: Array, rows: Array, batch: nn.Batch) -> Array:
        logits = jnp.sum(nn.pick(weight, batch.users) * rows, -1) + nn.pick(bias, batch.users)
        return nn.weighted_mean(nn.bce(logits, batch.labels), batch.weights)

    def step(state: Private, batch: nn.Batch) -> tuple[Private, Array]:
        rows = state.items[batch.items]
        value, (dw, db) = jax.value_and_grad(loss, (0, 1))(state.weight, state.bias, rows, batch)
        weight, bias = state.weight - config.lr * dw, state.bias - config.lr * db
        gradient = jax.grad(loss, 2)(weight, bias, rows, batch)
        return Private(weight, bias, state.items.at[batch.items].add(-config.item_lr * gradient)), value

    private, value = nn.passes(
        key, data, batch_size=config.batch_size, epochs=config.local_epochs, step=step, state=private
    )
    return Upload(), private, {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Nothing arrives."""
    return server


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return private.items[items] @ private.weight[user] + private.bias[user]
