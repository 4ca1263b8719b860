"""RQFedRec: codebooks travel in place of item tables (Han et al., 2026).

  private    u                    the vector of each user
  download   B^s, B^c, q^s, q^c   a semantic and a collaborative codebook (L x M codes), L codes of each item in both
  upload     changes of B^s and B^c
  server     adds the weighted mean change (eq. 8); every `refresh_every` rounds it finds new collaborative codes

An item is the sum of its codes: v = (1 - r) sum_l B^s_l[q^s_l] + r sum_l B^c_l[q^c_l] (eq. 6), where the
collaborative rate r grows from 0 to 1 over `warm_up` rounds (eq. 10) and is 0 while there are no collaborative codes.
A client builds the rows of its items (eq. 9), trains them with its users by Adam (eq. 3), and fits the codebooks to
what became of them (eq. 7). Codes come from residual k-means (eq. 2): semantic ones from vectors of the items' text,
once; collaborative ones from the model's own item table, rows scaled to length 1.

Not said in the paper, and chosen here. First codes are N(0, init_scale^2 / L). The fit is a ridge regression around
the received codebooks (`fit=adam`: steps of Adam). It covers all items of the samples, negatives too
(`fit_items=positives`: not them). After a refresh the collaborative codebook is fitted, by least squares, to the rows
it stood for before, so that the reconstruction is continuous; what the new codes cannot express is kept by the server
(`lost`) and joins the next refresh; without training in between there is none. At first these rows are those of the
semantic codebook. k-means begins anew each time: from the centres of the last one (`warm_start`) a table that is a sum
of codes finds its own codes again, and real data are recommended worse.

Variants of the paper's figure 3: `channels=semantic` (w/o CC) or `collaborative` (w/o SC: codes of the first, random
table); `fixed_ids` (Fix CC); `item_embedding=false` (w/o IE: codebooks are trained themselves). Without codebooks it
is `fedmf` with `optimiser=adam`. `semantic_ids=hash` takes codes at random. `row_noise` is Laplace noise on the rows
(eq. 11).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from coterie import factors, nn, quantisation
from coterie.algorithm import Catalogue, Client, Info, Received, Samples, TextConfig
from coterie.factors import Private, init_client
from coterie.quantisation import Channel, reconstruct, unit

__all__ = ["Private", "init_client"]

info = Info(
    name="rqfedrec",
    summary="codebooks of item features travel, found by residual k-means on text and on the model",
    paper="Feature-Indexed Federated Recommendation with Residual-Quantized Codebooks (2026)",
    bibtex="""@article{han2026feature,
  title = {Feature-Indexed Federated Recommendation with Residual-Quantized Codebooks},
  author = {Han, Mingzhe and Liu, Jiahao and Li, Dongsheng and Gu, Hansu and Zhang, Peng and Gu, Ning and Lu, Tun},
  year = {2026}
}""",
    item_tables=("semantic_ids", "collaborative_ids"),
    upload="other",
    rounds=200,
)

NAMES = ("semantic", "collaborative")
REFIT = 1e-3, 100
"""Penalty and steps of the server's fit after a refresh: small and many, so that nothing but rounding is lost."""


