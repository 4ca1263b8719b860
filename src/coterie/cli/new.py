"""`coterie new`: an algorithm of one's own to start from."""

from __future__ import annotations

from importlib.resources import files
from keyword import iskeyword
from pathlib import Path

import typer

from coterie.errors import CoterieError


def new(name: str = typer.Argument(help="The name of the algorithm; NAME.py is written here.")) -> None:
    """Write a working algorithm to start from."""
    path = write_template(name, Path())
    print(f"{path} is a working algorithm; run it with: coterie run ./{path}")


def write_template(name: str, folder: Path) -> Path:
    """Write the template under a name of its own into a folder; what is there is never overwritten."""
    from coterie import algorithms

    if not name.isidentifier() or iskeyword(name):
        raise CoterieError(f"'{name}' cannot name an algorithm; use letters, digits and underscores, as in `my_fedmf`.")
    if name in algorithms.names():
        raise CoterieError(f"'{name}' is an algorithm of Coterie; choose another name.")
    path = folder / f"{name}.py"
    text = files("coterie.algorithms").joinpath("_template.py").read_text(encoding="utf-8")
    text = text.replace("template.py", f"{name}.py").replace('name="template"', f'name="{name}"')
    text = text.replace('"""Template:', f'"""{name}:', 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CoterieError(f"{path} exists already; choose another name.") from None
    return path
