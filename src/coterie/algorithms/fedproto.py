"""FedProto: prototypes of classes (Tan et al., AAAI 2022), on NeuMF for ratings as in FREIB's experiments.

  private    nothing but the records of the platform
  download   NeuMF, user rows included; a prototype of each rating level
  upload     its change; prototypes of the platform
  server     adds the mean change; averages prototypes over the platforms that have the level

A prototype is the mean of what the output layer sees, over the records with that rating. The local loss is the squared
error plus weight times the mean squared distance of a record's features from the prototype of its rating. The original
averages prototypes alone, because its clients have models of different kinds; FREIB averages the models too. The first
round has no prototypes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array
from pydantic import Field

from coterie import nn, platforms
from coterie.algorithm import Catalogue, Info, Received, Samples
from coterie.platforms import Private, Prototypes, download, init_client, resolve

__all__ = ["Private", "download", "init_client", "resolve"]

info = Info(
    name="fedproto",
    summary="NeuMF by federated averaging, with features aligned to prototypes of rating levels",
    paper="FedProto: Federated Prototype Learning across Heterogeneous Clients (AAAI 2022)",
    bibtex="""@inproceedings{tan2022fedproto,
  title = {{FedProto}: Federated Prototype Learning across Heterogeneous Clients},
  author = {Tan, Yue and Long, Guodong and Liu, Lu and Zhou, Tianyi and Lu, Qinghua and Jiang, Jing and Zhang, Chengqi},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  year = {2022}
}""",
    tasks=("rating",),
    item_tables=("items",),
    users="global",
    touches="catalogue",
    upload="other",
    rounds=50,
)


class Config(platforms.Config):
    """The weight of the alignment is that of FREIB's experiments."""

    weight: float = Field(10.0, ge=0, description="weight of the alignment")


class Server(NamedTuple):
    """User rows, item rows, tower, prototypes."""

    users: Array
    items: Array
    tower: list[nn.Layer]
    prototypes: Prototypes


Download = Server
Upload = Server


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Rows are normal, the tower is He-uniform."""
    width = config.layers[-1] + config.embedding_dim
    return Server(*platforms.init_neumf(key, config, catalogue), Prototypes.none(config, width))


def features(tower: list[nn.Layer], users: Array, items: Array) -> Array:
    """Return what the output layer sees."""
    return nn.neumf_features(tower, users, items, gmf=True)


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train the whole model, then average the features of the platform's records by rating level."""

    def loss(tower: Any, users: Array, items: Array, batch: nn.Batch) -> Array:
        seen = features(tower, users, items)
        error = nn.squared(nn.dense(tower[-1], seen)[..., 0], batch.labels)
        apart = platforms.misalignment(config, download.prototypes, seen, batch.labels)
        return nn.weighted_mean(error + config.weight * apart, batch.weights)

    old = platforms.Model(download.users, download.items, download.tower)
    new, value = platforms.train(key, config, platforms.rule(config), old, data, loss)
    seen = platforms.each_sample(lambda users, items: features(new.dense, new.users[users], new.items[items]), data)
    own = platforms.prototypes(config, seen, data)
    change = nn.difference(new, old)
    return Upload(change.users, change.items, change.dense, own), private, {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the mean change; average the prototypes."""
    moved = nn.add(server, nn.combine(config.aggregation, received, info.item_tables))
    return moved._replace(prototypes=platforms.merged(server.prototypes, received.total.prototypes))


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Predicted ratings of items by one user."""
    return platforms.on_scale(config, nn.neumf(view.tower, view.users[user], view.items[items], gmf=True))
