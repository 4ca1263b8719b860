"""The compiled round: it is the plain loop, however clients and tables are laid out, and is compiled once."""

from __future__ import annotations

import jax
import numpy as np

from coterie.algorithm import Algorithm, Message
from coterie.engine.clock import COMPILING
from coterie.testing.contract.compare import answered, answers_alike, runs_alike, states_alike
from coterie.testing.contract.plain import followed
from coterie.testing.contract.runs import FULL, HALF, ROUNDS, federated, simulation, tasks, trained


@federated
def compiled_round_equals_plain_loop(algorithm: Algorithm) -> None:
    """Two rounds give the server, private states and test answers of the plain loop, for every task.

    A centralised algorithm has no rounds of clients and no such loop.
    """
    what = f"{algorithm.info.name}: against the plain loop"
    for task in tasks(algorithm):
        fast, slow = trained(algorithm, task), followed(algorithm, task)
        privates = [_narrowed(mine, other) for mine, other in zip(fast.privates(), slow.privates, strict=True)]
        states_alike(what, (fast.state.server, privates), (slow.server, slow.privates))
        answers_alike(what, answered(fast), slow.answers, fast.problem)


def _narrowed(private: Message, like: Message) -> Message:
    """Cut off the room for more users than a client has."""
    return jax.tree.map(lambda leaf, small: leaf[: len(small)] if small.ndim else leaf, private, like)


@federated
def rows_equal_whole_tables(algorithm: Algorithm) -> None:
    """Handing over only the rows of a client's own samples changes nothing.

    Applies to a federated algorithm that declares `touches="rows"`.
    """
    if algorithm.info.touches == "rows" and algorithm.info.item_tables:
        whole = simulation(algorithm, rows=False).run(ROUNDS)
        runs_alike(trained(algorithm), whole, "rows instead of whole tables")


@federated
def order_of_clients_does_not_matter(algorithm: Algorithm) -> None:
    """Clients in another order within their bucket keep their own results and leave the server as it is.

    Draws are keyed by client number, so a client takes its number along when it moves to another row. This
    shows that no client reads a neighbour's row; that a server which sees single uploads treats all numbers
    alike it cannot show. A centralised algorithm has no clients.
    """
    moved = simulation(algorithm, order=2).run(ROUNDS)
    assert not np.array_equal(moved.plan.row_of, trained(algorithm).plan.row_of)
    runs_alike(trained(algorithm), moved, "clients in another order")


@federated
def buckets_and_chunks_do_not_matter(algorithm: Algorithm) -> None:
    """Two buckets in place of one, with other padding and other chunks, give the same model.

    A centralised algorithm has no clients.
    """
    other = simulation(algorithm, buckets=2, chunk_size=24).run(ROUNDS)
    assert len(other.plan.layouts) == 2
    runs_alike(trained(algorithm), other, "other buckets and chunks")


def second_round_compiles_nothing(algorithm: Algorithm) -> None:
    """All programs are compiled in the first round, whoever takes part in the next ones."""
    for conduct in (FULL, HALF):
        run = simulation(algorithm, conduct).run(1)
        compiled = COMPILING.programs
        run.run(1)
        more = COMPILING.programs - compiled
        assert more == 0, f"{algorithm.info.name}: the second round compiled {more} programs."
