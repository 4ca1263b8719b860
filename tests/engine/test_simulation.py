"""Rounds of every kind equal the plain loop; the best round is chosen on validation; who is absent answers too."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms, nn
from coterie.algorithm import Client
from coterie.engine.participation import steps
from coterie.engine.reference import Reference
from coterie.engine.simulate import Conduct, Simulation
from coterie.errors import CoterieError
from coterie.evaluation.protocols import ProtocolOptions, prepare
from coterie.testing import contract, toys
from coterie.testing.contract import Watched

COUNTS = algorithms.get("popularity")


def adding(aggregation):
    """An algorithm that is cheap to compile and whose server adds what the rule makes of the counts."""

    def local_update(key, config, download, private, data):
        upload, private, _ = COUNTS.local_update(key, config, download, private, data)
        return upload, private, {"count": 1.0 * data.count}

    def server_update(key, config, server, received):
        change = nn.combine(config.aggregation, received, ("counts",))
        return server._replace(counts=server.counts + change.counts)

    algorithm = replace(COUNTS, local_update=local_update, server_update=server_update)
    return algorithm, {"aggregation": aggregation}


def simulate(algorithm, settings=None, problem=None, **conduct):
    problem = problem or contract.toy("ranking")
    return Watched(algorithm, settings or {}, problem, Conduct(**({"rounds": 2} | conduct)))


def loop_of(run):
    algorithm = run.algorithm
    compiled = replace(algorithm, local_update=jax.jit(algorithm.local_update, static_argnums=1))
    return Reference(compiled, run.config, run.catalogue, run.problem)


def assert_close(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max(initial=1e-3))


# -- aggregation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["mean", "weighted", "sum", "per_item_mean"])
@pytest.mark.parametrize("rows", [True, False])
def test_rules_by_hand(rule, rows):
    algorithm, settings = adding(rule)
    problem = contract.toy("ranking")
    run = Simulation(algorithm, settings, problem, Conduct(rounds=1), rows=rows, buckets=2, chunk_size=24)
    run.advance()
    users, items = problem.client, problem.data.items[problem.train]
    table = np.zeros((problem.n_clients, problem.data.n_items))
    np.add.at(table, (users, items), 1)
    sizes = table.sum(1)
    expected = {
        "sum": table.sum(0),
        "mean": table.sum(0) / 15,
        "weighted": (table * sizes[:, None]).sum(0) / sizes.sum(),
        "per_item_mean": (table.sum(0) > 0).astype(float),
    }[rule]
    np.testing.assert_allclose(run.state.server.counts, expected, rtol=1e-5)
    assert run.history[0].clients == 15
    assert run.history[0].metrics == {"count": pytest.approx(sizes.sum() / 15)}


def test_single_uploads_stand_in_order_of_client_number():
    def server_update(key, config, server, received):
        weight = jnp.arange(received.present.shape[0]) * received.present
        return server._replace(counts=weight.astype(jnp.float32) @ received.uploads.stack().counts)

    info = replace(COUNTS.info, server_sees="updates")
    algorithm = replace(COUNTS, info=info, server_update=server_update)
    # Clients alternate in size, so two buckets hold them in another order than their numbers.
    problem = contract.toy("ranking")
    even = np.arange(16) * 2 % 16 + (np.arange(16) >= 8)
    problem = replace(problem, client=even[problem.client].astype(np.int32), home=even[problem.home].astype(np.int32))
    run = Simulation(algorithm, {}, problem, Conduct(rounds=1), buckets=2, chunk_size=24)
    assert np.concatenate([layout.bucket.client for layout in run.plan.layouts]).tolist() != list(range(16))
    run.advance()
    expected = np.bincount(problem.data.items[problem.train], problem.client, minlength=problem.data.n_items)
    np.testing.assert_allclose(run.state.server.counts, expected)


# -- participation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("participation", ["batches", "fraction"])
def test_partial_rounds_are_steps_of_the_plain_loop(participation):
    """PFedRec is evaluated with what was just trained; who was absent answers with the download.

    Lists are made after the round, and must be those that the round was evaluated by.
    """
    run = simulate(
        algorithms.get("pfedrec"),
        contract.small(algorithms.get("pfedrec"), "ranking"),
        participation=participation,
        fraction=0.5,
        clients_per_step=5,
        dropout=0.2,
    )
    reference = loop_of(run)
    server, privates = reference.start()
    for number in range(2):
        first, seen = server, {}
        for step in steps(run.conduct, run.seed, number, run.plan.n_clients):
            server, privates, views = reference.round(number, server, privates, step.arrived)
            seen |= views
        run.advance()
        assert_close(run.state.server, server)
        assert_close(run.privates(), privates)
        assert run.history[-1].clients == len(seen) < 15
    for user in range(run.plan.n_users):
        view = seen.get(user, reference.algorithm.download(reference.config, first, Client(user, 1)))
        np.testing.assert_array_equal(
            run.answers.test[user], reference.test_ranks(view, privates[user], user, user), err_msg=str(user)
        )
    lists = contract.whole_lists(run, run.best.state)
    np.testing.assert_array_equal(contract.ranks_in_lists(run.problem, lists), run.best.answers.test)


def test_a_server_that_nobody_reports_back_to_takes_no_step():
    def server_update(key, config, server, received):
        return server._replace(counts=server.counts + 1)

    run = simulate(replace(COUNTS, server_update=server_update), participation="fraction", fraction=0.1, dropout=0.99)
    assert not len(steps(run.conduct, run.seed, 0, run.plan.n_clients)[0].arrived)
    record = run.advance()
    assert record.clients == 0 and record.bytes["up"] == 0 and record.bytes["down"] > 0
    assert not run.state.server.counts.any()


# -- several users per client ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedmf", "pfedrec"])
def test_groups_of_users_follow_the_plain_loop(name):
    algorithm = algorithms.get(name)
    problem = prepare(toys.interactions(), "groups", seed=1, options=ProtocolOptions(clients=3))
    run = simulate(algorithm, {"batch_size": 64}, problem).run(2)
    reference = loop_of(run)
    server, privates = reference.start()
    for number in range(2):
        server, privates, views = reference.round(number, server, privates)
    assert_close(run.state.server, server)
    for mine, other in zip(run.privates(), privates, strict=True):
        assert_close(jax.tree.map(lambda leaf, like: leaf[: len(like)], mine, other), other)
    for user in range(run.plan.n_users):
        client = int(problem.home[user])
        view = views[client] if run.config.eval_table == "local" else server
        ranks = reference.test_ranks(view, privates[client], client, user)
        np.testing.assert_allclose(run.answers.test[user, : len(ranks)], ranks, atol=1, err_msg=str(user))


def test_platforms_predict_ratings():
    problem = prepare(toys.interactions(), "rating-dirichlet", seed=1, options=ProtocolOptions(platforms=3))
    run = simulate(algorithms.get("fedmf"), {"lr": 0.05, "item_lr": 0.5, "init_scale": 0.5}, problem, rounds=30).run(30)
    assert run.config.loss == "squared" and run.config.negatives == 0
    assert run.history[-1].metrics["loss"] < 0.5 * run.history[0].metrics["loss"]
    held = problem.test.items.lengths
    real = np.arange(run.answers.test.shape[1]) < held[:, None]
    mae = np.abs(run.answers.test[real] - problem.test.ratings.values).mean()
    assert run.history[-1].test["mae"] == pytest.approx(mae, rel=1e-5)
    assert run.best.value == -min(record.validation["mae"] for record in run.history)


# -- conduct --------------------------------------------------------------------------------------------------


class Scripted(Simulation):
    """A simulation whose validation says what it is told."""

    def judge_by(self, values):
        self.values = dict(enumerate(values, 1))
        return self

    def ask(self, *args):
        answers = super().ask(*args)
        # A rank of 1 for some users and of 50 for the others makes any hit rate.
        hits = np.arange(self.plan.n_users) < self.values[self.state.round]
        return answers._replace(validation=np.where(hits, 1, 50)[:, None])


def scripted(values, **conduct):
    algorithm, settings = adding("mean")
    run = Scripted(algorithm, settings, contract.toy("ranking"), Conduct(**conduct), **contract.LAYOUT)
    run.judge_by(values)
    while not run.finished:
        run.advance()
    return run


def test_the_best_round_is_kept_and_the_last_of_equals_wins():
    run = scripted([3, 8, 8, 2], rounds=4)
    assert run.best.record.round == 3
    assert run.best.value == pytest.approx(8 / 16)
    one = COUNTS.init_server(None, run.config, run.catalogue).counts
    assert not np.array_equal(one, run.best.state.server.counts)
    np.testing.assert_allclose(run.best.state.server.counts, run.state.server.counts * 3 / 4, rtol=1e-5)


def test_patience_counts_evaluations_without_a_better_one():
    assert len(scripted([3, 8, 7, 7, 9, 9], rounds=6, patience=2).history) == 4
    assert len(scripted([3, 8, 7, 9, 8, 8], rounds=6, patience=2).history) == 6


def test_evaluation_comes_every_so_often_and_at_the_end():
    run = scripted([1, 2, 3, 4, 5], rounds=5, eval_every=2)
    assert [record.round for record in run.history if record.test] == [2, 4, 5]


def test_a_task_that_an_algorithm_cannot_do_is_refused():
    with pytest.raises(CoterieError, match="popularity does ranking, and protocol rating-dirichlet asks for rating"):
        simulate(COUNTS, problem=contract.toy("rating"))


def test_top_lists_are_asked_of_some_clients_only():
    algorithm, settings = adding("mean")
    run = simulate(algorithm, settings).run(1)
    lists = run.top(run.best.state, 3, run.problem.masked("test"), np.array([2, 5]))
    assert np.flatnonzero((lists.items >= 0).all(1)).tolist() == [2, 5]
    counts = jnp.where(jnp.isin(jnp.arange(toys.ITEMS), run.problem.masked("test")[5]), -1, run.state.server.counts)
    assert lists.items[5, 0] == int(jnp.argmax(counts))


# -- private state --------------------------------------------------------------------------------------------


class Private(NamedTuple):
    rounds: jax.Array


def test_only_who_trains_is_written_whatever_training_returns():
    """Training that changes private state without a sample: of those without data, and of who is absent, too."""

    def local_update(key, config, download, private, data):
        upload, _, measured = COUNTS.local_update(key, config, download, private, data)
        return upload, Private(private.rounds + 1), measured

    def init_client(key, config, catalogue, client):
        return Private(jnp.zeros((), jnp.int32))

    algorithm = replace(COUNTS, local_update=local_update, init_client=init_client)
    run = simulate(algorithm, participation="fraction", fraction=0.5, dropout=0.2, rounds=5).run(5)
    expected = np.zeros(run.plan.n_clients, int)
    for number in range(5):
        expected[steps(run.conduct, run.seed, number, run.plan.n_clients)[0].arrived] += 1
    assert expected[-1] > 0, "the client without data is asked"
    expected[-1] = 0
    assert [int(private.rounds) for private in run.privates()] == expected.tolist()
