"""`coterie data`: list, get, describe, import and make data sets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.data.interactions import Interactions

app = typer.Typer(help="List, get, describe, import and make data sets.", no_args_is_help=True)

MAX_RATING_VALUES = 10


@app.command("list")
def list_sets() -> None:
    """List the sets known by name and those on this machine."""
    from coterie.data import cache
    from coterie.data.entries import ENTRIES

    table = Table("name", "users", "items", "interactions", "here", "terms")
    here = set(cache.names())
    for entry in ENTRIES.values():
        counts = (f"{n:,}" for n in (entry.users, entry.items, entry.interactions))
        where = "yes" if entry.name in here else "get" if entry.archive or entry.wheel else "by hand"
        table.add_row(entry.name, *counts, where, entry.terms)
    for name in sorted(here - set(ENTRIES)):
        table.add_row(name, "", "", "", "yes", "your own")
    table.add_row("demo", "any", "any", "any", "yes", "made up, free")
    Console().print(table)


@app.command()
def get(name: str = typer.Argument(help="A name that `coterie data list` shows.")) -> None:
    """Fetch a set into the cache folder and check it."""
    from coterie.data import catalogue
    from coterie.data.entries import ENTRIES

    console = Console()
    if name in ENTRIES:
        console.print(f"Terms of {name}: {ENTRIES[name].terms}.", highlight=False)
    with console.status(f"fetching {name}"):
        folder = catalogue.get(name)
    console.print(f"{name} is in {folder}.", soft_wrap=True, highlight=False)


@app.command()
def info(name: str = typer.Argument(help="A name, a path, or demo:users=500,items=800.")) -> None:
    """Describe a set as it is used: after its filters."""
    from coterie.data import catalogue

    data = catalogue.load(name)
    table = Table(show_header=False, title=data.name)
    for key, value in describe(data).items():
        table.add_row(key, value)
    Console().print(table)


def describe(data: Interactions) -> dict[str, str]:
    """Return the facts about a set as text."""
    from coterie.data import cache
    from coterie.data.entries import ENTRIES

    facts = {
        "users": f"{data.n_users:,}",
        "items": f"{data.n_items:,}",
        "interactions": f"{len(data):,}",
        "density": f"{len(data) / (data.n_users * data.n_items):.3%}",
        "ratings": _rating_values(data),
        "time": _time_range(data),
        "item text": _item_text(data),
        **({"platforms": ", ".join(data.platform_ids)} if data.platform_ids else {}),
        "notes": "; ".join(data.notes) or "nothing was removed",
    }
    if entry := ENTRIES.get(data.name):
        facts |= {"terms": entry.terms, "origin": entry.origin, "citation": entry.citation}
        facts |= {"checksum": f"{entry.checksum} (all rows, before filters)"}
    else:
        facts |= {"checksum": cache.checksum(data)}
    return facts


def _rating_values(data: Interactions) -> str:
    import numpy as np

    values = np.unique(data.ratings)
    if len(values) > MAX_RATING_VALUES:
        return f"{len(values):,} values from {values[0]:g} to {values[-1]:g}"
    return ", ".join(f"{value:g}" for value in values)


def _time_range(data: Interactions) -> str:
    from coterie.data.interactions import UNKNOWN_TIME

    if data.timestamps is None:
        return "unknown; the order of rows is taken for the order of time"
    known = data.timestamps[data.timestamps != UNKNOWN_TIME]
    first, last = (_day(int(second)) for second in (known.min(), known.max()))
    missing = len(data) - len(known)
    return f"{first} to {last}" + (f", unknown for {missing:,} interactions" if missing else "")


def _day(second: int) -> str:
    try:
        return datetime.fromtimestamp(second, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"second {second}"  # beyond the calendar, as milliseconds are


def _item_text(data: Interactions) -> str:
    found = [kind for kind, text in (("titles", data.titles), ("categories", data.categories)) if text]
    return " and ".join(found) or "none"


@app.command("import")
def import_set(
    files: list[Path] = typer.Argument(help="A rating file, a folder or a zip; several files: one for each platform."),
    name: str = typer.Option(help="The name to keep it under."),
    user: str | None = typer.Option(None, help="The column of user ids."),
    item: str | None = typer.Option(None, help="The column of item ids."),
    rating: str | None = typer.Option(None, help="The column of ratings."),
    timestamp: str | None = typer.Option(None, help="The column of Unix seconds."),
    platform: str | None = typer.Option(None, help="The column that names the platform of a row."),
    titles: Path | None = typer.Option(None, help="A file with the columns item, title and perhaps genres."),
    sep: str | None = typer.Option(None, help="The separator; \\t is a tab."),
) -> None:
    """Keep a rating file, or those of several platforms, under a name in the cache folder."""
    from coterie.data import catalogue
    from coterie.data.readers import read, read_platforms

    how = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    if len(files) == 1:
        data = read(files[0], **how, platform=platform, titles=titles, sep=sep, name=name)
    elif platform:
        raise CoterieError("Several files are one for each platform, so --platform does not go with them.")
    else:
        data = read_platforms(files, **how, titles=titles, sep=sep, name=name)
    _report(data, catalogue.import_file(name, data))


@app.command()
def make(
    users: int = typer.Option(400, help="How many users."),
    items: int = typer.Option(600, help="How many items."),
    communities: int = typer.Option(6, help="How many planted communities."),
    interactions: int = typer.Option(40, help="Interactions per user, on average."),
    platforms: int = typer.Option(0, help="How many platforms own the users, each with a habit of rating."),
    seed: int = typer.Option(0, help="The seed of all draws."),
    out: Path | None = typer.Option(None, help="The folder to write; it must not exist."),
    name: str | None = typer.Option(None, help="The name to keep it under in the cache folder."),
) -> None:
    """Make a synthetic set with planted communities."""
    from coterie.data import synthetic

    if (out is None) == (name is None):
        raise CoterieError("Say where the set goes: --out FOLDER or --name NAME, one of them.")
    data = synthetic.make(
        users=users,
        items=items,
        communities=communities,
        interactions_per_user=interactions,
        platforms=platforms,
        seed=seed,
    )
    _report(data, _keep(data, out, name))


def _keep(data: Interactions, out: Path | None, name: str | None) -> Path:
    from coterie.data import cache, catalogue

    if name is not None:
        return catalogue.import_file(name, data)
    assert out is not None
    if out.exists():
        raise CoterieError(f"{out} exists already; choose another folder.")
    cache.write(out, data)
    return out


def _report(data: Interactions, folder: Path) -> None:
    counts = f"{data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions"
    Console().print(f"{counts} are in {folder}.", soft_wrap=True, highlight=False)
