"""Who takes no part leaves no trace: clients without data, clients that are not chosen or drop out."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithm import Algorithm, Message, Received
from coterie.engine.participation import Step, steps
from coterie.testing.contract.compare import close, same
from coterie.testing.contract.plain import followed, loop
from coterie.testing.contract.runs import HALF, ROUNDS, Watched, federated, simulation, tasks, trained
from coterie.testing.contract.wire import bytes_are_counted
from coterie.uploads import Uploads


@federated
def client_without_data_changes_nothing(algorithm: Algorithm) -> None:
    """The client without training data keeps its private state to the bit and leaves no trace on the server.

    The server's state is compared with that of the plain loop, which passes over such a client. A centralised
    algorithm has no clients.
    """
    run, name = trained(algorithm), algorithm.info.name
    trains = np.unique(run.problem.client)
    idle = np.setdiff1d(np.arange(run.plan.n_clients), trains)
    assert len(idle), "the toy problem has lost its client without data"
    start, end = simulation(algorithm).privates(), run.privates()
    for client in idle.tolist():
        same(f"{name}: client {client} has no data, and its private state changed", start[client], end[client])
    server = followed(algorithm, tasks(algorithm)[0]).server
    close(f"{name}: although a client has no data, the server state ", run.state.server, server)
    assert run.history[-1].clients == len(trains), f"{name}: a client without data was counted."


@federated
def absent_clients_are_untouched(algorithm: Algorithm) -> None:
    """Clients that are not chosen, or drop out, keep their private state to the bit; the others train.

    Who is chosen downloads, and only who trains uploads. A server that sees single uploads must not look at
    the place of an absent one. A centralised algorithm has no clients.
    """
    run, name = simulation(algorithm, HALF), algorithm.info.name
    for number in range(ROUNDS):
        step = steps(HALF, run.seed, number, run.plan.n_clients)[0]
        assert 0 < len(step.arrived) < len(step.chosen) < run.plan.n_clients
        before, down, up = run.privates(), run.ledger.down, run.ledger.up
        record = run.advance()
        _absent_keep_state(run, step, before)
        expected = int(np.isin(step.arrived, run.problem.client).sum())
        assert record.clients == expected, f"{name}: {record.clients} clients trained in place of {expected}."
        bytes_are_counted(run, record.bytes["down"] - down, record.bytes["up"] - up, len(step.chosen), expected)
    if algorithm.info.server_sees == "updates":
        _server_is_blind_to_absent(algorithm)


def _absent_keep_state(run: Watched, step: Step, before: list[Message]) -> None:
    after, when = run.privates(), f"took no part in round {run.state.round}"
    for client in np.setdiff1d(np.arange(run.plan.n_clients), step.arrived).tolist():
        what = f"{run.algorithm.info.name}: client {client} {when}, and its private state changed"
        same(what, before[client], after[client])


def _server_is_blind_to_absent(algorithm: Algorithm) -> None:
    """Run a step of every other client twice, the second time with something in the places of the others."""
    reference = loop(algorithm, tasks(algorithm)[0])
    server, privates = reference.start()

    def filled(key: Any, config: Any, server: Message, received: Received) -> Message:
        assert received.uploads is not None and received.present is not None
        absent = jnp.flatnonzero(~received.present)
        stacked = jax.tree.map(lambda leaf: leaf.at[absent].set(7.0), received.uploads.stack())
        uploads = Uploads([stacked], np.arange(len(received.present)))
        return algorithm.server_update(key, config, server, received._replace(uploads=uploads))

    half = np.arange(0, reference.problem.n_clients, 2)
    other = dataclasses.replace(reference, algorithm=dataclasses.replace(reference.algorithm, server_update=filled))
    after, again = (each.round(0, server, privates, half)[0] for each in (reference, other))
    same(f"{algorithm.info.name}: the server reads the upload of a client that is not there", after, again)
