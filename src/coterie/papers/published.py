"""The numbers that the papers print, as data: see `published.csv`.

`data` has the names of the catalogue where it knows the set, and `at` is the value of what a table varies, such as
`weight=0.1`.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

Key = tuple[str, str, str, str, str, str]


@cache
def _values() -> dict[Key, float]:
    text = files("coterie.papers").joinpath("published.csv").read_text(encoding="utf-8")
    return {_key(line): float(line["value"]) for line in csv.DictReader(text.splitlines())}


def _key(line: dict[str, str]) -> Key:
    return line["paper"], line["table"], line["data"], line["method"], line["at"], line["metric"]


def lookup(paper: str, table: str, data: str, method: str, metric: str, at: str = "") -> float | None:
    """Return a printed number in the unit of the paper; None where the paper has none.

    >>> lookup("cofedrec", "1", "ml-100k", "CoFedRec", "hr@10")
    77.52
    >>> lookup("cofedrec", "4", "ml-100k", "PFedRec", "hr@10", "virtual_ratings=0.4")
    70.52
    """
    return _values().get((paper, table, data, method, at, metric))


def papers() -> set[str]:
    """Return the names of the papers whose numbers are kept."""
    return {key[0] for key in _values()}
