"""Popularity: how often each item was interacted with, added up over clients.

  private    nothing
  download   the counts (n_items)
  upload     1 for each item of the client
  server     the counts of the last round

The bar that every personalised method has to clear. One round is enough.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Samples

info = Info(
    upload="other",
    name="popularity",
    summary="the most interacted items for everybody",
    item_tables=("counts",),
    rounds=1,
)


class Config(ClientConfig):
    """Nothing to learn, so no negatives are drawn."""

    negatives: int = 0


class Server(NamedTuple):
    """Interactions per item."""

    counts: Array


Download = Server
Upload = Server


class Private(NamedTuple):
    """Nothing."""


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Nobody has been asked yet."""
    return Server(jnp.zeros(catalogue.n_items))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """Nothing is kept."""
    return Private()


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the counts."""
    return server


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Count the client's own items."""
    return Upload(jnp.zeros_like(download.counts).at[data.items].add(data.labels * data.real)), private, {}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Take the sums as they are."""
    return Server(received.total.counts)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """The same scores for everybody."""
    return view.counts[items]
