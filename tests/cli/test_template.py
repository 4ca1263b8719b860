"""What `coterie new` writes is a working algorithm: it keeps the whole contract."""

import pytest

from coterie import algorithms
from coterie.cli.new import write_template
from coterie.testing import contract

pytestmark = pytest.mark.xdist_group("template")


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return algorithms.get(str(write_template("mine", tmp_path_factory.mktemp("new"))))


@pytest.mark.parametrize("point", contract.POINTS)
def test_template_keeps_the_contract(mine, point):
    contract.POINTS[point](mine)


def test_template_stays_small(mine):
    assert mine.info.name == "mine" and mine.info.name not in algorithms.names()
    assert mine.info.server_sees == "sums" and set(mine.info.item_tables) == {"items", "bias"}
