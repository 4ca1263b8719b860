"""Krum (Blanchard et al., NeurIPS 2017): one client's whole upload stands for all.

Of n uploads, f of which may be malicious, the one counts whose n - f - 2 nearest others are nearest to it: the sum of
their squared distances is the smallest. With few clients one neighbour is looked at; the first of equals wins. The
chosen upload counts once for every client of the step.

An item row that a client did not send is zero. Distances come from the inner products of all pairs of clients, which
are added up item by item over the clients that sent it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coterie import defence
from coterie.algorithm import Message
from coterie.defence import DefenceConfig, DefenceInfo, RowUploads

info = DefenceInfo(
    name="krum_classic",
    summary="keeps the upload of the client that is nearest to its neighbours",
    paper="Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent (NeurIPS 2017)",
)


class Config(DefenceConfig):
    """How many malicious clients are expected."""

    krum_f: int = Field(1, ge=0, description="malicious clients that a step may have")


def init(config: Config, like: Message) -> Any:
    """Nothing is remembered."""
    return ()


def combine(config: Config, uploads: RowUploads, memory: Any) -> tuple[Message, Any]:
    """Take one client's upload for all of them."""
    client = chosen(products(uploads), config.krum_f)
    mine = uploads.sender == client
    tables = {name: np.zeros((uploads.n_items, *rows.shape[1:]), np.float32) for name, rows in uploads.rows.items()}
    weight = uploads.weight.sum()
    for name, table in tables.items():
        table[uploads.item[mine]] = uploads.rows[name][mine] * weight
    return uploads.message(tables, lambda leaf: leaf[client] * weight), memory


def products(uploads: RowUploads) -> NDArray[np.float64]:
    """Return the inner products of the uploads of every two clients."""
    total = np.zeros((uploads.clients, uploads.clients))
    for leaf in jax.tree.leaves(uploads.rest):
        vectors = defence.flat(leaf)
        total += vectors @ vectors.T
    for table in uploads.rows.values():
        of_items = np.split(defence.flat(table), uploads.starts[1:])
        for rows, who in zip(of_items, np.split(uploads.sender, uploads.starts[1:]), strict=True):
            total[np.ix_(who, who)] += rows @ rows.T
    return total


def chosen(products: NDArray[np.float64], f: int) -> int:
    """Return the client whose nearest neighbours are nearest."""
    squares = np.diag(products)
    distances = squares[:, None] + squares[None, :] - 2 * products
    np.fill_diagonal(distances, np.inf)
    nearest = max(1, len(squares) - f - 2)
    return int(np.sort(distances, axis=1)[:, :nearest].sum(1).argmin())
