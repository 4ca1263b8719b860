"""FREIB: explicitly encoded item bias for platforms with skewed ratings (Wang et al., AAAI 2025).

  private    nothing but the records of the platform
  download   NeuMF, bias vectors E and their scorer S, prototypes G
  upload     changes of NeuMF, E and S; prototypes P of the platform
  server     adds the mean change; averages prototypes over the platforms that have the level

  r_o = NeuMF(u, i)                        eq. 1     L_o       = (r - r_o)^2           eq. 2
  b_i = S(e_i)                             eq. 4
  r_bias = r_o + b_i                       eq. 5     L_bias    = (r - r_bias)^2        eq. 6
  what the downloaded model predicts       eq. 8     L_distill = (r_bias - that)^2     eq. 9
  P_k = mean of e_i over records rated k   eq. 10    L_proto   = |e_i - G_k|^2 / d     eq. 14
                          L = L_o + L_bias + L_distill + weight * L_proto              eq. 15

The paper prints plain differences and sums; they are squared errors here, averaged over the batch, and over the
dimensions in eq. 14, as in published prototype code. The first round has neither prototypes nor guidance. Eq. 12
divides by the number of platforms; under skew some have no record of a level, so it is the number of those that have.
`item_bias=false` takes E, S and the prototypes away and guides r_o (the first row of table 4). The model that was
downloaded does not change during a round, so its predictions are computed once for all passes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import nn, platforms
from coterie.algorithm import Catalogue, Info, Received, Samples
from coterie.platforms import Private, Prototypes, download, init_client, resolve

__all__ = ["Private", "download", "init_client", "resolve"]

info = Info(
    name="freib",
    summary="NeuMF with explicit item biases, guided by the global model and by prototypes of rating levels",
    paper="Federated Recommendation with Explicitly Encoding Item Bias (AAAI 2025)",
    bibtex="""@inproceedings{wang2025federated,
  title = {Federated Recommendation with Explicitly Encoding Item Bias},
  author = {Wang, Zhihao and Bai, He and Huang, Wenke and Li, Duantengchuan and Wang, Jian and Li, Bing},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  year = {2025}
}""",
    tasks=("rating",),
    item_tables=("items", "biases"),
    users="global",
    touches="catalogue",
    upload="other",
    rounds=50,
)


class Config(platforms.Config):
    """The paper's sizes and weights; each part can be switched off (table 4)."""

    bias_dim: int = Field(10, ge=1, description="size of an item's bias vector")
    item_bias: bool = Field(True, description="explicit item biases; without them there are no prototypes either")
    own_weight: float = Field(1.0, ge=0, description="weight of the error without item bias (eq. 2)")
    guidance: bool = Field(True, description="whether the downloaded model guides local training")
    alignment: bool = Field(True, description="whether bias vectors are aligned with prototypes")
    weight: float = Field(10.0, ge=0, description="weight of the alignment (tau)")
    bias_scale: float = Field(0.01, gt=0, description="standard deviation of the first bias vectors")


class Server(NamedTuple):
    """NeuMF, bias vectors and their scorer, prototypes, and how many rounds there were."""

    users: Array
    items: Array
    biases: Array
    tower: list[nn.Layer]
    scorer: nn.Layer
    prototypes: Prototypes
    round: Array


Download = Server


class Upload(NamedTuple):
    """Changes of the model; the prototypes of the platform."""

    users: Array
    items: Array
    biases: Array
    tower: list[nn.Layer]
    scorer: nn.Layer
    prototypes: Prototypes


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Vectors are normal, towers He-uniform; without item biases their vectors have no elements."""
    model, biases, scorer = jax.random.split(key, 3)
    width = config.bias_dim if config.item_bias else 0
    table = config.bias_scale * jax.random.normal(biases, (catalogue.n_items, width))
    bound = config.bias_dim**-0.5
    weight = jax.random.uniform(scorer, (width, 1), minval=-bound, maxval=bound)
    users, items, tower = platforms.init_neumf(model, config, catalogue)
    none = Prototypes.none(config, width)
    return Server(users, items, table, tower, nn.Layer(weight, jnp.zeros(1)), none, jnp.int32(0))


class Parts(NamedTuple):
    """What a prediction is made of."""

    personal: Array
    bias: Array

    @property
    def rating(self) -> Array:
        """The prediction (eq. 5)."""
        return self.personal + self.bias


def predict(config: Config, dense: Any, users: Array, items: Array) -> Parts:
    """Predict from rows `[p', p]` of users and `[q', q, e]` of items (eq. 1, 4)."""
    tower, scorer = dense
    width = 2 * config.embedding_dim
    personal = nn.neumf(tower, users, items[..., :width], gmf=True)
    if not config.item_bias:
        return Parts(personal, jnp.zeros_like(personal))
    return Parts(personal, nn.dense(scorer, items[..., width:])[..., 0])


def model_of(view: Download) -> platforms.Model:
    """Put what belongs to an item side by side."""
    return platforms.Model(view.users, jnp.concatenate([view.items, view.biases], 1), (view.tower, view.scorer))


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train the whole model on the platform's records, then average its bias vectors by rating level."""
    old, width = model_of(download), 2 * config.embedding_dim
    later = (download.round > 0).astype(jnp.float32)
    guide = platforms.each_sample(
        lambda users, items: predict(config, old.dense, old.users[users], old.items[items]).rating, data
    )

    def loss(dense: Any, users: Array, items: Array, batch: nn.Batch) -> Array:
        found = predict(config, dense, users, items)
        error = config.own_weight * nn.squared(found.personal, batch.labels)  # eq. 2
        if config.item_bias:
            error += nn.squared(found.rating, batch.labels)  # eq. 6
        if config.guidance:
            error += later * nn.squared(found.rating, guide[batch.place])  # eq. 9
        if config.item_bias and config.alignment:
            apart = platforms.misalignment(config, download.prototypes, items[:, width:], batch.labels)  # eq. 14
            error += config.weight * apart
        return nn.weighted_mean(error, batch.weights)  # eq. 15

    new, value = platforms.train(key, config, platforms.rule(config), old, data, loss)
    own = platforms.prototypes(config, new.items[data.items, width:], data)  # eq. 10
    change = nn.difference(new, old)
    tower, scorer = change.dense
    upload = Upload(change.users, change.items[:, :width], change.items[:, width:], tower, scorer, own)
    return upload, private, {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the mean change; average the prototypes (eq. 12)."""
    change = nn.combine(config.aggregation, received, info.item_tables)
    fields = ("users", "items", "biases", "tower", "scorer")
    moved = {name: nn.add(getattr(server, name), getattr(change, name)) for name in fields}
    merged = platforms.merged(server.prototypes, received.total.prototypes)
    return Server(**moved, prototypes=merged, round=server.round + 1)


def parts(config: Config, view: Download, private: Private, user: Array, items: Array) -> dict[str, Array]:
    """Return the two parts of each prediction."""
    model = model_of(view)
    found = predict(config, model.dense, model.users[user], model.items[items])
    return {"item bias": found.bias, "personal": found.personal}


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Predicted ratings of items by one user."""
    bias, personal = parts(config, view, private, user, items).values()
    return platforms.on_scale(config, bias + personal)
