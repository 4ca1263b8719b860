"""Virtual ratings as a setting of every ranking algorithm."""

from dataclasses import replace

import numpy as np
import pytest

from coterie import algorithms
from coterie.engine.simulate import Conduct, Simulation
from coterie.errors import CoterieError
from coterie.testing import contract


@pytest.mark.parametrize("name", ["pfedrec", "fedmf"])
def test_compiled_round_with_virtual_ratings_equals_the_plain_loop(name):
    algorithm = algorithms.get(name)
    settings = type(
        "Config", (algorithm.Config,), {"__annotations__": {"virtual_ratings": float}, "virtual_ratings": 0.4}
    )
    info = replace(algorithm.info, tasks=("ranking",))
    contract.compiled_round_equals_plain_loop(replace(algorithm, info=info, Config=settings))


def test_they_change_what_is_learned():
    runs = [
        Simulation(algorithms.get("fedmf"), {"virtual_ratings": ratio}, contract.toy("ranking"), Conduct(rounds=1))
        for ratio in (0.0, 0.5)
    ]
    for run in runs:
        run.advance()
    assert not np.allclose(*(run.state.server.items for run in runs))
    assert runs[0].ledger.up == runs[1].ledger.up


def test_they_do_not_apply_to_ratings():
    with pytest.raises(CoterieError, match="does not apply where ratings are predicted"):
        Simulation(algorithms.get("fedmf"), {"virtual_ratings": 0.1}, contract.toy("rating"), Conduct(rounds=1))
