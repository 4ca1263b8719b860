"""NCF: neural collaborative filtering with all data in one place, the centralised counterpart of FedNCF.

NeuMF with cross-entropy on interactions and negatives drawn anew each epoch (squared error for ratings), Adam, batches
of 256: the settings that the federated papers give for it. Nothing travels and the server sees everything. A round is
an epoch.

Deviation: the Adam of the two tables is lazy, a row moves only in a batch that holds it (as sparse Adam does).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import optax
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, ClientConfig, Info, Message, Samples

info = Info(
    name="ncf",
    summary="NeuMF, centralised",
    paper="Neural Collaborative Filtering (WWW 2017)",
    bibtex="""@inproceedings{he2017neural,
  title = {Neural Collaborative Filtering},
  author = {He, Xiangnan and Liao, Lizi and Zhang, Hanwang and Nie, Liqiang and Hu, Xia and Chua, Tat-Seng},
  booktitle = {Proceedings of the 26th International Conference on World Wide Web},
  pages = {173--182},
  year = {2017}
}""",
    tasks=("ranking", "rating"),
    server_sees="everything",
    rounds=50,
)


class Config(ClientConfig):
    """Tower 64-32-16 over two vectors of 32."""

    embedding_dim: int = Field(32, ge=1)
    layers: tuple[int, ...] = Field((64, 32, 16), min_length=1, description="hidden layers of the tower")
    lr: float = Field(0.001, gt=0, description="rate of Adam")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")


class Server(NamedTuple):
    """Rows `[p', p]` and `[q', q]` of users and items, tower and output layer, and the moments of Adam."""

    users: Array
    items: Array
    tower: list[nn.Layer]
    moments: tuple[nn.RowAdam, nn.RowAdam, optax.OptState]


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Rows are N(0, init_scale^2), the tower He-uniform."""
    for_users, for_items, for_tower = jax.random.split(key, 3)
    width = 2 * config.embedding_dim
    users = config.init_scale * jax.random.normal(for_users, (catalogue.n_users, width))
    items = config.init_scale * jax.random.normal(for_items, (catalogue.n_items, width))
    tower = nn.init_neumf(for_tower, config.embedding_dim, config.layers, gmf=True)
    moments = (nn.RowAdam.zeros(users), nn.RowAdam.zeros(items), optax.adam(config.lr).init(tower))
    return Server(users, items, tower, moments)


def train(key: Array, config: Config, server: Server, data: Samples) -> tuple[Server, dict[str, Array]]:
    """One epoch over all samples."""
    optimiser = optax.adam(config.lr)

    def loss(tower: list[nn.Layer], users: Array, items: Array, batch: nn.Batch) -> Array:
        errors = nn.LOSSES[config.loss](nn.neumf(tower, users, items, gmf=True), batch.labels)
        return nn.weighted_mean(errors, batch.weights)

    def step(server: Server, batch: nn.Batch) -> tuple[Server, Array]:
        of_users, of_items, of_tower = server.moments
        rows = server.users[batch.users], server.items[batch.items]
        value, (dt, du, dv) = jax.value_and_grad(loss, (0, 1, 2))(server.tower, *rows, batch)
        updates, of_tower = optimiser.update(dt, of_tower)
        users, of_users = nn.adam_rows(server.users, of_users, batch.users, du, config.lr, batch)
        items, of_items = nn.adam_rows(server.items, of_items, batch.items, dv, config.lr, batch)
        return Server(users, items, optax.apply_updates(server.tower, updates), (of_users, of_items, of_tower)), value

    server, value = nn.passes(
        key, data, batch_size=config.batch_size, epochs=config.local_epochs, step=step, state=server
    )
    return server, {"loss": value}


def score(config: Config, view: Server, private: Message, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return nn.neumf(view.tower, view.users[user], view.items[items], gmf=True)
