"""FedMF: federated matrix factorisation (after Chai et al., IEEE Intelligent Systems 2021).

  private    u          the vector of each user
  download   V          the item table (n_items x d)
  upload     V_u - V    the change of the table
  server     V + mean of the changes

The original predicts ratings with encrypted gradients; here, as in the papers that compare with it, a client trains
`sigma(u.v)` on its interactions and sampled negatives (`u.v` with squared error for ratings), and the server takes
the mean. Evaluation: the new global table with the private vector.

The mean over clients divides a row's change by the number of clients, most of whom never touched it, so item rates are
of another size than in one place: `item_lr` is 2 * n_items unless set. It and `lr` were chosen on validation
(MovieLens-100K, `loo99`, from lr 0.1, 0.5, 2, 8 and item_lr 0.5, 2, 8, 30 times n_items); larger ones diverge.

`optimiser=adam` trains users and rows by Adam at the rate `lr`, as RQFedRec's paper does: the moments of the users stay
with the client, those of the rows begin anew in each round.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import factors, nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Samples

info = Info(
    name="fedmf",
    summary="private user vectors, one global item table",
    paper="Secure Federated Matrix Factorization (IEEE Intelligent Systems 2021)",
    bibtex="""@article{chai2021secure,
  title = {Secure Federated Matrix Factorization},
  author = {Chai, Di and Wang, Leye and Chen, Kai and Yang, Qiang},
  journal = {IEEE Intelligent Systems},
  volume = {36},
  number = {5},
  pages = {11--20},
  year = {2021}
}""",
    tasks=("ranking", "rating"),
    item_tables=("items",),
    rounds=100,
)


class Config(ClientConfig):
    """Rates are effective values."""

    embedding_dim: int = Field(32, ge=1)
    lr: float = Field(0.5, gt=0, description="rate of the user vector")
    item_lr: float = Field(0, ge=0, description="rate of the items; 0: 2 * n_items")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")
    optimiser: Literal["sgd", "adam"] = Field("sgd", description="of local training; adam has one rate, lr")
    weight_decay: float = Field(0.0, ge=0, description="added to Adam's gradients, times the parameter")


class Server(NamedTuple):
    """The item table."""

    items: Array


Download = Server
Upload = Server


class Private(NamedTuple):
    """The user vectors, and the moments of Adam."""

    users: Array
    moments: Any = ()


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """Fill in the item rate, which depends on the size of the catalogue."""
    item_lr = config.item_lr or 2.0 * catalogue.n_items
    return config.model_copy(update={"item_lr": item_lr})


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Item rows are N(0, init_scale^2)."""
    return Server(config.init_scale * jax.random.normal(key, (catalogue.n_items, config.embedding_dim)))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """User vectors are N(0, init_scale^2), each client's its own."""
    own = jax.random.fold_in(key, client.number)
    users = config.init_scale * jax.random.normal(own, (client.users, config.embedding_dim))
    if config.optimiser == "sgd":
        return Private(users)
    return Private(users, factors.optimiser("adam", config.lr, config.weight_decay).init(users))


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the table."""
    return server


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Gradient steps on the user vectors and the rows of each batch."""
    if config.optimiser == "adam":
        mine = factors.Private(*private)
        items, mine, value = factors.train(key, config, mine, download.items, lambda table, ids: table[ids], data)
        touched = jnp.zeros(len(items)).at[data.items].max(data.real)
        return Upload((items - download.items) * touched[:, None]), Private(*mine), {"loss": value}

    def loss(users: Array, rows: Array, batch: nn.Batch) -> Array:
        logits = jnp.sum(nn.pick(users, batch.users) * rows, -1)
        return nn.weighted_mean(nn.LOSSES[config.loss](logits, batch.labels), batch.weights)

    def step(state: tuple[Array, Array], batch: nn.Batch) -> tuple[tuple[Array, Array], Array]:
        users, items = state
        value, (du, dv) = jax.value_and_grad(loss, (0, 1))(users, items[batch.items], batch)
        return (users - config.lr * du, items.at[batch.items].add(-config.item_lr * dv)), value

    (users, items), value = nn.passes(
        key,
        data,
        batch_size=config.batch_size,
        epochs=config.local_epochs,
        step=step,
        state=(private.users, download.items),
    )
    return Upload(items - download.items), Private(users), {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the mean change."""
    return nn.add(server, nn.combine(config.aggregation, received, info.item_tables))


def personalise(config: Config, download: Download, upload: Upload, private: Private) -> Download:
    """The table as this client trained it."""
    return nn.add(download, upload)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Inner products of items with one user."""
    return view.items[items] @ private.users[user]
