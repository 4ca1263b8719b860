"""CoFedRec: clients grouped on one item category a round, items kept apart by category (He et al., WWW 2024).

  private    w, b, V_u    a scorer for each user and the client's own item table
  download   M            the category of each item (n_items integers)
  upload     V_u          the trained table
  answer     V_s          the group's table, for the clients that are in the group; everybody else keeps its own
  server     V_g = mean of all tables (eq. 6), M = k-means of its rows (eq. 7), a core client and a category at random,
             similarity to the core on that category (eq. 1), the group by the elbow (eq. 2-4), V_s = its mean (eq. 5)

Local training is that of PFedRec: in each batch the scorer steps first, then the items against the new scorer. The
item step also follows the contrastive term (eq. 8), which pulls items of one category together and pushes all others
apart. It has no gradient on the scorer, and there is none before the first categories arrive.

Where the published code differs from the printed equations the code is followed: in the contrastive term vectors have
length 1, the logarithm stands inside the sum over positives, the mean over items is taken and the factor
temperature / 0.5 is applied (`supcon_form=paper` is the printed equation 8). The elbow is that of the points
(rank, similarity); on numbers alone, as printed, every distance is zero. The group is everybody up to the elbow.

The parts of the paper's Table 2 are settings: `partition` (User_P), `item_term` contrast (Item_SC) or similarity
(Item_S, eq. 10). Those of Table 3 are `backbone`: with `fedmf` the user vector is private, with `fedncf` the tower
travels with the table and is averaged over the group.

Deviations: without an elbow (all similarities equal) the group is everybody who took part, not the core alone. The
contrastive term may be computed on a sample or every few batches: it costs n_items^2 otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field, field_validator

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Samples
from coterie.clustering import kmeans
from coterie.contrast import Peers, contrast, printed_contrast

info = Info(
    name="cofedrec",
    summary="clients grouped by one item category a round, contrastive term on items",
    paper="Co-clustering for Federated Recommender System (WWW 2024)",
    bibtex="""@inproceedings{he2024coclustering,
  title = {Co-clustering for Federated Recommender System},
  author = {He, Xinrui and Liu, Shuo and Keung, Jacky and He, Jingrui},
  booktitle = {Proceedings of the ACM Web Conference 2024},
  year = {2024}
}""",
    server_sees="updates",
    item_tables=("items",),
    touches="catalogue",
    only_if=(("items", "member"), ("tower", "member")),
    shares=("items", "tower"),
    upload="other",
    rounds=100,
)


class Config(ClientConfig):
    """Defaults are those of the paper for MovieLens-100K."""

    embedding_dim: int = Field(32, ge=1)
    lr: float = Field(0.1, gt=0, description="rate of the scorer")
    item_lr: float = Field(0, ge=0, description="rate of the items; 0: 80 * lr * n_items")
    local_epochs: int = Field(2, ge=1, description="passes over the local samples per round")
    clusters: int = Field(30, ge=1, description="item categories")
    partition: bool = Field(True, description="User_P: average over the similar group; false: over everybody")
    group_size: int = Field(0, ge=0, description="clients in the similar group; 0: those up to the elbow")
    item_term: Literal["contrast", "similarity", "none"] = Field("contrast", description="Item_SC, Item_S or neither")
    weight: float = Field(0.005, ge=0, description="weight of the item term")
    temperature: float = Field(0.1, gt=0)
    supcon: Literal["exact", "sampled", "every", "off"] = Field("exact", description="how the contrast is computed")
    supcon_form: Literal["code", "paper"] = Field("code", description="as published code or equation 8 has it")
    supcon_sample: int = Field(512, ge=2, description="items per batch, with supcon=sampled")
    supcon_every: int = Field(4, ge=1, description="batches between two, with supcon=every; the weight grows alike")
    backbone: Literal["pfedrec", "fedmf", "fedncf"] = "pfedrec"
    layers: tuple[int, ...] = Field((64, 32, 16), min_length=1, description="hidden layers, with backbone=fedncf")

    @field_validator("supcon", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """YAML takes `off` for false."""
        return "off" if value is False else value


class Server(NamedTuple):
    """The last step: mean table, categories, who is in the group and its model, and how it came about.

    `scores` is the similarity of those `present` to the `core` client on `category`.
    """

    mean: Array
    labels: Array
    member: Array
    group: Array
    tower: list[nn.Layer]
    present: Array
    scores: Array
    core: Array
    category: Array


class Private(NamedTuple):
    """A scorer for each user, and the client's own item table (and tower)."""

    scorer: tuple[Array, ...]
    items: Array
    tower: list[nn.Layer]


class Download(NamedTuple):
    """The category of each item; -1 before there are any."""

    labels: Array


class Upload(NamedTuple):
    """The client's item table (and tower)."""

    items: Array
    tower: list[nn.Layer]