class Config(factors.Config, TextConfig):
    """Sizes and schedules of the paper, and the largest of the rates it searched; penalty and steps are not tuned.

    With first vectors of 0.1 at 512 dimensions k-means finds mostly what was drawn, not what was learned.
    """

    init_scale: float = Field(0.01, gt=0, description="standard deviation of the first vectors")
    levels: int = Field(3, ge=1, description="codes of an item in a codebook (L)")
    codes: int = Field(0, ge=0, description="codes of a level (M); 0: the largest power of 2 with 2 L M < n_items")
    refresh_every: int = Field(10, ge=1, description="rounds between refreshes of the collaborative codes (tau)")
    warm_up: int = Field(100, ge=1, description="rounds until only the collaborative codebook counts (T_warm)")
    warm_start: bool = Field(False, description="begin k-means with the centres of the last refresh")
    kmeans_steps: int = Field(50, ge=1, description="most steps of k-means in a level")
    fit: Literal["ridge", "adam"] = Field("ridge", description="how codebooks are fitted to trained rows")
    codebook_steps: int = Field(6, ge=1, description="steps of the fit; Adam needs about 100")
    codebook_lr: float = Field(0.01, gt=0, description="rate of a fit by Adam")
    penalty: float = Field(0.3, gt=0, description="of a code's change in a fit by ridge, for each item that has it")
    fit_items: Literal["samples", "positives"] = Field("samples", description="items that codebooks are fitted to")
    codebook_mean: Literal["all", "contributors"] = Field(
        "all", description="a code's mean change: over all clients, or over those that have an item with it"
    )
    row_noise: float = Field(0.0, ge=0, description="scale of Laplace noise on trained rows (delta)")
    channels: Literal["both", "semantic", "collaborative"] = "both"
    semantic_ids: Literal["kmeans", "hash"] = "kmeans"
    fixed_ids: bool = Field(False, description="find collaborative codes once, at the first refresh")
    item_embedding: bool = Field(True, description="train item rows and fit codebooks; else train codebooks")


class Download(NamedTuple):
    """Codebooks (L x M x d), codes of each item (n_items x L), and how many rounds there were."""

    semantic: Array
    collaborative: Array
    semantic_ids: Array
    collaborative_ids: Array
    round: Array


class Server(NamedTuple):
    """What is sent; centres of the last k-means, what its codes could not express, and how much that was.

    `trained` is whether a codebook has changed since: if none has, there is nothing to refresh.
    """

    semantic: Array
    collaborative: Array
    semantic_ids: Array
    collaborative_ids: Array
    round: Array
    centres: Array
    lost: Array
    unexplained: Array
    trained: Array


class Upload(NamedTuple):
    """Changes of the codebooks; under `contributors` also which codes the client has items for."""

    semantic: Array
    collaborative: Array
    uses: Array


