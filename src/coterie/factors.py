"""Local training of matrix factorisation by Adam: a private vector for each user, item rows from outside.

The moments of the user vectors stay with the client from round to round. Those of the item side begin anew with each
round, because what they belong to has been replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Rule, Samples


class Config(ClientConfig):
    """One rate for users and items."""

    embedding_dim: int = Field(512, ge=1)
    lr: float = Field(0.01, gt=0, description="rate of users and items")
    weight_decay: float = Field(0.0, ge=0, description="added to gradients, times the parameter")
    optimiser: Literal["adam", "sgd"] = Field("adam", description="of local training")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")
    batch_size: int = Field(4096, ge=1, description="samples per local step")
    negatives: int = Field(1, ge=0, description="negatives drawn per interaction")
    aggregation: Rule = Field("weighted", description="how uploads are combined")


class Private(NamedTuple):
    """The user vectors, and the moments of their optimiser."""

    users: Array
    moments: Any


def optimiser(kind: str, lr: float, weight_decay: float) -> optax.GradientTransformation:
    """Return the optimiser; decay enters the gradient, before any moment."""
    return optax.chain(optax.add_decayed_weights(weight_decay), nn.OPTIMISERS[kind](lr))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """User vectors are N(0, init_scale^2), each client's its own."""
    own = jax.random.fold_in(key, client.number)
    users = config.init_scale * jax.random.normal(own, (client.users, config.embedding_dim))
    return Private(users, optimiser(config.optimiser, config.lr, config.weight_decay).init(users))


def train(
    key: Array,
    config: Any,
    private: Private,
    public: Any,
    rows: Callable[[Any, Array], Array],
    data: Samples,
    loss: Callable[[Array, Array, Array], Array] | None = None,
) -> tuple[Any, Private, Array]:
    """Train user vectors and the public part, of which `rows(public, items)` makes item rows.

    Returns both and the mean loss of the last pass. `loss` gives the error of each sample from user rows, item rows and
    labels; without it, it is that of the settings on inner products (eq. 3 of RQFedRec).
    """
    step_by = optimiser(config.optimiser, config.lr, config.weight_decay)

    def value(users: Array, public: Any, batch: nn.Batch) -> Array:
        mine, theirs = nn.pick(users, batch.users), rows(public, batch.items)
        if loss is not None:
            return nn.weighted_mean(loss(mine, theirs, batch.labels), batch.weights)
        return nn.weighted_mean(nn.LOSSES[config.loss](jnp.sum(mine * theirs, -1), batch.labels), batch.weights)

    def step(state: Any, batch: nn.Batch) -> tuple[Any, Array]:
        users, public, of_users, of_public = state
        error, (du, dv) = jax.value_and_grad(value, (0, 1))(users, public, batch)
        du, of_users = step_by.update(du, of_users, users)
        dv, of_public = step_by.update(dv, of_public, public)
        new = optax.apply_updates(users, du), optax.apply_updates(public, dv), of_users, of_public
        return nn.guarded(batch.empty, state, new), error

    start = private.users, public, private.moments, step_by.init(public)
    (users, public, moments, _), error = nn.passes(
        key, data, batch_size=config.batch_size, epochs=config.local_epochs, step=step, state=start
    )
    return public, Private(users, moments), error
