"""Noise on uploads in the compiled round: whose, where, and that the plain loop has the same."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie import algorithms, defences
from coterie.engine import keys
from coterie.engine.federation import Guard
from coterie.engine.reference import Reference
from coterie.engine.robustness import Robustness
from coterie.errors import CoterieError
from coterie.privacy.mechanisms import Privacy, noised
from coterie.testing import contract
from coterie.testing.contract import Watched
from coterie.testing.contract.compare import answers_alike, states_alike

LAPLACE = Privacy(noise="laplace", noise_scale=0.02)
GAUSSIAN = Privacy(noise="gaussian", noise_scale=0.5, clip=0.5)


@pytest.fixture(scope="module")
def problem():
    return contract.toy("ranking")


def simulation(problem, algorithm, privacy=LAPLACE, **more):
    algorithm = algorithms.get(algorithm) if isinstance(algorithm, str) else algorithm
    settings = contract.small(algorithm, problem.protocol.task) | more.pop("settings", {})
    return Watched(algorithm, settings, problem, contract.FULL, privacy=privacy, **more)


def silent(name):
    """An algorithm whose clients have nothing to say: their uploads are zero."""
    algorithm = algorithms.get(name)

    def local_update(key, config, download, private, data):
        upload, _, measured = algorithm.local_update(key, config, download, private, data)
        return jax.tree.map(jnp.zeros_like, upload), private, measured

    return replace(algorithm, local_update=local_update)


def trained(run, clients, number=0):
    """What comes of clients' training in a round, by bucket."""
    drawn, _ = run._round_keys(number)
    return run.federation.train(drawn, run.keep(run.state), np.asarray(clients))


def total(run, clients, number=0):
    """What the server gets of clients in a round."""
    return jax.tree.map(lambda *leaves: sum(leaves), *(out.total for out in trained(run, clients, number)))


def noise_of(run, client, number, like):
    key = keys.at(keys.stream(run.seed, "noise"), number, client)
    return noised(key, LAPLACE.noise, LAPLACE.noise_scale, jax.tree.map(jnp.zeros_like, like))


def close(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def followed(reference, rounds=2):
    """What the plain loop comes to: server, private states, and the views of the last round."""
    server, privates = reference.start()
    for number in range(rounds):
        server, privates, views = reference.round(number, server, privates)
    return server, privates, views


# -- the plain loop -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "task", "privacy"), [("pfedrec", "ranking", GAUSSIAN), ("freib", "rating", LAPLACE)])
def test_compiled_round_with_noise_equals_the_plain_loop(name, task, privacy):
    fast = simulation(contract.toy(task), name, privacy).run(2)
    update = jax.jit(fast.algorithm.local_update, static_argnums=1, compiler_options=contract.QUICK)
    loop = partial(Reference, replace(fast.algorithm, local_update=update), fast.config, fast.catalogue, fast.problem)
    slow = loop(privacy=privacy)
    server, privates, views = followed(slow)
    states_alike(f"{name} with noise", (fast.state.server, fast.privates()), (server, privates))
    other = followed(loop(privacy=privacy.model_copy(update={"noise": "none"} if name == "freib" else {"clip": None})))
    assert not np.allclose(server.items, other[0].items, atol=1e-3)
    if fast.programs.local_view:  # a client ranks with what it trained, not with its noise
        homes = [(user, int(home)) for user, home in enumerate(fast.problem.home) if home in views]
        ranks = [slow.test_ranks(views[home], privates[home], home, user)[0] for user, home in homes]
        answers_alike(name, fast.answers.test[[user for user, _ in homes], 0], np.array(ranks), fast.problem)


# -- whose noise, and where -----------------------------------------------------------------------------------


def test_every_row_has_the_noise_of_those_who_take_part(problem):
    run, nobody = simulation(problem, silent("pfedrec")), problem.n_clients - 1
    assert run.programs.rows and nobody not in problem.client
    one, other, later = total(run, [3]), total(run, [4]), total(run, [3], number=1)
    close(one, noise_of(run, 3, 0, one))
    assert np.all(one.items)
    for drawn in (other, later):
        assert abs(np.corrcoef(np.ravel(one.items), np.ravel(drawn.items))[0, 1]) < 0.1
    assert not np.any(total(run, [nobody]).items)
    several = total(run, [0, 5, nobody])
    close(several, jax.tree.map(jnp.add, *(noise_of(run, client, 0, several) for client in (0, 5))))


def test_buckets_chunks_and_rows_do_not_matter(problem):
    whole = {"rows": False, "buckets": 2, "chunk_size": 24}
    clients = np.arange(0, problem.n_clients, 2)
    close(*(total(simulation(problem, "popularity", GAUSSIAN, **layout), clients) for layout in ({}, whole)))


def test_a_server_that_sees_single_uploads_sees_noised_ones(problem):
    """Also of fields that a client keeps as it uploads them: they stay clean at the client."""
    run = simulation(problem, silent("cofedrec"))
    before = run.privates()[4]
    out, row = trained(run, [1, 4])[0], int(run.plan.row_of[4])
    seen = jax.tree.map(lambda leaf: leaf[row], out.uploads)
    close(seen, noise_of(run, 4, 0, seen))
    close(jax.tree.map(lambda leaf: leaf[row], out.store), before)


def test_a_defence_sees_noised_rows_of_all_items(problem):
    defence = defences.get("median")
    run = simulation(problem, silent("pfedrec"), robustness=Robustness(guard=Guard(defence, defence.Config())))
    singles = trained(run, [1])[0].singles
    assert np.asarray(singles.own).sum() == problem.data.n_items
    sender = int(np.flatnonzero(singles.sent)[0])
    mine = jax.tree.map(lambda leaf: leaf[sender], singles.upload)
    close(mine, noise_of(run, 1, 0, mine))


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "privacy", "settings", "sentence"),
    [
        ("fedmf", {"noise": "laplace"}, {}, "noise=laplace needs noise_scale"),
        ("fedmf", {"clip": 1.0}, {}, "clip does nothing without noise"),
        ("fedmf", {"noise_scale": 1.0}, {}, "noise_scale does nothing without noise"),
        ("local", {"noise": "laplace", "noise_scale": 1.0}, {}, "those of local upload nothing"),
        ("mf", {"noise": "laplace", "noise_scale": 1.0}, {}, "those of mf upload nothing"),
        (
            "fedmf",
            {"noise": "gaussian", "noise_scale": 1.0, "clip": 1.0},
            {"aggregation": "weighted"},
            "how much data a client has",
        ),
    ],
)
def test_refused_combinations(problem, name, privacy, settings, sentence):
    with pytest.raises(CoterieError, match=sentence):
        simulation(problem, name, Privacy(**privacy), settings=settings)


def test_whole_numbers_are_refused(problem):
    algorithm = algorithms.get("popularity")

    def local_update(key, config, download, private, data):
        upload, private, measured = algorithm.local_update(key, config, download, private, data)
        return upload._replace(counts=upload.counts.astype(jnp.int32)), private, measured

    with pytest.raises(CoterieError, match="uploads whole numbers"):
        simulation(problem, replace(algorithm, local_update=local_update))
