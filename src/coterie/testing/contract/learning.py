"""What is learned where structure is planted, and what must not be learned where nothing is shared."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from coterie.algorithm import Algorithm
from coterie.engine.simulate import Conduct, Simulation
from coterie.evaluation.problem import Problem, Task
from coterie.evaluation.protocols import prepare
from coterie.evaluation.references import references
from coterie.testing import toys
from coterie.testing.contract.runs import tasks

LEARNS_NOTHING = {
    "popularity": "it is what the others are compared with",
    "local": "nothing is shared, so nothing about other people can be learned",
}
"""Algorithms that need not beat popularity, and why."""

FEW_CLIENTS: dict[str, Any] = {"lr": 0.05, "server_lr": 0.03}
LEARNS_WITH = {
    **dict.fromkeys(("fedsgd", "union"), FEW_CLIENTS),
    **dict.fromkeys(("simgcl", "cl4fedrec", "rcl4fedrec"), FEW_CLIENTS | {"item_block": 64}),
}
LEARNS_WITH |= {
    "rqfedrec": {"embedding_dim": 16, "lr": 0.1, "codes": 64, "warm_up": 20},
    "fedcia": {"embedding_dim": 16, "lr": 0.1},
}
MANY_STEPS = {"rounds": 40, "participation": "batches", "clients_per_step": 64}
"""Algorithms whose published rates are for thousands of clients and many steps, or whose vectors are very long, and
what they learn with here.
"""

LEARNING_ROUNDS = 60


@lru_cache(maxsize=2)
def planted(task: Task) -> Problem:
    """Return the problem with planted structure."""
    return toys.planted(task)


def learns_planted_structure(algorithm: Algorithm) -> None:
    """With its own defaults (or as `LEARNS_WITH` says) it beats popularity, by a fifth at least, among communities.

    The test metric is that of the round which validation chose so far; it has 60 rounds (or its own number, if
    that is smaller) to get there. A rating algorithm must have a tenth less error than the mean rating. Does
    not apply to those in `LEARNS_NOTHING`.
    """
    if algorithm.info.name in LEARNS_NOTHING:
        return
    task = tasks(algorithm)[0]
    problem, rating = planted(task), task == "rating"
    metric = "mae" if rating else f"hr@{problem.protocol.k}"
    theirs = references(problem)["constant" if rating else "popularity"][metric]
    own = LEARNS_WITH.get(algorithm.info.name, {})
    rounds = {"rounds": min(LEARNING_ROUNDS, algorithm.info.rounds), "eval_every": 5}
    conduct = Conduct.model_validate(rounds | (MANY_STEPS if "server_lr" in own else {}))
    run, mine, learned = Simulation(algorithm, own, problem, conduct, buckets=1), theirs, False
    while not (run.finished or learned):
        run.advance()
        if run.best is not None and run.best.record.test is not None:
            mine = run.best.record.test[metric]
            learned = mine < 0.9 * theirs if rating else mine > 1.2 * theirs
    name = algorithm.info.name
    assert learned, f"{name}: {metric} is {mine:.3f} on planted communities, where knowing nobody gives {theirs:.3f}."


def local_training_leaks_only_on_paper(algorithm: Algorithm) -> None:
    """Nothing shared: at chance under the honest protocol, far above it under the papers'.

    A statement about the protocols, made with the one algorithm whose clients share nothing, `local`: the
    honest pool of negatives says nothing about the held-out item, the published pool gives it away, because it
    is the one item that is never drawn.
    """
    if algorithm.info.name != "local":
        return
    hits = {form: _hits_at_the_end(algorithm, form) for form in ("loo99", "loo99-paper")}
    assert abs(hits["loo99"] - 0.10) < 0.05, f"honest: local training hits {hits['loo99']:.3f}, chance is 0.10."
    assert hits["loo99-paper"] > 0.25, f"paper: local training hits only {hits['loo99-paper']:.3f}."


def _hits_at_the_end(algorithm: Algorithm, protocol: str) -> float:
    conduct = Conduct.model_validate({"rounds": 30, "eval_every": 30})
    run = Simulation(algorithm, {}, prepare(planted("ranking").data, protocol), conduct, buckets=1)
    while not run.finished:
        test = run.advance().test
    assert test is not None
    return test["hr@10"]