def resolve(config: Config, catalogue: Catalogue) -> Config:
    """Fill in the size of a codebook: fewer codes in all than items."""
    most = max(1, (catalogue.n_items - 1) // (2 * config.levels))
    return config.model_copy(update={"codes": min(config.codes or 2 ** (most.bit_length() - 1), catalogue.n_items)})


def used(config: Config) -> tuple[str, ...]:
    """Return the names of the channels."""
    return NAMES if config.channels == "both" else (config.channels,)


def collaborative_rate(config: Config, rounds: Array) -> Array:
    """Return r in the round after so many (eq. 10)."""
    if config.channels != "both":
        return jnp.float32(config.channels == "collaborative")
    return jnp.where(rounds >= config.refresh_every, jnp.minimum(1.0, (rounds + 1) / config.warm_up), 0.0)


def channels(config: Config, view: Any) -> dict[str, Channel]:
    """Return the codes of items and the weight of each channel."""
    rate = collaborative_rate(config, view.round)
    weight = {"semantic": 1 - rate, "collaborative": rate}
    return {name: Channel(getattr(view, f"{name}_ids"), weight[name]) for name in used(config)}


def item_rows(config: Config, view: Any) -> Array:
    """Reconstruct the items (eq. 9)."""
    return mixed({name: getattr(view, name) for name in used(config)}, channels(config, view))


def mixed(books: dict[str, Array], parts: dict[str, Channel]) -> Array:
    """Add up the channels (eq. 6)."""
    found = [part.weight * reconstruct(books[name], part.ids) for name, part in parts.items()]
    return found[0] if len(found) == 1 else found[0] + found[1]


# -- the server -------------------------------------------------------------------------------------------------


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Draw a codebook for the semantic codes; without them, take apart a random table.

    What is not used has no elements.
    """
    of_ids, of_codes = jax.random.split(key)
    shape, n_items = (config.levels, config.codes, config.embedding_dim), catalogue.n_items
    semantic, collaborative = (shape if name in used(config) else (config.levels, 0, shape[2]) for name in NAMES)
    server = Server(
        semantic=config.init_scale / config.levels**0.5 * jax.random.normal(of_codes, semantic),
        collaborative=jnp.zeros(collaborative),
        semantic_ids=jnp.zeros((n_items, config.levels if semantic[1] else 0), jnp.int32),
        collaborative_ids=jnp.zeros((n_items, config.levels if collaborative[1] else 0), jnp.int32),
        round=jnp.int32(0),
        centres=jnp.zeros(collaborative),
        lost=jnp.zeros((n_items, shape[2]) if collaborative[1] else (0, 0)),
        unexplained=jnp.zeros(()),
        trained=jnp.bool_(True),
    )
    if "semantic" in used(config):
        return server._replace(semantic_ids=semantic_codes(of_ids, config, catalogue))
    table = config.init_scale * jax.random.normal(of_codes, server.lost.shape)
    return jax.jit(refreshed, static_argnums=1)(of_ids, config, server._replace(lost=table), True)


def semantic_codes(key: Array, config: Config, catalogue: Catalogue) -> Array:
    """Find the codes of the items' text, or draw them."""
    if config.semantic_ids == "hash":
        return quantisation.hashed(key, catalogue.n_items, config.levels, config.codes)
    assert catalogue.vectors is not None
    points = unit(jnp.asarray(catalogue.vectors, jnp.float32))
    start = jnp.zeros((config.levels, config.codes, points.shape[1]))
    return jax.jit(quantisation.quantise, static_argnums=4)(key, points, start, True, config.kmeans_steps).ids


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets both codebooks and all codes."""
    return Download(*server[: len(Download._fields)])


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the mean change of each code (eq. 8; over contributors: eq. 16)."""
    change = nn.combine(config.aggregation, received)
    if config.codebook_mean == "contributors":
        uses = jnp.maximum(received.total.uses, 1e-12)[..., None]
        mean = {name: getattr(received.total, name) / uses[i] for i, name in enumerate(used(config))}
        change = change._replace(**mean)
    books = {name: getattr(server, name) + getattr(change, name) for name in NAMES}
    moved = jnp.any(change.semantic != 0) | jnp.any(change.collaborative != 0)
    return server._replace(**books, trained=server.trained | moved)


def end_round(key: Array, config: Config, server: Server) -> Server:
    """Find new collaborative codes when it is time."""
    rounds = server.round + 1
    if config.channels == "semantic":
        return server._replace(round=rounds)
    first = rounds == config.refresh_every
    due = first if config.fixed_ids else rounds % config.refresh_every == 0
    cold = first & (config.channels == "both")
    server = jax.lax.cond(due & server.trained, lambda: refreshed(key, config, server, cold), lambda: server)
    return server._replace(round=rounds)


def refreshed(key: Array, config: Config, server: Server, cold: Array | bool) -> Server:
    """Cluster the items as they are now, and fit the collaborative codebook to what it stood for (section 4.3.2)."""
    wanted = reconstruct(server.collaborative, server.collaborative_ids) + server.lost
    table, rate = wanted, collaborative_rate(config, server.round)
    if config.channels == "both":
        semantic = reconstruct(server.semantic, server.semantic_ids)
        wanted = jnp.where(cold, semantic, wanted)
        table = (1 - rate) * semantic + rate * wanted
    anew = cold if config.warm_start else True
    ids, centres = quantisation.quantise(key, unit(table), server.centres, anew, config.kmeans_steps)
    left = wanted - reconstruct(server.collaborative, ids)
    change = quantisation.ridge([Channel(ids, 1.0)], config.codes, left, jnp.ones(len(left)), *REFIT)[0]
    codes = server.collaborative + change
    lost = wanted - reconstruct(codes, ids)
    return server._replace(
        collaborative=codes,
        collaborative_ids=ids,
        centres=centres,
        lost=lost,
        unexplained=jnp.sum(lost**2) / jnp.maximum(jnp.sum(wanted**2), 1e-30),
        trained=jnp.bool_(False),
    )


def observe(config: Config, server: Server) -> dict[str, Array]:
    """The rate of the coming round, and the share of the table's energy that the last refresh could not express."""
    return {"collaborative_rate": collaborative_rate(config, server.round), "unexplained": server.unexplained}


def news(config: Config, rounds: int, last: np.ndarray) -> tuple[dict[str, Any], dict[str, bool]]:
    """Name what needs to travel after so many rounds: codes once and after a refresh, codebooks while they count.

    `last` is the number of rounds there were when each client was last sent something, -1 for never.
    """
    rate = float(collaborative_rate(config, jnp.int32(rounds)))

    def version(rounds: Any) -> Any:
        return np.minimum(rounds // config.refresh_every, 1 if config.fixed_ids else np.inf)

    none = 0 if config.channels == "both" else -1  # before the first refresh there are no collaborative codes
    down = {
        "semantic_ids": last < 0,
        "collaborative_ids": version(rounds) > np.where(last < 0, none, version(last)),
        "semantic": np.full(len(last), rate < 1),
        "collaborative": np.full(len(last), rate > 0),
    }
    return down, {"semantic": rate < 1, "collaborative": rate > 0}


# -- the clients ------------------------------------------------------------------------------------------------


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Train item rows, make them noisy, and fit the codebooks to them; there are rows of local items only."""
    of_training, of_noise = jax.random.split(key)
    n_items = len(download.semantic_ids)
    items, here = nn.local_items(data, n_items)
    place = jnp.zeros(n_items, jnp.int32).at[items].max(jnp.arange(len(items)) * here.astype(jnp.int32))
    data = data._replace(items=place[data.items])
    if config.fit_items == "positives":
        here = jnp.zeros_like(here).at[data.items].max(data.real * data.labels)
    books = {name: getattr(download, name) for name in used(config)}
    parts = {name: part._replace(ids=part.ids[items]) for name, part in channels(config, download).items()}
    if not config.item_embedding:

        def rows(books: dict[str, Array], items: Array) -> Array:
            return mixed(books, {name: part._replace(ids=part.ids[items]) for name, part in parts.items()})

        trained, private, value = factors.train(of_training, config, private, books, rows, data)
        return upload(config, download, parts, here, nn.difference(trained, books)), private, {"loss": value}
    before = mixed(books, parts)
    after, private, value = factors.train(of_training, config, private, before, lambda v, items: v[items], data)
    if config.row_noise:
        after += config.row_noise * jax.random.laplace(of_noise, after.shape)  # eq. 11
    fit = quantisation.ridge if config.fit == "ridge" else quantisation.descend
    knob = config.penalty if config.fit == "ridge" else config.codebook_lr
    changes = fit(list(parts.values()), config.codes, after - before, here, knob, config.codebook_steps)  # eq. 7
    return upload(config, download, parts, here, dict(zip(parts, changes, strict=True))), private, {"loss": value}


def upload(
    config: Config, download: Download, parts: dict[str, Channel], here: Array, changes: dict[str, Array]
) -> Upload:
    """Put changes where they belong; a channel that is not used stays empty."""
    uses = jnp.zeros((0, config.levels, config.codes))
    if config.codebook_mean == "contributors":
        counts = [quantisation.gathered(here[:, None], part.ids, config.codes)[..., 0] for part in parts.values()]
        uses = (jnp.stack(counts) > 0).astype(jnp.float32)
    empty = {name: jnp.zeros_like(getattr(download, name)) for name in NAMES}
    return Upload(**(empty | changes), uses=uses)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Inner products of items with one user."""
    asked = view._replace(**{f"{name}_ids": getattr(view, f"{name}_ids")[items] for name in used(config)})
    return item_rows(config, asked) @ private.users[user]
