"""GPFedRec: each client is pulled towards the tables of clients like it (Zhang et al., KDD 2024).

  private    u, MLP       a vector for each user and a scoring network
  download   V, T_u       the mean table, and the mean over the client's neighbours
  upload     V_u          the trained table
  server     a graph: the neighbours of a client are those whose tables have more than the mean similarity to its own;
             T_u = mean over them (the client itself if it has none), V = mean of all T_u

A client starts from V and minimises the cross-entropy plus `reg` times the mean squared distance to T_u, over the
whole table; network, user vector and table step together. It is evaluated with the table it has just trained. The
published code multiplies rates by 80, that of the items also by their number; `user_lr` and `item_lr` are the effective
values. All clients start from one draw.

The published code takes the cosine distance for the similarity, and so averages over the clients least alike;
`compat_distance` does that too. Its Laplace noise on the upload is a privacy mechanism and no part of this file.

Deviation: who is absent keeps its neighbours' mean of the last time; the published code needs everybody.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Samples

info = Info(
    name="gpfedrec",
    summary="private network, item tables smoothed over a graph of clients",
    paper="GPFedRec: Graph-Guided Personalization for Federated Recommendation (KDD 2024)",
    bibtex="""@inproceedings{zhang2024gpfedrec,
  title = {{GPFedRec}: Graph-Guided Personalization for Federated Recommendation},
  author = {Zhang, Chunxu and Long, Guodong and Zhou, Tianyi and Zhang, Zijian and Yan, Peng and Yang, Bo},
  booktitle = {Proceedings of the 30th ACM SIGKDD Conference on Knowledge Discovery and Data Mining},
  year = {2024}
}""",
    server_sees="updates",
    item_tables=("items", "target"),
    touches="catalogue",
    upload="other",
    rounds=100,
)


class Config(ClientConfig):
    """Defaults are those of the authors' code."""

    embedding_dim: int = Field(32, ge=1)
    layers: tuple[int, ...] = Field((32, 16, 8), min_length=1, description="hidden layers of the network")
    lr: float = Field(0.1, gt=0, description="rate of the network")
    user_lr: float = Field(0, ge=0, description="rate of the user vectors; 0: 79 * lr")
    item_lr: float = Field(0, ge=0, description="rate of the items; 0: 80 * lr * n_items - lr")
    reg: float = Field(1.0, ge=0, description="weight of the distance to the neighbours' mean")
    neighbours: int = Field(0, ge=0, description="how many neighbours a client has; 0: all above the threshold")
    threshold: float = Field(1.0, description="least similarity of a neighbour, in means of all similarities")
    compat_distance: bool = Field(False, description="take the distance for the similarity, as the published code does")
    eval_table: Literal["global", "local"] = "local"


class Server(NamedTuple):
    """The mean table and each client's mean over its neighbours."""

    items: Array
    targets: Array


class Download(NamedTuple):
    """The mean table to start from and the one to stay close to."""

    items: Array
    target: Array


class Upload(NamedTuple):
    """The trained table."""

    items: Array


class Private(NamedTuple):
    """A vector for each user, and the network."""

    users: Array
    network: list[nn.Layer]


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """Fill in the rates, which depend on the size of the catalogue."""
    item_lr = config.item_lr or 80 * config.lr * catalogue.n_items - config.lr
    return config.model_copy(update={"user_lr": config.user_lr or 79 * config.lr, "item_lr": item_lr})


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Item rows are N(0, 1); everybody's neighbours have the same."""
    items = jax.random.normal(key, (catalogue.n_items, config.embedding_dim))
    return Server(items, jnp.tile(items, (catalogue.n_clients, 1, 1)))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """One draw for all: user vectors N(0, 1), layers U(-1/sqrt(inputs), 1/sqrt(inputs))."""
    of_users, of_network = jax.random.split(key)
    users = jnp.tile(jax.random.normal(of_users, (1, config.embedding_dim)), (client.users, 1))
    wide = [2 * config.embedding_dim, *config.layers, 1]
    keys = jax.random.split(of_network, len(wide) - 1)
    return Private(users, [_layer(*each) for each in zip(keys, wide[:-1], wide[1:], strict=True)])


def _layer(key: Array, inputs: int, outputs: int) -> nn.Layer:
    bound = inputs**-0.5
    draw = jax.random.uniform(key, (inputs + 1, outputs), minval=-bound, maxval=bound)
    return nn.Layer(draw[:-1], draw[-1])


def download(config: Config, server: Server, client: Client) -> Download:
    """The mean table, and the client's own target."""
    return Download(server.items, server.targets[client.number])


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Step on network, user vectors and the whole table together."""

    def loss(private: Private, rows: Array, batch: nn.Batch) -> Array:
        logits = nn.neumf(private.network, nn.pick(private.users, batch.users), rows, gmf=False)
        return nn.weighted_mean(nn.bce(logits, batch.labels), batch.weights)

    # The squared distance is a mean over all entries, so each of them is pulled by this share of its distance.
    pull = 2 * config.item_lr * config.reg / download.target.size

    def step(state: Any, batch: nn.Batch) -> tuple[Any, Array]:
        (users, network), items = state
        value, (own, rows) = jax.value_and_grad(loss, (0, 1))(Private(users, network), items[batch.items], batch)
        items = items - jnp.where(batch.empty, 0, pull) * (items - download.target)
        items = items.at[batch.items].add(-config.item_lr * rows)
        users = users - config.user_lr * own.users
        return (Private(users, nn.descend(network, own.network, config.lr)), items), value

    (private, items), value = nn.passes(
        key,
        data,
        batch_size=config.batch_size,
        epochs=config.local_epochs,
        step=step,
        state=(private, download.items),
    )
    return Upload(items), private, {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Smooth the tables over the graph of those who took part."""
    assert received.uploads is not None and received.present is not None
    present = np.asarray(received.present)
    both = np.ix_(present, present)
    weights = np.zeros((len(present), len(present)), np.float32)
    mean = jax.tree.map(lambda total: total / received.weight, received.total)
    weights[both] = graph(config, similarities(received.uploads.products(mean)[both]))
    targets = received.uploads.mix(weights).items
    if not present.all():
        targets = jnp.where(received.present[:, None, None], targets, server.targets)
    return Server(received.uploads.sum(weights.sum(0) / present.sum()).items, targets)


def similarities(products: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair, from inner products."""
    lengths = np.sqrt(np.maximum(products.diagonal(), 1e-12))
    return products / lengths[:, None] / lengths[None, :]


def graph(config: Config, alike: np.ndarray) -> np.ndarray:
    """Return the weight of each client for each: equal over its neighbours, all on itself if it has none."""
    alike = 1 - alike if config.compat_distance else alike
    if config.neighbours:
        near = np.argsort(-alike, axis=1, kind="stable")[:, : config.neighbours]
        chosen = np.zeros(alike.shape, bool)
        np.put_along_axis(chosen, near, True, axis=1)
    else:
        chosen = alike > config.threshold * alike.mean()
    alone = np.flatnonzero(~chosen.any(1))
    chosen[alone, alone] = True
    return (chosen / chosen.sum(1, keepdims=True)).astype(np.float32)


def personalise(config: Config, download: Download, upload: Upload, private: Private) -> Download:
    """The table as this client trained it."""
    return download._replace(items=upload.items)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return nn.neumf(private.network, private.users[user], view.items[items], gmf=False)