class Answer(NamedTuple):
    """The group's model, for its members."""

    member: Array
    items: Array
    tower: list[nn.Layer]


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """Fill in what depends on the size of the catalogue."""
    item_lr = config.item_lr or 80 * config.lr * catalogue.n_items
    clusters, sample = min(config.clusters, catalogue.n_items), min(config.supcon_sample, catalogue.n_items)
    return config.model_copy(update={"item_lr": item_lr, "clusters": clusters, "supcon_sample": sample})


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Nothing is known yet."""
    items, tower = jax.tree.map(jnp.zeros_like, _first_model(key, config, catalogue))
    labels, nobody = jnp.full(catalogue.n_items, -1, jnp.int32), jnp.zeros(catalogue.n_clients, bool)
    return Server(items, labels, nobody, items, tower, nobody, jnp.zeros(catalogue.n_clients), *2 * [jnp.int32(-1)])


def _first_model(key: Array, config: Config, catalogue: Catalogue) -> tuple[Array, list[nn.Layer]]:
    """Item rows and tower: N(0, 1) and none, or those of NeuMF."""
    if config.backbone != "fedncf":
        return jax.random.normal(key, (catalogue.n_items, config.embedding_dim)), []
    rows = 0.1 * jax.random.normal(key, (catalogue.n_items, 2 * config.embedding_dim))
    return rows, nn.init_neumf(jax.random.fold_in(key, 1), config.embedding_dim, config.layers, gmf=True)


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """One draw for all, the scorer included; the user vectors of the other backbones are each client's own."""
    items, tower = _first_model(key, config, catalogue)
    wide, key = items.shape[1], jax.random.fold_in(key, 2)
    if config.backbone == "pfedrec":
        bound = wide**-0.5
        draw = jax.random.uniform(key, (wide + 1,), minval=-bound, maxval=bound)
        return Private((jnp.tile(draw[:-1], (client.users, 1)), jnp.tile(draw[-1], client.users)), items, tower)
    own = 0.1 * jax.random.normal(jax.random.fold_in(key, client.number), (client.users, wide))
    return Private((own,), items, tower)


def predict(config: Config, scorer: tuple[Array, ...], tower: list[nn.Layer], users: Array, rows: Array) -> Array:
    """Logits `w_u . v + b_u`, `u . v` or those of NeuMF."""
    first = nn.pick(scorer[0], users)
    if config.backbone == "fedncf":
        return nn.neumf(tower, first, rows, gmf=True)
    bias = nn.pick(scorer[1], users) if config.backbone == "pfedrec" else 0.0
    return jnp.sum(first * rows, -1) + bias


# -- the clients ------------------------------------------------------------------------------------------------


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the categories."""
    return Download(server.labels)


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train the scorer and the table in turn, batch by batch (eq. 9)."""
    for_batches, for_sample = jax.random.split(key)
    order = nn.permutation(for_sample, len(private.items)) if config.supcon == "sampled" else None

    def loss(model: Any, rows: Array, batch: nn.Batch) -> Array:
        scorer, tower = model
        errors = nn.bce(predict(config, scorer, tower, batch.users, rows), batch.labels)
        return nn.weighted_mean(errors, batch.weights)

    def step(state: Any, batch: nn.Batch) -> tuple[Any, Array]:
        model, items, number = state
        rows = items[batch.items]
        value, gradient = jax.value_and_grad(loss)(model, rows, batch)
        model = nn.descend(model, gradient, config.lr)
        gradient = jax.grad(loss, argnums=1)(model, rows, batch)
        items = item_step(config, items, download.labels, batch, number, order)
        return (model, items.at[batch.items].add(-config.item_lr * gradient), number + 1), value

    start = (private.scorer, private.tower), private.items, 0
    ((scorer, tower), items, _), value = nn.passes(
        for_batches, data, batch_size=config.batch_size, epochs=config.local_epochs, step=step, state=start
    )
    return Upload(items, tower), Private(scorer, items, tower), {"loss": value}


def item_step(
    config: Config, items: Array, labels: Array, batch: nn.Batch, number: Array | int, order: Array | None = None
) -> Array:
    """Step along the gradient of the item term, where there is one; `order` is what samples are taken from."""
    rate = config.item_lr * config.weight
    every = config.supcon_every if config.supcon == "every" else 1
    if config.item_term == "similarity":
        step = lambda items: items - rate * jax.grad(similarity)(items, labels, batch, config.clusters)  # noqa: E731
    elif config.item_term == "contrast" and config.supcon != "off":
        some = None if order is None else window(order, config.supcon_sample, number)
        step = partial(contrast_step, config, rate * every, labels, some)
    else:
        return items
    due = (labels[0] >= 0) & ~batch.empty & (number % every == 0)
    return jax.lax.cond(due, step, lambda items: items, items)


