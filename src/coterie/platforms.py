"""The recommender that platforms train together: NeuMF for ratings, all of it public.

  private    nothing but the records
  download   user rows, item rows, tower
  upload     their changes
  server     adds the mean change

Users occur on several platforms, so their rows are shared like those of items. Local training is SGD with momentum and
weight decay, which is new in every round; rows of users and items are updated lazily (`coterie.lazy`). Methods differ
in the loss and in what they add to the model; each says so in its own file and has the rest from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import lazy, nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Samples
from coterie.errors import CoterieError

BLOCK = 4096
"""Samples that are looked at together where nothing is learned from them."""


class Config(ClientConfig):
    """Sizes and rates of FREIB's experiments; the scale of the first vectors is not printed there."""

    embedding_dim: int = Field(32, ge=1)
    layers: tuple[int, ...] = Field((32, 16, 8), min_length=1, description="hidden layers of the tower")
    init_scale: float = Field(0.01, gt=0, description="standard deviation of the first vectors")
    lr: float = Field(0.001, gt=0, description="rate of the local SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the local SGD")
    weight_decay: float = Field(1e-5, ge=0, description="weight decay of the local SGD")
    batch_size: int = Field(64, ge=1, description="samples per local step")
    local_epochs: int = Field(10, ge=1, description="passes over the local samples per round")
    clip_eval: bool = Field(False, description="whether predictions are kept within the scale of ratings")
    levels: tuple[float, ...] = Field((), description="rating levels, ascending; those of the data if none are given")


class Model(NamedTuple):
    """Rows `[p', p]` of the users, rows of the items (`[q', q]` first), and all that has no rows."""

    users: Array
    items: Array
    dense: Any


class Private(NamedTuple):
    """A platform keeps nothing but its records."""


Loss = Callable[[Any, Array, Array, nn.Batch], Array]
"""What is minimised: `loss(dense, user rows, item rows, batch)`."""


def resolve(config: Any, catalogue: Catalogue) -> Any:
    """Fill in the rating levels."""
    levels = config.levels or catalogue.levels
    if not levels:
        raise CoterieError(
            "The ratings of this data have no levels, each is a number of its own; give levels=[1, 2, …]."
        )
    return config.model_copy(update={"levels": tuple(sorted(levels))})


def init_rows(key: Array, config: Config, rows: int, width: int) -> Array:
    """Return rows of N(0, init_scale^2)."""
    return config.init_scale * jax.random.normal(key, (rows, width))


def init_neumf(key: Array, config: Config, catalogue: Catalogue) -> tuple[Array, Array, list[nn.Layer]]:
    """Return user rows, item rows and the tower."""
    users, items, tower = jax.random.split(key, 3)
    width = 2 * config.embedding_dim
    return (
        init_rows(users, config, catalogue.n_users, width),
        init_rows(items, config, catalogue.n_items, width),
        nn.init_neumf(tower, config.embedding_dim, config.layers, gmf=True),
    )


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """Nothing."""
    return Private()


def download(config: Config, server: Any, client: Client) -> Any:
    """Everybody gets all of it."""
    return server


def rule(config: Config, proximal: float = 0.0) -> lazy.Rule:
    """Return what moves the parameters."""
    return lazy.Rule.of(config.lr, config.momentum, config.weight_decay, proximal)


def train(key: Array, config: Config, rule: lazy.Rule, model: Model, data: Samples, loss: Loss) -> tuple[Model, Array]:
    """Go over the local samples in mini-batches; returns the model and the mean loss of the last pass."""
    most = config.local_epochs * -(-data.items.shape[0] // min(config.batch_size, data.items.shape[0]))
    powers = jnp.asarray(rule.powers(most))
    users, items = lazy.Table(model.users, rule, powers), lazy.Table(model.items, rule, powers)

    def step(state: Any, batch: nn.Batch) -> tuple[Any, Array]:
        done, of_users, of_items, dense, velocity = state
        real = batch.weights > 0
        p, q = users.fetch(of_users, batch.users, done), items.fetch(of_items, batch.items, done)
        value, (slope, dp, dq) = jax.value_and_grad(loss, (0, 1, 2))(dense, p[:, 0], q[:, 0], batch)
        of_users = users.push(of_users, batch.users, p, dp, real, done)
        of_items = items.push(of_items, batch.items, q, dq, real, done)
        moved = lazy.descend(rule, dense, velocity, slope, model.dense)
        dense, velocity = nn.guarded(batch.empty, (dense, velocity), moved)
        return (done + jnp.where(batch.empty, 0, 1), of_users, of_items, dense, velocity), value

    rest = jax.tree.map(jnp.zeros_like, model.dense)
    (done, of_users, of_items, dense, _), value = nn.passes(
        key,
        data,
        batch_size=config.batch_size,
        epochs=config.local_epochs,
        step=step,
        state=(jnp.int32(0), users.rows(), items.rows(), model.dense, rest),
    )
    return Model(users.settled(of_users, done), items.settled(of_items, done), dense), value


def each_sample(call: Callable[[Array, Array], Array], data: Samples) -> Array:
    """Return `call(users, items)` for every sample, a block at a time."""
    pairs = data.users[:, None], data.items[:, None]
    return jax.lax.map(lambda pair: call(*pair)[0], pairs, batch_size=BLOCK)


def level_of(config: Config, labels: Array) -> Array:
    """Return the number of the level that is nearest to each rating."""
    return jnp.argmin(jnp.abs(labels[:, None] - jnp.array(config.levels)[None, :]), 1)


class Prototypes(NamedTuple):
    """A vector for each rating level, and 1 where somebody has records of that level, else 0.

    In an upload a vector is zero where the platform has no such record, so that sums can be divided by those who have.
    """

    vectors: Array
    known: Array

    @classmethod
    def none(cls, config: Config, width: int) -> Prototypes:
        """Return the prototypes before the first round."""
        return cls(jnp.zeros((len(config.levels), width)), jnp.zeros(len(config.levels)))


def prototypes(config: Config, vectors: Array, data: Samples) -> Prototypes:
    """Return the mean vector of the local records of each level."""
    level = jnp.where(data.real > 0, level_of(config, data.labels), len(config.levels))
    count = jnp.zeros(len(config.levels)).at[level].add(1.0, mode="drop")
    total = jnp.zeros((len(config.levels), vectors.shape[1])).at[level].add(vectors, mode="drop")
    return Prototypes(total / jnp.maximum(count, 1)[:, None], (count > 0).astype(jnp.float32))


def merged(old: Prototypes, total: Prototypes) -> Prototypes:
    """Average over the platforms that have a level; a level that nobody has keeps its vector.

    How many have it may come with noise, so less than half a platform is nobody, and nothing is divided by less than 1.
    """
    there = total.known > 0.5
    mean = total.vectors / jnp.maximum(total.known, 1)[:, None]
    return Prototypes(jnp.where(there[:, None], mean, old.vectors), jnp.where(there, 1.0, old.known))


def misalignment(config: Config, global_: Prototypes, vectors: Array, labels: Array) -> Array:
    """Squared distance of each sample's vector from the prototype of its level, by element; 0 where there is none."""
    level = level_of(config, labels)
    return jnp.mean((vectors - global_.vectors[level]) ** 2, 1) * global_.known[level]


def on_scale(config: Config, predictions: Array) -> Array:
    """Keep predictions within the scale, if that is asked for."""
    return jnp.clip(predictions, config.levels[0], config.levels[-1]) if config.clip_eval else predictions
