"""`coterie list`: the algorithms and what each of them is."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table


def list_algorithms() -> None:
    """List the algorithms: paper, task, what the server sees, status."""
    from coterie import algorithms

    table = Table("name", "task", "server sees", "status", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in algorithms.names():
        info = algorithms.get(name).info
        about = f"{info.summary}\n[dim]{info.paper}[/dim]" if info.paper else info.summary
        table.add_row(name, "\n".join(info.tasks), info.server_sees, info.status, about)
    Console().print(table)
