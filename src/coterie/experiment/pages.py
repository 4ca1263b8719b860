"""Tables inside Markdown pages, made from the results that are kept.

A page names the command whose output belongs there; what stands between it and the end mark is replaced:

    <!-- coterie paper cofedrec --table 1 --data ml-100k -->
    <!-- end -->

`python -m coterie.experiment.pages PAGE...` brings pages up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coterie import papers
from coterie.errors import CoterieError
from coterie.experiment.choice import table_of
from coterie.experiment.tables import fill, settings_table, tables
from coterie.experiment.trials import Results

RESULTS = Path("results")
BLOCK = re.compile(r"(?P<begin><!-- coterie paper (?P<words>.*?) -->\n)(?P<body>.*?)(?P<end><!-- end -->)", re.DOTALL)
WORDS = re.compile(r"(?P<paper>\S+) --table (?P<table>\S+)(?P<settings> --settings)?(?: --data (?P<data>\S+))?")


def filled(text: str, results: Path = RESULTS) -> str:
    """Return a page with its tables made anew."""
    return BLOCK.sub(lambda block: f"{block['begin']}{_body(block['words'], results)}{block['end']}", text)


def _body(words: str, results: Path) -> str:
    asked = WORDS.fullmatch(words)
    if asked is None:
        raise CoterieError(f"'{words}' names no table; write `coterie paper NAME --table N`.")
    paper = papers.get(asked["paper"])
    grid = table_of(paper, asked["table"])
    if asked["settings"]:
        return f"\n{settings_table(grid).to_markdown()}\n"
    data = (asked["data"],) if asked["data"] else ()
    built = tables(fill(grid, Results(results, paper.name), data=data))
    return "\n" + "\n".join(table.to_markdown() for table in built) + "\n"


def main(paths: Sequence[str]) -> None:
    """Bring pages up to date."""
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path}: tables made anew")


if __name__ == "__main__":
    main(sys.argv[1:])
