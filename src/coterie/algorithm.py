"""The contract: an algorithm is one file of pure functions, written for one client.

An algorithm says what the server keeps (`Server`), what never leaves a client (`Private`) and what travels
(`Download`, `Upload`). The engine runs its functions for thousands of clients at once, a plain loop runs them
one by one, a real node runs them for its own users; the functions cannot tell.

A whole algorithm, which learns how often each item is liked and never sees by whom:

>>> from typing import NamedTuple
>>> import jax.numpy as jnp
>>> class Config(ClientConfig):
...     negatives: int = 0
>>> class Server(NamedTuple):
...     likes: jnp.ndarray
>>> Download = Server
>>> Upload = Server
>>> class Private(NamedTuple):
...     pass
>>> def init_server(key, config, catalogue):
...     return Server(jnp.zeros(catalogue.n_items))
>>> def init_client(key, config, catalogue, client):
...     return Private()
>>> def download(config, server, client):
...     return server
>>> def local_update(key, config, download, private, data):
...     seen = jnp.zeros_like(download.likes).at[data.items].add(data.labels * data.real)
...     return Upload(seen), private, {}
>>> def server_update(key, config, server, received):
...     return Server(server.likes + received.total.likes)
>>> def score(config, view, private, user, items):
...     return view.likes[items]
>>> info = Info(name="likes", summary="Counts.", item_tables=("likes",), touches="rows")

One client with two interactions, by hand:

>>> config, catalogue = Config(), Catalogue(n_items=4, n_users=1, n_clients=1, popularity=jnp.zeros(4))
>>> server = init_server(None, config, catalogue)
>>> data = Samples(users=jnp.array([0, 0]), items=jnp.array([1, 3]), labels=jnp.ones(2), count=2, most=2)
>>> upload, private, _ = local_update(None, config, download(config, server, None), Private(), data)
>>> server = server_update(None, config, server, Received(total=upload, weight=1.0, clients=1))
>>> print(score(config, server, private, 0, jnp.arange(4)))
[0. 1. 0. 1.]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.errors import CoterieError, unknown
from coterie.uploads import Uploads

Message = Any
"""A NamedTuple of arrays: `Server`, `Private`, `Download` or `Upload` of some algorithm."""

Rule = Literal["mean", "weighted", "sum", "per_item_mean"]
Optimiser = Literal["none", "sgd", "adam"]


class Settings(BaseModel):
    """Settings that cannot change and refuse a key they do not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ClientConfig(Settings):
    """What the engine reads of every algorithm's settings; an algorithm's `Config` adds its own."""

    batch_size: int = Field(256, ge=1, description="samples per local step")
    local_epochs: int = Field(1, ge=1, description="passes over the local samples per round")
    negatives: int = Field(4, ge=0, description="negatives drawn per interaction")
    redraw: bool = Field(True, description="whether negatives are drawn anew each round, or once for all")
    aggregation: Rule = Field("mean", description="how uploads are combined")
    server_optimiser: Optimiser = Field("none", description="what makes a step of the server's change")
    server_lr: float = Field(1.0, gt=0, description="rate of the server's optimiser")
    regulariser: Literal["none", "popularity"] = Field(
        "none", description="popularity: the server keeps popular and other items apart after every round"
    )
    eval_table: Literal["global", "local"] = Field(
        "global", description="evaluate with the server's new state, or with what the client just trained"
    )
    loss: Literal["auto", "bce", "squared"] = Field("auto", description="auto: bce to rank, squared to rate")
    virtual_ratings: float = Field(
        0.0, ge=0, le=1, description="unseen items with random labels that a client adds, per interaction"
    )


class TextConfig(ClientConfig):
    """The settings of an algorithm that asks for vectors of the items' text, `Catalogue.vectors`."""

    text: str = Field(
        "tfidf", description="vectors of item text: tfidf, sentences, random, or the path of a .npy or .parquet file"
    )
    text_dim: int = Field(128, ge=1, description="dimensions of tfidf and random")


class Catalogue(NamedTuple):
    """Sizes and public facts about the items; `levels` are the values that ratings have, if they are few.

    `vectors` are those of the items' text, for an algorithm whose settings are a `TextConfig`.
    """

    n_items: int
    n_users: int
    n_clients: int
    popularity: Array
    levels: tuple[float, ...] = ()
    vectors: Array | None = None


class Client(NamedTuple):
    """A client's number, and how many users it has room for (a Python integer, so it may give shapes)."""

    number: Array | int
    users: int


class Samples(NamedTuple):
    """One client's training samples of a round, the `count` real ones first.

    `most` is the largest count among the clients computed together: the same for all of them, so it may
    bound a loop; steps beyond a client's own samples must change nothing.
    """

    users: Array
    items: Array
    labels: Array
    count: Array | int  # type: ignore[assignment]
    most: Array | int

    @property
    def real(self) -> Array:
        """1 for real samples, 0 for padding."""
        return (jnp.arange(self.items.shape[0]) < self.count).astype(self.labels.dtype)


