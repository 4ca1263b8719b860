"""From the words of the command line to settings, each with its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import CoterieError

if TYPE_CHECKING:
    from coterie.experiment.config import Plan

COMMAND_LINE = "command line"
RUNS = Path("runs")


def typed(options: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return the settings given by options (None was not given) and by `--set key=value`, each once."""
    from coterie.experiment.config import parse

    given = {key: value for key, value in options.items() if value is not None}
    for key, value in map(parse, assignments):
        if key in given:
            raise CoterieError(f"{key} is given twice on the command line; give it once.")
        given[key] = value
    return given


def gather(
    subject: str, options: Mapping[str, Any], assignments: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings and their origins; the command line beats the file that `subject` may name.

    `options` that are None were not given.
    """
    from coterie.experiment import config

    if not subject.endswith((".yaml", ".yml")):
        words = typed({"algorithm": subject, **options}, assignments)
        return words, dict.fromkeys(words, COMMAND_LINE)
    given, words = config.read_yaml(Path(subject)), typed(options, assignments)
    return given | words, dict.fromkeys(given, subject) | dict.fromkeys(words, COMMAND_LINE)


def folder_for(plan: Plan) -> Path:
    """Return the default run directory of a plan: the first of `name`, `name-2`, `name-3` that is not taken."""
    what = plan.what
    name = f"{safe(what.data)}-{safe(plan.algorithm.info.name)}-{what.protocol}-seed{what.seed}"
    folder, number = RUNS / name, 1
    while folder.exists():
        number += 1
        folder = RUNS / f"{name}-{number}"
    return folder


def safe(data: str) -> str:
    """Return the name of a data set, or the last part of its path, as part of a file name.

    >>> safe("demo:users=60,items=360"), safe("/somewhere/my ratings.csv")
    ('demo-users-60-items-360', 'my-ratings')
    """
    name = Path(data).stem if "/" in data else data
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "data"
