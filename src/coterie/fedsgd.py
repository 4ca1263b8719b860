"""The general federated recommender of the robustness literature: a client sends gradients, the server steps on them.

  private    u            the vector of each user, and the state of its optimiser
  download   V, Theta     the item table and the tower (with `backbone=mf` there is none)
  upload     their gradients, at the downloaded values, of the client's whole loss
  server     one step of its optimiser on the combined gradients

The recommendation loss is binary cross-entropy, averaged over the client's samples. Methods differ in what they add to
it; each says so in its own file and has the rest from here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.custom_batching import sequential_vmap
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Optimiser, Received, Rule, Samples


class Config(ClientConfig):
    """Sizes and rates of CL4FedRec; the step of the server and the scale of the first vectors are not printed there."""

    backbone: Literal["ncf", "mf"] = Field("ncf", description="a tower over [u, v], or their inner product")
    embedding_dim: int = Field(32, ge=1)
    layers: tuple[int, ...] = Field((64, 32, 16), min_length=1, description="hidden layers of the tower")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")
    lr: float = Field(0.001, gt=0, description="rate of the user vector")
    user_optimiser: Literal["sgd", "adam"] = Field("adam", description="what moves the user vector")
    aggregation: Rule = "sum"
    server_optimiser: Optimiser = "adam"
    server_lr: float = Field(0.001, gt=0, description="rate of the server's step")
    batch_size: int = Field(0, ge=0, description="not used: a gradient is that of all samples of the client")


class Server(NamedTuple):
    """Item table and tower."""

    items: Array
    tower: list[nn.Layer]


class Private(NamedTuple):
    """The vector of each user and the moments of its optimiser."""

    users: Array
    moments: Any


Upload = Server

Extra = Callable[[Array, Array, Any, Samples], Array]
"""What a method adds to the loss: `extra(key, users, public, data)`, where `public` has the fields of the download."""


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Rows are N(0, init_scale^2), the tower He-uniform with zero biases."""
    of_items, of_tower = jax.random.split(key)
    items = config.init_scale * jax.random.normal(of_items, (catalogue.n_items, config.embedding_dim))
    deep = config.backbone == "ncf"
    return Server(items, nn.init_neumf(of_tower, config.embedding_dim, config.layers, gmf=False) if deep else [])


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """User rows are N(0, init_scale^2), each client's its own."""
    own = jax.random.fold_in(key, client.number)
    users = config.init_scale * jax.random.normal(own, (client.users, config.embedding_dim))
    return Private(users, optimiser(config).init(users))


def download(config: Config, server: Server, client: Client) -> Server:
    """Everybody gets the public part."""
    return server


def optimiser(config: Config) -> optax.GradientTransformation:
    """Return what moves user vectors."""
    return nn.OPTIMISERS[config.user_optimiser](config.lr)


def logits(tower: list[nn.Layer], users: Array, rows: Array) -> Array:
    """Scores before the sigmoid; one user row may stand for all."""
    return nn.neumf(tower, users, rows, gmf=False) if tower else jnp.sum(users * rows, -1)


def errors(users: Array, rows: Array, tower: list[nn.Layer], data: Samples) -> Array:
    """Cross-entropy of each sample, 0 for padding; `rows` are the items' (eq. 1 of CL4FedRec, sign corrected)."""
    return nn.bce(logits(tower, nn.pick(users, data.users), rows), data.labels) * data.real


def local_update(
    key: Array, config: Config, download: Any, private: Private, data: Samples, extra: Extra | None = None
) -> tuple[Upload, Private, dict[str, Array]]:
    """Take the gradient of the loss; the user vectors step along theirs, the rest is uploaded.

    With several local epochs the user vectors step each time, and the gradients of the public part add up.
    """
    step = optimiser(config).update

    def loss(users: Array, public: Upload, key: Array) -> Array:
        of_samples = errors(users, public.items[data.items], public.tower, data)
        value = jnp.sum(of_samples) / jnp.maximum(data.count, 1)
        return value if extra is None else value + extra(key, users, download._replace(**public._asdict()), data)

    def epoch(carry: tuple[Private, Upload], key: Array) -> tuple[tuple[Private, Upload], Array]:
        (users, moments), total = carry
        value, (of_users, of_public) = jax.value_and_grad(loss, (0, 1))(users, public, key)
        change, moments = step(of_users, moments)
        return (Private(optax.apply_updates(users, change), moments), nn.add(total, of_public)), value

    public = Upload(download.items, download.tower)
    start = private, jax.tree.map(jnp.zeros_like, public)
    (private, total), values = jax.lax.scan(epoch, start, jax.random.split(key, config.local_epochs))
    return total, private, {"loss": values[-1]}


def server_update(key: Array, config: Config, server: Any, received: Received) -> Any:
    """Subtract the combined gradient; the server's optimiser makes a step of its own size of it."""
    combined = nn.combine(config.aggregation, received, ("items",))
    moved = nn.difference(Server(server.items, server.tower), combined)
    return server._replace(items=moved.items, tower=moved.tower)


