"""`coterie recommend`: what a finished run would show to a user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from coterie.experiment.run import Recommendation


def recommend(
    folder: Path = typer.Argument(metavar="DIR", help="The directory of a finished run."),
    user: str = typer.Option(help="The user, as the data spells the id."),
    k: int = typer.Option(10, "-k", "--k", help="How many items."),
) -> None:
    """Recommend items that a user has not interacted with."""
    from coterie.experiment.run import load_run

    run = load_run(folder)
    items = run.recommend(user, k)
    score = "predicted rating" if run.problem.protocol.task == "rating" else "score"
    Console().print(list_table(f"for user {user}", items, score))


def list_table(title: str, items: list[Recommendation], score: str = "score", **more: list[str]) -> Table:
    """Return a list of recommendations as a table, with the parts of each score; `more` are further columns."""
    table = Table("rank", "title", "item", title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in more:
        table.add_column(name)
    for name in (*(items[0].parts if items else ()), score):
        table.add_column(name, justify="right")
    for number, item in enumerate(items):
        cells = (values[number] for values in more.values())
        numbers = (f"{value:.4f}" for value in (*item.parts.values(), item.score))
        table.add_row(str(number + 1), item.title, item.item, *cells, *numbers)
    return table
