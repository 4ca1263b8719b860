"""`coterie list`: the algorithms and what each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def list_algorithms() -> None:
    """List the algorithms, with paper, task, what the server sees and status, and the attacks and defences."""
    from coterie import algorithms, attacks, defences

    table = Table("name", "task", "server sees", "status", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in algorithms.names():
        info = algorithms.get(name).info
        about = f"{info.summary}\n[dim]{info.paper}[/dim]" if info.paper else info.summary
        table.add_row(name, "\n".join(info.tasks), info.server_sees, info.status, about)
    Console().print(table)
    _list_parts("attacks", {name: attacks.get(name).info for name in attacks.names()})
    _list_parts("defences", {name: defences.get(name).info for name in defences.names()})


def _list_parts(title: str, infos: Mapping[str, Any]) -> None:
    table = Table(title, "status", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, info in infos.items():
        about = f"{info.summary}\n[dim]{info.paper}[/dim]" if info.paper else info.summary
        table.add_row(name, "reconstruction" if info.reconstruction else "complete", about)
    Console().print(table)
