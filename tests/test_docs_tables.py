"""Tables in pages are those that the kept results give; `make tables` makes them anew."""

from pathlib import Path

import pytest

from coterie.experiment.pages import BLOCK, filled

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "papers").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_tables_are_those_of_the_results(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text, ROOT / "results") == text, f"{page.name} is behind; run: make tables"


def test_every_paper_has_its_tables_on_its_page():
    blocks = BLOCK.findall((ROOT / "docs" / "papers" / "cofedrec.md").read_text(encoding="utf-8"))
    shown = {block[1].partition(" --data")[0] for block in blocks}
    assert {f"cofedrec --table {number}" for number in ("1", "2", "3", "4", "8", "9", "leak")} <= shown


def test_a_changed_number_would_be_noticed():
    text = (ROOT / "docs" / "papers" / "cofedrec.md").read_text(encoding="utf-8")
    changed = text.replace("| 77.52 |", "| 77.53 |", 1)
    assert changed != text and filled(changed, ROOT / "results") == text
