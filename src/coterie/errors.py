"""Errors that a person can act on: one sentence that names the file, row or key and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class CoterieError(Exception):
    """Bad input or a bad environment; the command line prints the sentence and exits with code 2."""


def unknown(kind: str, name: str, known: Iterable[str]) -> CoterieError:
    """Return the error for a name that does not exist, with the nearest one that does.

    >>> print(unknown("algorithm", "pfedrek", ["fedmf", "pfedrec"]))
    There is no algorithm 'pfedrek'; did you mean 'pfedrec'?
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"choose one of: {', '.join(names)}."
    return CoterieError(f"There is no {kind} '{name}'; {hint}")
