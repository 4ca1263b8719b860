"""When two results are the same: to the bit, or but for rounding. A sentence begins with the algorithm's name."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.algorithm import Message
from coterie.evaluation.problem import Problem
from coterie.testing.contract.runs import Watched

TOLERANCE = 1e-4
"""Largest difference of two leaves that are to be equal, in units of the larger one's largest entry."""


def same(what: str, left: Any, right: Any) -> None:
    """Compare two trees bit by bit."""
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True), f"{what}."


def close(what: str, left: Any, right: Any) -> None:
    """Compare two trees leaf by leaf, relative to the size of the leaf."""
    paths, tree = jax.tree_util.tree_flatten_with_path(left)
    assert str(tree) == str(jax.tree.structure(right)), f"{what} have different fields."
    for (path, a), b in zip(paths, jax.tree.leaves(right), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        where = f"{what}{jax.tree_util.keystr(path)}"
        assert a.shape == b.shape, f"{where} has shape {a.shape} here and {b.shape} there."
        assert np.isfinite(a).all() and np.isfinite(b).all(), f"{where} is not finite."
        off = np.abs(a - b).max(initial=0) / max(1e-3, np.abs(a).max(initial=0), np.abs(b).max(initial=0))
        assert off <= TOLERANCE, f"{where} differs by {off:.1e} of its largest entry."


def states_alike(what: str, left: tuple[Message, list[Message]], right: tuple[Message, list[Message]]) -> None:
    """Compare server and private states, which may differ by rounding only."""
    close(f"{what}, the server state ", left[0], right[0])
    for client, (mine, other) in enumerate(zip(left[1], right[1], strict=True)):
        close(f"{what}, the private state of client {client} ", mine, other)


def answers_alike(what: str, left: Any, right: Any, problem: Problem) -> None:
    """Ranks must be equal but for a rare tie that rounding breaks the other way; ratings must be close."""
    if problem.protocol.task == "rating":
        close(f"{what}, the predicted ratings", left, right)
        return
    off = np.abs(np.asarray(left, np.int64) - np.asarray(right, np.int64))
    wrong = np.count_nonzero(off)
    assert wrong <= 0.05 * off.size and off.max(initial=0) <= 1, f"{what}, {wrong} of {off.size} test ranks differ."


def answered(run: Watched) -> NDArray[Any]:
    """Return the answers about real test items, user after user."""
    table = np.asarray(run.answers.test)
    return table[np.arange(table.shape[1]) < run.problem.test.items.lengths[:, None]]


def runs_alike(left: Watched, right: Watched, difference: str) -> None:
    """Compare two runs that may differ by rounding only."""
    what = f"{left.algorithm.info.name}: with {difference}"
    states_alike(what, (left.state.server, left.privates()), (right.state.server, right.privates()))
    answers_alike(what, answered(left), answered(right), left.problem)
