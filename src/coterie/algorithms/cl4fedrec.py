"""CL4FedRec: contrastive learning on clients, with synthetic users as negatives (Yuan et al., 2024).

  private    u               the vector of each user, and the moments of its optimiser
  download   V, Theta, S     item table, tower, vectors of the synthetic users
  upload     gradients of V and Theta
  server     one step on the summed gradients; at the end of a global epoch the synthetic users are fitted anew (eq. 5)

A synthetic user has `synthetic_items` items drawn by popularity (eq. 4) and moves its own vector only. On a client the
loss is that of the recommender plus two contrastive terms (eq. 11). A user has two views, its vector with signed noise
(eq. 6), which are to be alike and unlike the synthetic users (eq. 7). A local item has two views, its row after one
gradient step for either view of the user (eq. 8-9), which are to be alike and unlike the other local items' (eq. 10).

rCL4FedRec is `regulariser=popularity`: the server keeps popular and other items apart (eq. 14). That part works with
every algorithm that has an item table: see `coterie.regulariser`.

Not said in the paper, and chosen here: clients send gradients of one pass and the server steps with Adam on their sum;
item views step along the summed loss at rate `view_lr`, each row by at most `noise`; the item term is a mean over
items, taken in blocks; a synthetic user steps as often as a client does in an epoch. The steps of the item views are
constants for differentiation. `item_views=noise` and `synthetic=uniform` are the variants of the paper's table 5.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from pydantic import Field

from coterie import fedsgd, nn
from coterie.algorithm import Catalogue, Client, Info, Received, Samples
from coterie.fedsgd import Private, Upload, init_client, score

__all__ = ["Private", "Upload", "init_client", "score"]

info = Info(
    name="cl4fedrec",
    summary="contrastive views of users and items on clients, synthetic negative users",
    paper="Robust Federated Contrastive Recommender System against Model Poisoning Attack (2024)",
    bibtex="""@article{yuan2024robust,
  title = {Robust Federated Contrastive Recommender System against Model Poisoning Attack},
  author = {Yuan, Wei and Yang, Chaoqun and Qu, Liang and Ye, Guanhua and Nguyen, Quoc Viet Hung and Yin, Hongzhi},
  journal = {arXiv preprint arXiv:2403.20107},
  year = {2024}
}""",
    item_tables=("items",),
    upload="gradient",
    rounds=20,
)


class Config(fedsgd.Config):
    """Defaults are those of the paper for MovieLens-1M."""

    user_weight: float = Field(0.5, ge=0, description="weight of the user term (lambda 1)")
    item_weight: float = Field(0.5, ge=0, description="weight of the item term (lambda 2)")
    temperature: float = Field(0.2, gt=0, description="tau of both terms")
    noise: float = Field(0.1, gt=0, description="eta: length of the noise, and most that an item view moves")
    item_views: Literal["gradient", "noise"] = Field("gradient", description="by a gradient step, or by signed noise")
    view_lr: float = Field(1.0, gt=0, description="rate of the step to an item view")
    item_block: int = Field(1024, ge=2, description="local items that are compared with one another at a time")
    synthetic_users: int = Field(60, ge=1)
    synthetic_items: int = Field(30, ge=1, description="items of a synthetic user (N)")
    synthetic: Literal["popularity", "uniform"] = Field("popularity", description="how its items are drawn")


class Server(NamedTuple):
    """The public part, and the synthetic users: vectors, moments of their optimiser, items."""

    items: Array
    tower: list[nn.Layer]
    synthetic: Array
    moments: Any
    profiles: Array


class Download(NamedTuple):
    """The public part and the vectors of the synthetic users."""

    items: Array
    tower: list[nn.Layer]
    synthetic: Array


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """A synthetic user has no more than half of the items, so that there are others."""
    return config.model_copy(update={"synthetic_items": min(config.synthetic_items, max(1, catalogue.n_items // 2))})


# -- the synthetic users ----------------------------------------------------------------------------------------


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Draw the synthetic users' items, and fit their vectors a first time."""
    of_model, of_items, of_users, of_fit = jax.random.split(key, 4)
    public = fedsgd.init_server(of_model, config, catalogue)
    shape = config.synthetic_users, config.embedding_dim
    vectors = config.init_scale * jax.random.normal(of_users, shape)
    server = Server(*public, vectors, fedsgd.optimiser(config).init(vectors), profiles(of_items, config, catalogue))
    return end_round(of_fit, config, server)


