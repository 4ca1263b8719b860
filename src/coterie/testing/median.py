"""A toy algorithm whose server needs the single uploads: matrix factorisation with a coordinate-wise median.

private    u          a vector of each user
download   V          the item table (n_items x d)
upload     V_u - V    the change of the table
server     V + median, entry by entry, over the clients that moved the row
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
    name="median",
    summary="toy: matrix factorisation, item changes combined by their median",
    server_sees="updates",
    item_tables=("items",),
    rounds=40,
)


class Config(ClientConfig):
    """A small model."""

    embedding_dim: int = Field(8, ge=1)
    lr: float = Field(30.0, gt=0)


class Server(NamedTuple):
    """The item table."""

    items: Array


Download = Server
Upload = Server


class Private(NamedTuple):
    """A vector of each user."""

    user: Array


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Item rows are N(0, 0.1^2)."""
    return Server(0.1 * jax.random.normal(key, (catalogue.n_items, config.embedding_dim)))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """User vectors are N(0, 0.1^2), each client's own."""
    own = jax.random.fold_in(key, client.number)
    return Private(0.1 * jax.random.normal(own, (client.users, config.embedding_dim)))


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the table."""
    return server


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Step on user vector and item rows together."""

    def loss(user: Array, rows: Array, batch: nn.Batch) -> Array:
        logits = jnp.sum(nn.pick(user, batch.users) * rows, -1)
        return nn.weighted_mean(nn.bce(logits, batch.labels), batch.weights)

    def step(state: tuple[Array, Array], batch: nn.Batch) -> tuple[tuple[Array, Array], Array]:
        items, user = state
        value, (of_user, of_rows) = jax.value_and_grad(loss, (0, 1))(user, items[batch.items], batch)
        return (items.at[batch.items].add(-config.lr * of_rows), user - config.lr * of_user), value

    (items, user), value = nn.passes(
        key,
        data,
        batch_size=config.batch_size,
        epochs=config.local_epochs,
        step=step,
        state=(download.items, private.user),
    )
    return Upload(items - download.items), Private(user), {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the median change of every row that somebody moved."""
    assert received.uploads is not None and received.present is not None
    changes = received.uploads.stack().items
    moved = received.present[:, None, None] & jnp.any(changes != 0, axis=-1, keepdims=True)
    median = jnp.nanmedian(jnp.where(moved, changes, jnp.nan), axis=0)
    return Server(server.items + jnp.nan_to_num(median))


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return view.items[items] @ private.user[user]