class Received(NamedTuple):
    """What reaches the server: weighted sums of uploads, and the single uploads only if they are asked for.

    `touched` counts, per item, the clients that trained it; it is there under the rule `per_item_mean`.
    `uploads` has those of all clients by number, and `present` says who took part: look at no others.
    """

    total: Message
    weight: Array | float
    clients: Array | int
    touched: Array | None = None
    uploads: Uploads | None = None
    present: Array | None = None


@dataclass(frozen=True)
class Info:
    """What an algorithm declares about itself.

    `only_if` has pairs of fields of `Answer`: the first travels only to clients for which the second, a flag, holds.
    `shares` names the fields of `Private` that are uploaded by design, as they are after training, under the same name:
    a client's own item table, say. `upload` is what an upload is to the download: its change, its gradient, or else.
    `users` says how a user is numbered in samples and scores: within its client, or, where rows of users are shared by
    clients, within the whole federation.
    """

    name: str
    summary: str
    paper: str = ""
    bibtex: str = ""
    tasks: tuple[str, ...] = ("ranking",)
    server_sees: Literal["sums", "updates", "nothing", "everything"] = "sums"
    item_tables: tuple[str, ...] = ()
    touches: Literal["rows", "catalogue"] = "rows"
    users: Literal["local", "global"] = "local"
    rounds: int = 100
    status: str = "complete"
    only_if: tuple[tuple[str, str], ...] = ()
    shares: tuple[str, ...] = ()
    upload: Literal["change", "gradient", "other"] = "change"


OPTIONAL = ("train", "personalise", "answer", "receive", "observe", "resolve", "end_round", "news", "parts")


def _absent(*_: Any) -> Any:
    raise AssertionError("a centralised algorithm has no clients")


@dataclass(frozen=True)
class Algorithm:
    """The functions of one algorithm file, under their common names.

    A federated algorithm has all of the first block. A centralised one has `train` in place of
    `local_update` and `server_update`. `personalise` gives the client's own view after local training, for
    `eval_table=local`; `resolve` fills settings that depend on the data. `answer` is what the server sends back, at
    the end of a step, to a client that took part, and `receive` what that client keeps of it. `end_round` is what the
    server does by itself after the last step of a round. `observe` gives numbers about the server's state that are
    worth a line in the log of each round. `news` names the fields of a download and of an upload that need to travel
    in a round, given when a client was last sent one; without it, all of them do. `parts` takes what `score` takes and
    names what a score is the sum of.

    A server that sees sums takes its step inside a compiled program. One that sees single uploads takes it outside,
    so that it may use any library, and compiles what is worth it.
    """

    info: Info
    Config: type[ClientConfig]
    init_server: Callable[..., Message]
    score: Callable[..., Array]
    init_client: Callable[..., Message] = _absent
    download: Callable[..., Message] = _absent
    local_update: Callable[..., tuple[Message, Message, dict[str, Array]]] = _absent
    server_update: Callable[..., Message] = _absent
    train: Callable[..., tuple[Message, dict[str, Array]]] | None = None
    personalise: Callable[..., Message] | None = None
    answer: Callable[..., Message] | None = None
    receive: Callable[..., Message] | None = None
    observe: Callable[..., dict[str, Array]] | None = None
    resolve: Callable[..., ClientConfig] | None = None
    end_round: Callable[..., Message] | None = None
    news: Callable[..., tuple[dict[str, Any], dict[str, bool]]] | None = None
    parts: Callable[..., dict[str, Array]] | None = None

    @property
    def central(self) -> bool:
        """Whether all data is in one place."""
        return self.train is not None

    @classmethod
    def from_module(cls, module: ModuleType) -> Algorithm:
        """Collect the functions of an algorithm file; a missing one is an error that names it."""
        names = ["info", "Config", "init_server", "score"]
        if not hasattr(module, "train"):
            names += ["init_client", "download", "local_update", "server_update"]
        missing = [name for name in names if not hasattr(module, name)]
        if missing:
            raise CoterieError(
                f"{module.__file__} is not an algorithm: it lacks {', '.join(missing)}; see `coterie new`."
            )
        names += [name for name in OPTIONAL if hasattr(module, name)]
        return cls(**{name: getattr(module, name) for name in names})

    def configure(self, settings: dict[str, Any]) -> ClientConfig:
        """Build the settings; an unknown key or a bad value is one sentence."""
        try:
            return self.Config(**settings)
        except ValidationError as error:
            raise _sentence(error, f"setting of {self.info.name}", self.Config) from None


def _sentence(error: ValidationError, kind: str, model: type[BaseModel]) -> CoterieError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return unknown(kind, key, model.model_fields)
    return CoterieError(f"The {kind} '{key}' cannot be {first['input']!r}: {first['msg']}.")


def validate(model: type[BaseModel], values: dict[str, Any], kind: str) -> Any:
    """Build a settings model; an unknown key or a bad value is one sentence."""
    try:
        return model(**values)
    except ValidationError as error:
        raise _sentence(error, kind, model) from None