def score(config: Config, view: Any, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user."""
    return logits(view.tower, private.users[user][None], view.items[items])


AT_ONCE = 256
"""Rows of a matrix of pairs that are computed together: they stay in the processor's cache."""


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def info_nce(left: Array, right: Array, real: Array, temperature: float) -> Array:
    """Mean over the real rows k of `-log softmax_j(left_k . right_j / t)_k`, j over the real rows; all of length 1."""
    return _info_nce(left, right, real, temperature)[0]


def _info_nce(left: Array, right: Array, real: Array, temperature: float) -> tuple[Array, tuple[Array, ...]]:
    """Return the term and its gradients, which share their costly part, the exponentials."""
    own = (jnp.sum(left * right, 1) - 1) / temperature
    share = (real / (jnp.maximum(real.sum(), 1) * temperature))[:, None]
    mass, pushed, pulled = _pushes(temperature, left, right, real, share)
    value = nn.weighted_mean(jnp.log(mass) - own, real)
    return value, (pushed - share * right, pulled - share * left, real)


def _pushes(temperature: float, left: Array, right: Array, real: Array, share: Array) -> tuple[Array, Array, Array]:
    """Return `mass_k = sum_j e_kj`, with `e_kj = exp((left_k . right_j - 1) / t)`, and what e / mass adds to gradients.

    Rows are worked off a few at a time, up to the last real one. Unit vectors: no exponent is above 0, and no row needs
    a maximum of its own.
    """
    lefts, shares = (blocks(rows, AT_ONCE) for rows in (left, share))

    def some(turn: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        masses, pushed, pulled = sums
        close = jnp.exp((lefts[turn] @ right.T - 1) / temperature) * real[None, :]
        mass = jnp.maximum(close.sum(1), 1e-30)
        of_mass = shares[turn] / mass[:, None]
        push, pull = of_mass * (close @ right), (of_mass * lefts[turn]).T @ close
        return masses.at[turn].set(mass), pushed.at[turn].set(push), pulled + pull

    start = jnp.ones(lefts.shape[:2]), jnp.zeros(lefts.shape), jnp.zeros(right.T.shape)
    masses, pushed, pulled = jax.lax.fori_loop(0, -(-until_last(real) // lefts.shape[1]), some, start)
    return masses.ravel()[: len(left)], pushed.reshape(-1, left.shape[1])[: len(left)], pulled.T


def until_last(real: Array) -> Array:
    """Return how many rows there are up to the last real one."""
    return jnp.max(jnp.where(real > 0, 1 + jnp.arange(len(real)), 0))


def _backward(*given: Any) -> tuple[Array, Array, Array]:
    (to_left, to_right, real), change = given[-2:]  # settings stand before them
    return change * to_left, change * to_right, jnp.zeros_like(real)


info_nce.defvjp(_info_nce, _backward)


def blocks(values: Array, size: int) -> Array:
    """Cut the first axis into blocks of at most `size`, the last one filled with zeros."""
    count = -(-values.shape[0] // size)
    width = -(-values.shape[0] // count)
    filled = jnp.pad(values, [(0, count * width - values.shape[0]), *[(0, 0)] * (values.ndim - 1)])
    return filled.reshape(count, width, *values.shape[1:])


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def item_contrast(left: Array, right: Array, real: Array, temperature: float, size: int) -> Array:
    """InfoNCE of cosines between two views of the local items, in blocks of `size`; blocks count by their items."""
    return _item_contrast(left, right, real, temperature, size)[0]


def _item_contrast(
    left: Array, right: Array, real: Array, temperature: float, size: int
) -> tuple[Array, tuple[Array, ...]]:
    """Return the term and its gradients, a client after the other and up to the last real item.

    Large matrices of several clients at once would leave the processor's cache, and most of what they hold is padding.
    """

    def client(left: Array, right: Array, real: Array) -> tuple[Array, Array, Array]:
        lefts, rights, reals = (blocks(values, size) for values in (left, right, real))
        shares = reals.sum(1) / jnp.maximum(real.sum(), 1)

        def block(turn: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            value, to_left, to_right = sums
            term = lambda left, right: info_nce(unit(left), unit(right), reals[turn], temperature)  # noqa: E731
            own, slopes = jax.vjp(term, lefts[turn], rights[turn])
            of_left, of_right = slopes(shares[turn])
            return value + shares[turn] * own, to_left.at[turn].set(of_left), to_right.at[turn].set(of_right)

        start = jnp.zeros(()), jnp.zeros_like(lefts), jnp.zeros_like(rights)
        value, *slopes = jax.lax.fori_loop(0, -(-until_last(real) // lefts.shape[1]), block, start)
        to_left, to_right = (slope.reshape(-1, slope.shape[2])[: len(real)] for slope in slopes)
        return value, to_left, to_right

    value, *slopes = sequential_vmap(client)(left, right, real)
    return value, (*slopes, real)


item_contrast.defvjp(_item_contrast, _backward)


def unit(vectors: Array) -> Array:
    """Vectors of length 1; a zero vector stays what it is, with a gradient that is a number."""
    squares = jnp.sum(vectors**2, -1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))


def signed_noise(key: Array, vectors: Array, length: float) -> Array:
    """Noise of a given length in the orthant of each vector (eq. 6): `sign(u) * e`, e uniform and scaled."""
    drawn = jax.random.uniform(key, vectors.shape)
    return jax.lax.stop_gradient(jnp.sign(vectors)) * drawn * (length / jnp.linalg.norm(drawn, axis=-1, keepdims=True))