def profiles(key: Array, config: Config, catalogue: Catalogue) -> Array:
    """Distinct items of each synthetic user, likelier the more popular they are (eq. 4).

    The largest sums of logarithmic weights and Gumbel noise are a draw without replacement.
    """
    shape = config.synthetic_users, catalogue.n_items
    popular = jnp.log(jnp.maximum(catalogue.popularity.astype(jnp.float32), 1e-6))
    weight = popular if config.synthetic == "popularity" else jnp.zeros(catalogue.n_items)
    chance = weight[None, :] + jax.random.gumbel(key, shape)
    return jax.lax.top_k(chance, config.synthetic_items)[1].astype(jnp.int32)


def end_round(key: Array, config: Config, server: Server) -> Server:
    """Fit the synthetic users to the public part as it is now (eq. 5); only their vectors move."""
    count = config.negatives * server.profiles.shape[1]
    each = jax.vmap(lambda key, profile: nn.others(key, profile, len(server.items), count))
    others = each(jax.random.split(key, len(server.profiles)), server.profiles)
    items = jnp.concatenate([server.profiles, others], 1)
    likes = jnp.concatenate([jnp.ones(server.profiles.shape), jnp.zeros(others.shape)], 1)

    def loss(vectors: Array) -> Array:
        logits = jax.vmap(lambda user, rows: fedsgd.logits(server.tower, user[None], rows))
        return jnp.sum(jnp.mean(nn.bce(logits(vectors, server.items[items]), likes), 1))

    def step(_: Array, state: tuple[Array, Any]) -> tuple[Array, Any]:
        vectors, moments = state
        change, moments = fedsgd.optimiser(config).update(jax.grad(loss)(vectors), moments)
        return optax.apply_updates(vectors, change), moments

    fitted = jax.lax.fori_loop(0, config.local_epochs, step, (server.synthetic, server.moments))
    return server._replace(synthetic=fitted[0], moments=fitted[1])


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the public part and the synthetic users."""
    return Download(server.items, server.tower, server.synthetic)


# -- the clients ------------------------------------------------------------------------------------------------


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Take the gradient of the joint loss (eq. 11)."""

    def contrast(key: Array, users: Array, public: Download, data: Samples) -> Array:
        *of_users, of_items = jax.random.split(key, 3)
        first, second = (users + fedsgd.signed_noise(each, users, config.noise) for each in of_users)  # eq. 6
        value = jnp.zeros(())
        if config.user_weight:
            here = jnp.zeros(len(users)).at[data.users].max(data.real)
            value += config.user_weight * user_contrast(first, second, public.synthetic, here, config.temperature)
        if config.item_weight:
            local, real = nn.local_items(data, len(public.items))
            left, right = item_views(of_items, config, [first, second], public, data, local)
            value += config.item_weight * fedsgd.item_contrast(left, right, real, config.temperature, config.item_block)
        return value

    return fedsgd.local_update(key, config, download, private, data, contrast)


def user_contrast(first: Array, second: Array, synthetic: Array, here: Array, temperature: float) -> Array:
    """The user term, averaged over the users that are `here` (eq. 7); synthetic users are constants."""
    own = jnp.sum(fedsgd.unit(first) * fedsgd.unit(second), 1)
    others = fedsgd.unit(first) @ fedsgd.unit(jax.lax.stop_gradient(synthetic)).T
    alike = jnp.concatenate([own[:, None], others], 1) / temperature
    return nn.weighted_mean(jax.nn.logsumexp(alike, 1) - alike[:, 0], here)


def item_views(
    key: Array, config: Config, users: list[Array], public: Download, data: Samples, local: Array
) -> list[Array]:
    """Two views of the rows of the `local` items, one for either view of the user (eq. 8-9)."""
    rows = public.items[local]
    if config.item_views == "noise":
        return [rows + fedsgd.signed_noise(each, rows, config.noise) for each in jax.random.split(key)]
    return [rows + item_step(config, view, public, data)[local] for view in users]


def item_step(config: Config, view: Array, public: Download, data: Samples) -> Array:
    """One gradient step on the item rows with the users as in `view`, at most `noise` long (eq. 8)."""
    view, items, tower = jax.lax.stop_gradient((view, public.items, public.tower))
    slope = jax.grad(lambda rows: jnp.sum(fedsgd.errors(view, rows, tower, data)))(items[data.items])
    step = -config.view_lr * jnp.zeros_like(items).at[data.items].add(slope)
    return step * jnp.minimum(1, config.noise / jnp.maximum(jnp.linalg.norm(step, axis=1, keepdims=True), 1e-12))


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Subtract the combined gradient; the synthetic users wait for the end of the epoch."""
    return fedsgd.server_update(key, config, server, received)
