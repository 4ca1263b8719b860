"""`coterie cite`: what to cite for a run, as BibTeX."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.algorithm import Info

COTERIE = f"""@software{{coterie,
  title = {{Coterie: federated recommendation}},
  author = {{{{The Coterie authors}}}},
  version = {{{__version__}}},
  license = {{Apache-2.0}}
}}"""


def cite(folder: Path = typer.Argument(metavar="DIR", help="The directory of a run.")) -> None:
    """Print BibTeX of Coterie, the algorithm and the data of a run."""
    from coterie.experiment.run import read_plan

    plan = read_plan(folder)
    print("\n\n".join([COTERIE, of_algorithm(plan.algorithm.info), of_data(plan.what.data)]))


def of_algorithm(info: Info) -> str:
    """Return the BibTeX entry of an algorithm's paper."""
    return info.bibtex or f"% {info.name}: {info.paper or 'no paper to cite'}"


def of_data(name: str) -> str:
    """Return the citation of a data set as a BibTeX entry."""
    from coterie.data.entries import ENTRIES

    if name.split(":")[0] == "demo":
        return "% demo: a synthetic set made by Coterie, nothing more to cite"
    if name not in ENTRIES:
        return f"% {Path(name).name}: your own data"
    entry = ENTRIES[name]
    return f"@misc{{{name},\n  title = {{{{{entry.origin}}}}},\n  note = {{{entry.citation}}}\n}}"
