"""Template: federated matrix factorisation with item biases, to be turned into an algorithm of your own.

  private    u             the vector of each user; it never leaves the client
  download   V, b          the item table (n_items x d) and a bias for each item
  upload     V_u - V, b_u - b
  server     V, b + for each item, the mean change over the clients that trained it

Say here, as above, what is private and what travels, and name the paper. Then change one part at a time:

  1. `Config`         what can be set on the command line: coterie run ./template.py --set lr=0.5
  2. the messages     what the server keeps, what is private, what goes down and up
  3. `local_update`   what a client learns from its own samples: change `predict` and `loss` first
  4. `server_update`  what the server makes of the sum of the uploads
  5. `score`          how a client orders items

Every function is pure and is written for ONE client; the engine runs it for thousands at once, so arrays keep fixed
shapes and there is no `if` on their values (use `jnp.where`). Check the result against the contract that every
algorithm keeps, in a test or a shell:

    from coterie.algorithms import get
    from coterie.testing import contract
    contract.check(get("./template.py"))
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from coterie import nn
from coterie.algorithm import Catalogue, Client, ClientConfig, Info, Received, Rule, Samples

info = Info(
    name="template",
    summary="private user vectors, global item vectors and biases",
    # The paper's title and venue, and its BibTeX entry: `coterie list` and `coterie cite` print them.
    paper="",
    bibtex="",
    # Add "rating" if it can also predict ratings; `config.loss` is then "squared" where it is to.
    tasks=("ranking",),
    # "sums": the server needs only the sum of the uploads, so secure aggregation is possible.
    # "updates": it looks at single uploads, which are then in `received.uploads`.
    server_sees="sums",
    # The fields with one row for each item. A client is handed only the rows of its own samples ("rows"),
    # which is what makes large catalogues cheap; say "catalogue" if training looks at other rows too.
    item_tables=("items", "bias"),
    touches="rows",
    rounds=40,
    status="own",
)


class Config(ClientConfig):
    """What can be set; batch_size, local_epochs, negatives and more come from `ClientConfig`."""

    aggregation: Rule = "per_item_mean"
    embedding_dim: int = Field(16, ge=1)
    lr: float = Field(2.0, gt=0, description="rate of the user vector")
    item_lr: float = Field(100.0, gt=0, description="rate of the items and their biases")
    decay: float = Field(0.001, ge=0, description="pull of the vectors towards zero")
    init_scale: float = Field(0.1, gt=0, description="standard deviation of the first vectors")


class Server(NamedTuple):
    """What the server keeps."""

    items: Array
    bias: Array


class Private(NamedTuple):
    """What never leaves a client: one vector for each of its users."""

    users: Array


# What goes down is what the server keeps, and what goes up is its change: the same fields. Write classes of their own
# if they differ. No field of Private may be among them; the contract checks that.
Download = Server
Upload = Server


def init_server(key: Array, config: Config, catalogue: Catalogue) -> Server:
    """Small random item vectors, no bias; `catalogue` also knows the items' popularity."""
    items = config.init_scale * jax.random.normal(key, (catalogue.n_items, config.embedding_dim))
    return Server(items, jnp.zeros(catalogue.n_items))


def init_client(key: Array, config: Config, catalogue: Catalogue, client: Client) -> Private:
    """Small random user vectors; the key is the same for all, so each client folds its number in."""
    own = jax.random.fold_in(key, client.number)
    return Private(config.init_scale * jax.random.normal(own, (client.users, config.embedding_dim)))


def download(config: Config, server: Server, client: Client) -> Download:
    """Everybody gets the same; a group of clients could get its own."""
    return server


def local_update(
    key: Array, config: Config, download: Download, private: Private, data: Samples
) -> tuple[Upload, Private, dict[str, Array]]:
    """Gradient steps over this client's samples, batch by batch."""

    def predict(users: Array, rows: Server, batch: nn.Batch) -> Array:
        return jnp.sum(nn.pick(users, batch.users) * rows.items, -1) + rows.bias

    def loss(users: Array, rows: Server, batch: nn.Batch) -> Array:
        errors = nn.bce(predict(users, rows, batch), batch.labels)
        size = jnp.sum(rows.items**2, -1) + jnp.sum(nn.pick(users, batch.users) ** 2, -1)
        # The weights are 0 for padding, which must change nothing.
        return nn.weighted_mean(errors + config.decay * size, batch.weights)

    def step(state: tuple[Array, Server], batch: nn.Batch) -> tuple[tuple[Array, Server], Array]:
        users, tables = state
        rows = Server(tables.items[batch.items], tables.bias[batch.items])
        value, (of_users, of_rows) = jax.value_and_grad(loss, (0, 1))(users, rows, batch)
        # A row that stands in the batch twice gets both of its gradients.
        items = tables.items.at[batch.items].add(-config.item_lr * of_rows.items)
        bias = tables.bias.at[batch.items].add(-config.item_lr * of_rows.bias)
        return (users - config.lr * of_users, Server(items, bias)), value

    (users, tables), value = nn.passes(
        key,
        data,
        batch_size=config.batch_size,
        epochs=config.local_epochs,
        step=step,
        state=(private.users, download),
    )
    # The numbers of the dictionary are averaged over the clients and shown; "loss" stands in the progress bar.
    return nn.difference(tables, download), Private(users), {"loss": value}


def server_update(key: Array, config: Config, server: Server, received: Received) -> Server:
    """Add the combined change; `nn.combine` knows the rules mean, weighted, sum and per_item_mean."""
    return nn.add(server, nn.combine(config.aggregation, received, info.item_tables))


def personalise(config: Config, download: Download, upload: Upload, private: Private) -> Download:
    """What this client sees after its own training, for `--set eval_table=local`; leave it out if that is nothing."""
    return nn.add(download, upload)


def score(config: Config, view: Download, private: Private, user: Array, items: Array) -> Array:
    """Scores of some items for one user of the client; higher is better."""
    return view.items[items] @ private.users[user] + view.bias[items]
