"""FedProx: local training that is held back (Li et al., MLSys 2020), on NeuMF for ratings as in FREIB's experiments.

  private    nothing but the records of the platform
  download   NeuMF, user rows included
  upload     its change
  server     adds the mean change

The local loss is the squared error plus proximal/2 |theta - theta_downloaded|^2, over all parameters, rows that no
batch holds included. With `proximal=0` it is federated averaging of NeuMF.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array
from pydantic import Field

from coterie import nn, platforms
from coterie.algorithm import Catalogue, Info, Received, Samples
from coterie.platforms import Private, download, init_client, resolve

__all__ = ["Private", "download", "init_client", "resolve"]

info = Info(
    name="fedprox",
    summary="NeuMF by federated averaging, with a pull towards the downloaded model",
    paper="Federated Optimization in Heterogeneous Networks (MLSys 2020)",
    bibtex="""@inproceedings{li2020federated,
  title = {Federated Optimization in Heterogeneous Networks},
  author = {Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet
            and Smith, Virginia},
  booktitle = {Proceedings of Machine Learning and Systems},
  year = {2020}
}""",
    tasks=("rating",),
    item_tables=("items",),
    users="global",
    touches="catalogue",
    rounds=50,
)


class Config(platforms.Config):
    """The weight of the pull is that of FREIB's experiments."""

    proximal: float = Field(10.0, ge=0, description="weight of the pull towards the downloaded model (mu)")


class Server(NamedTuple):
    """User rows, item rows, tower."""

    users: Array
    items: Array
    tower: list[nn.Layer]


Download = Server
Upload = Server


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Rows are normal, the tower is He-uniform."""
    return Server(*platforms.init_neumf(key, config, catalogue))


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train the whole model; the pull is part of the step, so rows without a gradient feel it too."""

    def loss(tower: Any, users: Array, items: Array, batch: nn.Batch) -> Array:
        return nn.weighted_mean(nn.squared(nn.neumf(tower, users, items, gmf=True), batch.labels), batch.weights)

    old = platforms.Model(download.users, download.items, download.tower)
    new, value = platforms.train(key, config, platforms.rule(config, config.proximal), old, data, loss)
    return Upload(*nn.difference(new, old)), private, {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the mean change."""
    return nn.add(server, nn.combine(config.aggregation, received, info.item_tables))


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Predicted ratings of items by one user."""
    return platforms.on_scale(config, nn.neumf(view.tower, view.users[user], view.items[items], gmf=True))
