"""MF: matrix factorisation with all data in one place, the centralised counterpart of FedMF.

`sigma(u.v)` with cross-entropy on interactions and negatives drawn anew each epoch (`u.v` with squared error for
ratings), Adam, batches of 256: the settings that the federated papers give for it. Nothing travels and the server sees
everything. A round is an epoch.

Deviation: Adam is lazy, a row moves only in a batch that holds it (as sparse Adam does).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, ClientConfig, Info, Message, Samples

info = Info(
    name="mf",
    summary="matrix factorisation, centralised",
    paper="Matrix Factorization Techniques for Recommender Systems (Computer 2009)",
    bibtex="""@article{koren2009matrix,
  title = {Matrix Factorization Techniques for Recommender Systems},
  author = {Koren, Yehuda and Bell, Robert and Volinsky, Chris},
  journal = {Computer},
  volume = {42},
  number = {8},
  pages = {30--37},
  year = {2009}
}""",
    tasks=("ranking", "rating"),
    server_sees="everything",
    rounds=50,
)


class Config(ClientConfig):
    """Settings of the comparisons in the federated papers."""

    embedding_dim: int = Field(32, ge=1)
    lr: float = Field(0.001, gt=0, description="rate of Adam")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")


class Server(NamedTuple):
    """User and item tables, and the moments of Adam."""

    users: Array
    items: Array
    moments: tuple[nn.RowAdam, nn.RowAdam]


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Rows are N(0, init_scale^2)."""
    keys = jax.random.split(key)
    sizes = (catalogue.n_users, catalogue.n_items)
    draws = (jax.random.normal(k, (n, config.embedding_dim)) for k, n in zip(keys, sizes, strict=True))
    users, items = (config.init_scale * draw for draw in draws)
    return Server(users, items, (nn.RowAdam.zeros(users), nn.RowAdam.zeros(items)))


def train(key: Array, config: Config, server: Server, data: Samples) -> tuple[Server, dict[str, Array]]:
    """One epoch over all samples."""

    def loss(users: Array, items: Array, batch: nn.Batch) -> Array:
        errors = nn.LOSSES[config.loss](jnp.sum(users * items, -1), batch.labels)
        return nn.weighted_mean(errors, batch.weights)

    def step(server: Server, batch: nn.Batch) -> tuple[Server, Array]:
        rows = server.users[batch.users], server.items[batch.items]
        value, (du, dv) = jax.value_and_grad(loss, (0, 1))(*rows, batch)
        users, of_users = nn.adam_rows(server.users, server.moments[0], batch.users, du, config.lr, batch)
        items, of_items = nn.adam_rows(server.items, server.moments[1], batch.items, dv, config.lr, batch)
        return Server(users, items, (of_users, of_items)), value

    server, value = nn.passes(
        key, data, batch_size=config.batch_size, epochs=config.local_epochs, step=step, state=server
    )
    return server, {"loss": value}


def score(config: Config, view: Server, private: Message, user: Array, items: Array) -> Array:
    """Inner products of items with one user."""
    return view.items[items] @ view.users[user]
