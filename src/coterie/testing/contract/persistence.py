"""What lasts: a seed gives its run again, a file gives back the run or the model that was written."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.algorithm import Algorithm
from coterie.engine import checkpoint
from coterie.engine.evaluate import Lists
from coterie.engine.simulate import Simulation
from coterie.engine.state import Best, Record, State
from coterie.evaluation.metrics import rank_of
from coterie.evaluation.problem import Problem
from coterie.testing.contract.compare import answers_alike, same
from coterie.testing.contract.runs import ROUNDS, Watched, simulation, tasks, trained


def same_seed_gives_same_bits(algorithm: Algorithm) -> None:
    """Two runs of a seed are equal to the bit."""
    again = simulation(algorithm).run(ROUNDS)
    _same_run(trained(algorithm), again, "the same seed gave another result")


def resumed_equals_uninterrupted(algorithm: Algorithm) -> None:
    """A run that is stopped after a round, written to disk and taken up anew ends as if it had never stopped."""
    stopped, fresh = simulation(algorithm).run(1), simulation(algorithm)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        checkpoint.save(path, stopped, {"seed": 0})
        checkpoint.load(path, fresh, {"seed": 0})
    # The next round may be the best: whether the file held the best one so far can be seen only before it.
    _same_run(stopped, fresh, "a resumed run begins at another place")
    _same_run(trained(algorithm), fresh.run(ROUNDS - 1), "a resumed run went another way")


def _same_run(left: Watched, right: Watched, what: str) -> None:
    what = f"{left.algorithm.info.name}: {what}"
    same(what, _parts(left.state), _parts(right.state))
    same(f"{what} in its best round", _kept(left.best), _kept(right.best))
    for a, b in zip(left.history, right.history, strict=True):
        assert _lasting(a) == _lasting(b), f"{what}: {_lasting(a)} and {_lasting(b)}."


def _parts(state: State) -> tuple[Any, ...]:
    return state.server, state.stores, state.round


def _kept(best: Best | None) -> tuple[Any, ...]:
    assert best is not None, "a run has no best round"
    return best.value, *_parts(best.state), best.answers


def _lasting(record: Record) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(record).items() if key != "seconds"}


def saved_model_recommends_the_same(algorithm: Algorithm) -> None:
    """A model that is saved and loaded recommends the same lists, and the lists agree with the evaluation.

    Recommended are all items that a user has not trained on, best first; the places of the test item and its
    rivals in that list must give the rank that the round was measured by. Applies to an algorithm that ranks.
    """
    if "ranking" not in tasks(algorithm):
        return
    run, fresh, name = trained(algorithm), simulation(algorithm), algorithm.info.name
    assert run.best is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        checkpoint.save_model(path, run.best.state, {"seed": 0})
        checkpoint.load_model(path, fresh, {"seed": 0})
    before, after = whole_lists(run, run.best.state), whole_lists(fresh, fresh.state)
    same(f"{name}: the saved model recommends other items", before, after)
    ranks = ranks_in_lists(run.problem, before)
    answers_alike(f"{name}: in the recommended lists", ranks, run.best.answers.test, run.problem)


def whole_lists(run: Simulation, state: State) -> Lists:
    """Return everything that users may be recommended, best first."""
    return run.top(state, run.problem.data.n_items, run.problem.masked("test"))


def ranks_in_lists(problem: Problem, lists: Lists) -> NDArray[np.int32]:
    """Rank each user's test item among its rivals by a whole list, which must hold what is left, in order."""
    known, everything = problem.masked("test"), np.arange(problem.data.n_items)
    ranks = []
    for user, (items, scores) in enumerate(zip(lists.items, lists.scores, strict=True)):
        listed, scores = items[items >= 0], scores[items >= 0]
        left = np.setdiff1d(everything, known[user])
        assert np.array_equal(np.sort(listed), left), f"user {user} is not recommended what is left."
        assert (np.diff(scores) <= 0).all(), f"user {user} is recommended items out of order."
        score = np.full(len(everything), -np.inf)
        score[listed] = scores
        assert problem.test.candidates is not None
        held = problem.test.items[user]
        ranks.append(rank_of(score, held, np.setdiff1d(everything, [*problem.test.candidates[user], *held])))
    return np.stack(ranks)
