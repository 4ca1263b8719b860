"""`coterie demo`: a federated recommender on made-up data, from training to a list with titles."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from coterie.cli.arguments import folder_for
from coterie.cli.progress import show
from coterie.cli.recommend import list_table
from coterie.cli.run import carry_out

if TYPE_CHECKING:
    from coterie.data.interactions import Interactions

SETTINGS = {"algorithm": "fedmf", "data": "demo", "rounds": 30, "lr": 1.0, "item_lr": 600.0}
LATEST = 5


def demo(out: Path | None = typer.Option(None, help="The run directory.  [default: a new one below runs]")) -> None:
    """Train on made-up data, look at the result and recommend."""
    from coterie.experiment import config

    console = Console()
    show(console, ["Every user of this made-up set is a client that keeps its history and its own vector to itself."])
    plan = config.plan(SETTINGS, dict.fromkeys(SETTINGS, "coterie demo"))
    done = carry_out(console, plan, out or folder_for(plan))
    data = done.problem.data
    user = typical_user(data)
    items = done.recommend(user)
    numbers = [data.item_ids.index(item.item) for item in items]
    show(console, ["", *history(data, user), ""])
    console.print(list_table(f"recommended to user {user}", items, category=[category(data, i) for i in numbers]))
    show(console, [f"Ask for others with: coterie recommend {done.path} --user {data.user_ids[0]}"])


def typical_user(data: Interactions) -> str:
    """Return the user with the median number of interactions."""
    import numpy as np

    order = np.argsort(np.bincount(data.users, minlength=data.n_users), kind="stable")
    return data.user_ids[int(order[len(order) // 2])]


def category(data: Interactions, item: int) -> str:
    """Return the categories of an item as text."""
    return ", ".join(data.categories[item]) if data.categories else ""


def history(data: Interactions, user: str) -> list[str]:
    """Return what a user likes, in two lines: categories by number, and the latest titles."""
    items = data.items[data.users == data.user_number(user)].tolist()
    counts = Counter(category(data, item) for item in items).most_common(3)
    liked = ", ".join(f"{name} ({count})" for name, count in counts)
    latest = ", ".join(data.title(item) for item in items[-LATEST:])
    return [f"User {user} has {len(items)} items, most of them {liked}.", f"The latest: {latest}."]
