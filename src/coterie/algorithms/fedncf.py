"""FedNCF: federated neural collaborative filtering (Perifanis & Efraimidis, Knowledge-Based Systems 2022).

  private    p, p'          user vectors of the two branches
  download   q, q', MLP     item tables of the two branches, tower and output layer
  upload     their changes
  server     adds the mean change

NeuMF: an element-wise branch `p * q` and a tower over `[p', q']` meet in one linear output. Each client trains with an
Adam of its own, new in every round. Evaluation: the new public part with the private vectors.

Deviation: the Adam of item and user tables is lazy, a row moves only in a batch that holds it (as sparse Adam does), so
that a step costs its rows and not the tables. The rate 0.05 is the one published for it on MovieLens-100K; each row of
a table is averaged over the clients that trained it (`aggregation=per_item_mean`), because a mean over all clients
hardly moves a rare item. `gmf=false` leaves the tower alone (NCF with an MLP).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import optax
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Rule, Samples

info = Info(
    name="fedncf",
    summary="NeuMF with private user vectors, public item tables and tower",
    paper="Federated Neural Collaborative Filtering (Knowledge-Based Systems 2022)",
    bibtex="""@article{perifanis2022federated,
  title = {Federated Neural Collaborative Filtering},
  author = {Perifanis, Vasileios and Efraimidis, Pavlos S.},
  journal = {Knowledge-Based Systems},
  volume = {242},
  pages = {108441},
  year = {2022}
}""",
    tasks=("ranking", "rating"),
    item_tables=("items",),
    rounds=100,
)


class Config(ClientConfig):
    """Tower 64-32-16 over two vectors of 32."""

    embedding_dim: int = Field(32, ge=1)
    layers: tuple[int, ...] = Field((64, 32, 16), min_length=1, description="hidden layers of the tower")
    gmf: bool = Field(True, description="whether the element-wise branch is there")
    lr: float = Field(0.05, gt=0, description="rate of the local Adam on tower and user rows")
    item_lr: float = Field(0.05, gt=0, description="rate of the local Adam on item rows")
    aggregation: Rule = "per_item_mean"
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")


class Server(NamedTuple):
    """Rows `[q', q]` of the items (or `q'` alone), tower and output layer."""

    items: Array
    tower: list[nn.Layer]


Download = Server
Upload = Server


class Private(NamedTuple):
    """Rows `[p', p]` of the users (or `p'` alone)."""

    users: Array


def _width(config: Config) -> int:
    return config.embedding_dim * (2 if config.gmf else 1)


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Rows are N(0, init_scale^2), the tower He-uniform."""
    table, tower = jax.random.split(key)
    items = config.init_scale * jax.random.normal(table, (catalogue.n_items, _width(config)))
    return Server(items, nn.init_neumf(tower, config.embedding_dim, config.layers, config.gmf))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """User rows are N(0, init_scale^2), each client's its own."""
    own = jax.random.fold_in(key, client.number)
    return Private(config.init_scale * jax.random.normal(own, (client.users, _width(config))))


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the public part."""
    return server


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Adam steps on the tower, lazy Adam steps on the rows of each batch."""
    optimiser = optax.adam(config.lr)

    def loss(tower: list[nn.Layer], mine: Array, theirs: Array, batch: nn.Batch) -> Array:
        logits = nn.neumf(tower, mine, theirs, config.gmf)
        return nn.weighted_mean(nn.LOSSES[config.loss](logits, batch.labels), batch.weights)

    def step(state: Any, batch: nn.Batch) -> tuple[Any, Array]:
        tower, moments, users, of_users, items, of_items = state
        mine, theirs = nn.pick(users, batch.users), items[batch.items]
        value, grads = jax.value_and_grad(loss, (0, 1, 2))(tower, mine, theirs, batch)
        updates, new_moments = optimiser.update(grads[0], moments)
        moved = optax.apply_updates(tower, updates)
        tower, moments = nn.guarded(batch.empty, (tower, moments), (moved, new_moments))
        picked = batch._replace(users=batch.users[: len(mine)], weights=batch.weights[: len(mine)])  # one user: one row
        users, of_users = nn.adam_rows(users, of_users, picked.users, grads[1], config.lr, picked)
        items, of_items = nn.adam_rows(items, of_items, batch.items, grads[2], config.item_lr, batch)
        return (tower, moments, users, of_users, items, of_items), value

    tables = [part for table in (private.users, download.items) for part in (table, nn.RowAdam.zeros(table))]
    start = (download.tower, optimiser.init(download.tower), *tables)
    (tower, _, users, _, items, _), value = nn.passes(
        key, data, batch_size=config.batch_size, epochs=config.local_epochs, step=step, state=start
    )
    return Upload(*nn.difference((items, tower), tuple(download))), Private(users), {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the combined change."""
    return nn.add(server, nn.combine(config.aggregation, received, info.item_tables))


def personalise(config: Config, download: Download, upload: Upload, private: Private) -> Download:
    """The public part as this client trained it."""
    return nn.add(download, upload)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return nn.neumf(view.tower, private.users[user], view.items[items], config.gmf)