def contrast_step(config: Config, rate: float, labels: Array, some: Array | None, items: Array) -> Array:
    """Step along the gradient of the contrastive term, of all items or of `some` of them."""
    gradient = jax.grad(contrast if config.supcon_form == "code" else printed_contrast)
    if some is None:
        return items - rate * gradient(items, labels, config.clusters, config.temperature)
    return items.at[some].add(-rate * gradient(items[some], labels[some], config.clusters, config.temperature))


def window(order: Array, size: int, number: Array | int) -> Array:
    """Return the sample of batch `number`: piece after piece of a random order of all items, round and round."""
    place = number * size % len(order)
    return jax.lax.dynamic_slice(jnp.concatenate([order, order[: size - 1]]), (place,), (size,))


def similarity(items: Array, labels: Array, batch: nn.Batch, clusters: int) -> Array:
    """Equation 10: minus the mean cosine of the batch's items with the others of their category."""
    peers = Peers.of(items, labels, clusters)
    cosines = jnp.sum(peers.unit * peers.total, 1) / jnp.maximum(peers.others, 1)
    return -nn.weighted_mean(cosines[batch.items], batch.weights * batch.labels)


def answer(config: Config, server: Server, client: Client) -> Answer:
    """The group's model; it travels to members only."""
    return Answer(server.member[client.number], server.group, server.tower)


def receive(config: Config, answer: Answer, private: Private) -> Private:
    """A member takes the group's model over its own."""
    new = jax.tree.map(lambda group, own: jnp.where(answer.member, group, own), tuple(answer[1:]), tuple(private[1:]))
    return Private(private.scorer, *new)


# -- the server -------------------------------------------------------------------------------------------------


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Cluster the items, choose a core client and a category, and average over the clients alike on it."""
    assert received.uploads is not None and received.present is not None
    for_items, for_core, for_category = jax.random.split(key, 3)
    present = np.asarray(received.present)
    mean = received.total.items / jnp.maximum(received.weight, 1)
    labels = kmeans(for_items, mean, config.clusters)
    core = int(np.flatnonzero(present)[jax.random.randint(for_core, (), 0, present.sum())])
    category = int(jax.random.randint(for_category, (), 0, int(labels.max()) + 1))
    alike = received.uploads.map(likeness, received.uploads.one(core).items, jnp.asarray(labels == category))
    scores = np.where(present, alike, 0)
    member = similar(scores, present, config.group_size) if config.partition else present
    group = jax.tree.map(lambda total: total / member.sum(), received.uploads.sum(member))
    return Server(
        mean, jnp.asarray(labels), jnp.asarray(member), group.items, group.tower,
        received.present, jnp.asarray(scores), jnp.int32(core), jnp.int32(category),
    )  # fmt: skip


def likeness(upload: Upload, core: Array, chosen: Array) -> Array:
    """Equation 1: the sum, over the chosen items, of the cosine with the core client's vector."""
    dots = jnp.sum(upload.items * core, 1)
    lengths = jnp.linalg.norm(upload.items, axis=1) * jnp.linalg.norm(core, axis=1)
    return jnp.sum(jnp.where(chosen, dots / jnp.maximum(lengths, 1e-12), 0))


def similar(scores: np.ndarray, present: np.ndarray, size: int = 0) -> np.ndarray:
    """Return who is in the group: the `size` clients most alike among those present, or all up to the elbow."""
    clients = np.flatnonzero(present)
    ranked = clients[np.argsort(-scores[clients], kind="stable")]
    member = np.zeros(len(scores), bool)
    member[ranked[: size or elbow(scores[ranked])]] = True
    return member


def elbow(falling: np.ndarray) -> int:
    """Return how many of the falling scores lie up to their elbow; all of them if there is none.

    The elbow is the point (rank, score) farthest from the line through the first and the last (eq. 2-4). Which one
    that is does not depend on the scale of the axes, so the vertical distance will do.

    >>> elbow(np.array([9.0, 8.5, 8.0, 2.0, 1.0, 0.5]))
    3
    """
    if len(falling) < 3:
        return len(falling)
    line = np.linspace(falling[0], falling[-1], len(falling))
    distance = np.abs(falling - line)
    return int(distance.argmax()) + 1 if distance.max() > 1e-6 * np.abs(falling).max() else len(falling)


def observe(config: Config, server: Server) -> dict[str, Array]:
    """Return the size of the group, which is worth a line in the log."""
    return {"group_size": server.member.sum()}


def personalise(config: Config, download: Download, upload: Upload, private: Private) -> Download:
    """A client's own table is in its private state, before the answer arrives."""
    return download


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Logits of items for one user, by the client's own table."""
    mine = tuple(leaf[user][None] for leaf in private.scorer)
    return predict(config, mine, private.tower, jnp.zeros(1, jnp.int32), private.items[items])
