"""`coterie resume`: go on with a run that was interrupted."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from coterie.cli.interrupt import interruptible
from coterie.cli.progress import Watch
from coterie.cli.run import show_result


def resume(folder: Path = typer.Argument(metavar="DIR", help="The directory of an interrupted run.")) -> None:
    """Go on with an interrupted run, exactly as if it had not been."""
    from coterie.experiment.run import resume as go_on

    console = Console()
    with interruptible(folder), Watch(console) as watch:
        done = go_on(folder, on_start=watch.start, on_round=watch.round)
    show_result(console, done)
