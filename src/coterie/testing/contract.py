"""What every algorithm must pass, on toy data, in seconds.

    from coterie.testing import contract
    contract.check(my_algorithm)

Every point is a function of an `Algorithm`; `POINTS` lists them, so that pytest can take them one by one. A
point that does not apply (a centralised algorithm sends nothing) says so in its docstring and passes.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.algorithm import Algorithm, Client, ClientConfig, Message, Received
from coterie.engine import checkpoint
from coterie.engine.clock import COMPILING
from coterie.engine.evaluate import MISS, Answers, Lists
from coterie.engine.participation import steps
from coterie.engine.plan import Plan
from coterie.engine.reference import Reference
from coterie.engine.simulate import Best, Conduct, Record, Simulation, State
from coterie.errors import CoterieError
from coterie.evaluation.metrics import rank_of
from coterie.evaluation.problem import Problem, Task
from coterie.evaluation.protocols import prepare
from coterie.evaluation.references import references
from coterie.testing import toys
from coterie.wire import codec

ROUNDS = 2
TOLERANCE = 1e-4
"""Largest difference of two leaves that are to be equal, in units of the larger one's largest entry."""

FULL = Conduct.model_validate({"rounds": ROUNDS})
HALF = FULL.model_copy(update={"participation": "fraction", "fraction": 0.5, "dropout": 0.3})

QUICK = {"xla_backend_optimization_level": 0}

LAYOUT = {"buckets": 1, "chunk_size": 48}
"""One bucket of clients with 5 and 12 interactions: chunks of four, with padding."""


def check(algorithm: Algorithm) -> None:
    """Run all points; the first one that fails raises an AssertionError that says what is wrong."""
    for point in POINTS.values():
        point(algorithm)


# -- what the points share ----------------------------------------------------------------------------------


class Watched(Simulation):
    """A simulation that keeps the answers of its last evaluation; `order` lays out clients another way."""

    def __init__(self, *args: Any, order: int | None = None, **layout: Any) -> None:
        self.order, self.answers = order, Answers(None, None)
        super().__init__(*args, **(LAYOUT | layout))

    def _plan(self, buckets: int, chunk_size: int) -> Plan:
        plan = super()._plan(buckets, chunk_size)
        return plan if self.order is None else shuffled(plan, self.order)

    def _judge(self, record: Record, answers: Answers, before: State | None) -> None:
        self.answers = answers
        super()._judge(record, answers, before)

    def run(self, rounds: int) -> Watched:
        """Run some rounds."""
        for _ in range(rounds):
            self.advance()
        return self

    def privates(self) -> list[Message]:
        """Return everybody's private state, by client number."""
        stores = [jax.tree.map(np.asarray, store) for store in self.state.stores]
        places = zip(self.plan.bucket_of.tolist(), self.plan.row_of.tolist(), strict=True)
        return [jax.tree.map(lambda leaf, row=row: leaf[row], stores[bucket]) for bucket, row in places]


def shuffled(plan: Plan, seed: int) -> Plan:
    """Return the same plan with the clients of each bucket in another order."""
    rng, row_of, layouts = np.random.default_rng(seed), plan.row_of.copy(), []
    for layout in plan.layouts:
        order = rng.permutation(layout.clients)
        bucket = jax.tree.map(lambda leaf, order=order: jnp.asarray(np.asarray(leaf)[order]), layout.bucket)
        row_of[np.asarray(bucket.client)] = np.arange(layout.clients)
        layouts.append(dataclasses.replace(layout, bucket=bucket, user_numbers=layout.user_numbers[order]))
    return dataclasses.replace(plan, layouts=layouts, row_of=row_of)


def small(algorithm: Algorithm, task: Task) -> dict[str, Any]:
    """Return settings that make several batches and two passes out of a toy client's few samples.

    Defaults are chosen to rank; a squared error on ratings up to 5 has gradients so much larger that it needs
    small rates to stay finite.
    """
    rates = [name for name in algorithm.Config.model_fields if name.endswith("lr")] if task == "rating" else []
    return {"batch_size": 16, "local_epochs": 2} | dict.fromkeys(rates, 0.05)


@lru_cache(maxsize=4)
def toy(task: Task, seed: int = 0) -> Problem:
    """Return the tiny problem of a task."""
    return toys.problem(task, seed)


def tasks(algorithm: Algorithm) -> list[Task]:
    """Return the tasks of an algorithm that there is toy data for."""
    known: tuple[Task, ...] = ("ranking", "rating")
    return [task for task in known if task in algorithm.info.tasks]


def simulation(
    algorithm: Algorithm, conduct: Conduct = FULL, task: Task | None = None, seed: int = 0, **layout: Any
) -> Watched:
    """Return a simulation of the tiny problem, before its first round."""
    task = task or tasks(algorithm)[0]
    return Watched(algorithm, small(algorithm, task), toy(task, seed), conduct, **layout)


def trained(algorithm: Algorithm, task: Task | None = None) -> Watched:
    """Return the simulation of the tiny problem after its rounds; not to be advanced."""
    return _trained(algorithm, task or tasks(algorithm)[0])


@lru_cache(maxsize=4)
def _trained(algorithm: Algorithm, task: Task) -> Watched:
    return simulation(algorithm, task=task).run(ROUNDS)


@dataclasses.dataclass(frozen=True)
class Followed:
    """What the plain loop came to: server, private states, and the test answers by user."""

    server: Message
    privates: list[Message]
    answers: dict[int, NDArray[Any]]


@lru_cache(maxsize=4)
def loop(algorithm: Algorithm, task: Task) -> Reference:
    """Return the plain loop over the tiny problem, its functions compiled one by one, without much ado."""
    like = trained(algorithm, task)
    compiled: dict[str, Any] = {
        name: jax.jit(getattr(algorithm, name), static_argnums=place, compiler_options=QUICK)
        for name, place in {"local_update": 1, "score": 0}.items()
    }
    return Reference(dataclasses.replace(algorithm, **compiled), like.config, like.catalogue, like.problem)


@lru_cache(maxsize=4)
def followed(algorithm: Algorithm, task: Task) -> Followed:
    """Run the plain loop."""
    reference = loop(algorithm, task)
    server, privates = reference.start()
    for number in range(ROUNDS):
        before = server
        server, privates, views = reference.round(number, server, privates)
    answers = {}
    for user in range(reference.problem.data.n_users):
        client = int(reference.problem.home[user])
        view = _seen_by(reference, client, before, server, views)
        answers[user] = _answered(reference, view, privates[client], client, user)
    return Followed(server, privates, answers)


def _seen_by(reference: Reference, client: int, before: Message, after: Message, views: dict[int, Message]) -> Message:
    """What a client is evaluated with: the new global state, or its own view of what it downloaded."""
    algorithm, config = reference.algorithm, reference.config
    local = config.eval_table == "local" and algorithm.personalise is not None
    if local and client in views:
        return views[client]
    room = max(1, len(reference.users(client)))
    return algorithm.download(config, before if local else after, Client(client, room))


def _answered(reference: Reference, view: Message, private: Message, client: int, user: int) -> NDArray[Any]:
    if reference.problem.protocol.task == "ranking":
        return np.minimum(reference.test_ranks(view, private, client, user), MISS)
    local = jnp.int32(np.searchsorted(reference.users(client), user))
    items = jnp.asarray(reference.problem.test.items[user])
    return np.asarray(reference.algorithm.score(reference.config, view, private, local, items))


def _close(what: str, left: Any, right: Any, name: str) -> None:
    """Compare two trees leaf by leaf, relative to the size of the leaf."""
    paths, tree = jax.tree_util.tree_flatten_with_path(left)
    assert str(tree) == str(jax.tree.structure(right)), f"{name}: {what} have different fields."
    for (path, a), b in zip(paths, jax.tree.leaves(right), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        where = f"{what}{jax.tree_util.keystr(path)}"
        assert a.shape == b.shape, f"{name}: {where} has shape {a.shape} here and {b.shape} there."
        assert np.isfinite(a).all() and np.isfinite(b).all(), f"{name}: {where} is not finite."
        off = np.abs(a - b).max(initial=0) / max(1e-3, np.abs(a).max(initial=0), np.abs(b).max(initial=0))
        assert off <= TOLERANCE, f"{name}: {where} differs by {off:.1e} of its largest entry."


def _same(what: str, left: Any, right: Any, name: str) -> None:
    """Compare two trees bit by bit."""
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True), f"{name}: {what}."


def _alike(left: Watched, right: Watched, difference: str) -> None:
    """Two runs that may differ by rounding only."""
    name = left.algorithm.info.name
    _close(f"with {difference}, the server state ", left.state.server, right.state.server, name)
    for client, (mine, other) in enumerate(zip(left.privates(), right.privates(), strict=True)):
        _close(f"with {difference}, the private state of client {client} ", mine, other, name)
    _answers_alike(f"with {difference}", left.answers.test, right.answers.test, left.problem, name)


def _answers_alike(what: str, left: Any, right: Any, problem: Problem, name: str) -> None:
    """Ranks must be equal but for a rare tie that rounding breaks the other way; ratings must be close."""
    if problem.protocol.task == "rating":
        _close(f"{what}, the predicted ratings", left, right, name)
        return
    off = np.abs(np.asarray(left, np.int64) - np.asarray(right, np.int64))
    wrong = np.count_nonzero(off)
    assert wrong <= 0.05 * off.size and off.max(initial=0) <= 1, (
        f"{name}: {what}, {wrong} of {off.size} test ranks differ."
    )


def _everybody(reference: Reference) -> Iterator[tuple[int, Message, Message]]:
    """Each client that has data, with its first download and its initial private state."""
    server, privates = reference.start()
    for client in np.unique(reference.problem.client).tolist():
        room = max(1, len(reference.users(client)))
        yield client, reference.algorithm.download(reference.config, server, Client(client, room)), privates[client]


# -- 1 ------------------------------------------------------------------------------------------------------


def compiled_round_equals_plain_loop(algorithm: Algorithm) -> None:
    """Two rounds give the server, private states and test answers of the plain loop, for every task.

    A centralised algorithm has no rounds of clients and no such loop.
    """
    if algorithm.central:
        return
    name = algorithm.info.name
    for task in tasks(algorithm):
        fast, slow = trained(algorithm, task), followed(algorithm, task)
        _close("against the plain loop, the server state ", fast.state.server, slow.server, name)
        for client, (mine, other) in enumerate(zip(fast.privates(), slow.privates, strict=True)):
            what = f"against the plain loop, the private state of client {client} "
            _close(what, _narrowed(mine, other), other, name)
        table = np.zeros_like(fast.answers.test)
        for user, answers in slow.answers.items():
            table[user, : len(answers)] = answers
        real = np.arange(table.shape[1]) < fast.problem.test.items.lengths[:, None]
        given = np.where(real, fast.answers.test, 0)
        _answers_alike("against the plain loop", given, table, fast.problem, name)


def _narrowed(private: Message, like: Message) -> Message:
    """Cut off the room for more users than a client has."""
    return jax.tree.map(lambda leaf, small: leaf[: len(small)] if small.ndim else leaf, private, like)


def rows_equal_whole_tables(algorithm: Algorithm) -> None:
    """Handing over only the rows of a client's own samples changes nothing.

    Applies to an algorithm that declares `touches="rows"`.
    """
    if algorithm.central or algorithm.info.touches != "rows" or not algorithm.info.item_tables:
        return
    whole = simulation(algorithm, rows=False).run(ROUNDS)
    _alike(trained(algorithm), whole, "rows instead of whole tables")


# -- 2 ------------------------------------------------------------------------------------------------------


def order_of_clients_does_not_matter(algorithm: Algorithm) -> None:
    """Clients in another order within their bucket keep their own results and leave the server as it is.

    Draws are keyed by client number, so a client takes its number along when it moves to another row. This
    shows that no client reads a neighbour's row; that a server which sees single uploads treats all numbers
    alike it cannot show.
    """
    if not algorithm.central:
        moved = simulation(algorithm, order=1).run(ROUNDS)
        assert not np.array_equal(moved.plan.row_of, trained(algorithm).plan.row_of)
        _alike(trained(algorithm), moved, "clients in another order")


def buckets_and_chunks_do_not_matter(algorithm: Algorithm) -> None:
    """Two buckets in place of one, with other padding and other chunks, give the same model."""
    if not algorithm.central:
        other = simulation(algorithm, buckets=2, chunk_size=24).run(ROUNDS)
        assert len(other.plan.layouts) == 2
        _alike(trained(algorithm), other, "other buckets and chunks")


# -- 3 ------------------------------------------------------------------------------------------------------


def client_without_data_changes_nothing(algorithm: Algorithm) -> None:
    """The client without training data keeps its private state to the bit and leaves no trace on the server.

    The server's state is compared with that of the plain loop, which passes over such a client.
    """
    if algorithm.central:
        return
    run, name = trained(algorithm), algorithm.info.name
    sizes = np.bincount(run.problem.client, minlength=run.plan.n_clients)
    start, end = simulation(algorithm).privates(), run.privates()
    idle = np.flatnonzero(sizes == 0)
    assert len(idle), "the toy problem has lost its client without data"
    for client in idle.tolist():
        what = f"client {client} has no data, and its private state changed"
        _same(what, start[client], end[client], name)
    task = tasks(algorithm)[0]
    server = followed(algorithm, task).server
    _close("although a client has no data, the server state ", run.state.server, server, name)
    assert run.history[-1].clients == np.count_nonzero(sizes), f"{name}: a client without data was counted."


def absent_clients_are_untouched(algorithm: Algorithm) -> None:
    """Clients that are not chosen, or drop out, keep their private state to the bit; the others train.

    A server that sees single uploads must not look at the place of an absent one.
    """
    if algorithm.central:
        return
    name, run = algorithm.info.name, simulation(algorithm, HALF)
    for number in range(ROUNDS):
        before = run.privates()
        step = steps(HALF, run.seed, number, run.plan.n_clients)[0]
        assert 0 < len(step.arrived) < len(step.chosen) < run.plan.n_clients
        run.advance()
        after = run.privates()
        absent = np.setdiff1d(np.arange(run.plan.n_clients), step.arrived)
        for client in absent.tolist():
            what = f"client {client} took no part in round {number + 1}, and its private state changed"
            _same(what, before[client], after[client], name)
        down, up = run.ledger.bytes_per_download, run.ledger.bytes_per_upload
        sent = run.history[-1].bytes["down"], run.history[-1].bytes["up"]
        last = run.history[-2].bytes if number else {"down": 0, "up": 0}
        assert sent[0] - last["down"] == down * len(step.chosen), f"{name}: downloads are miscounted."
        arrived = run.history[-1].clients
        assert sent[1] - last["up"] == up * arrived, f"{name}: uploads are miscounted."
    if algorithm.info.server_sees == "updates":
        _blind_to_absent(algorithm)


def _blind_to_absent(algorithm: Algorithm) -> None:
    reference = loop(algorithm, tasks(algorithm)[0])
    server = reference.start()[0]
    uploads = [reference.train(0, server, private, client)[0] for client, _, private in _everybody(reference)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *uploads)
    present = jnp.arange(len(uploads)) % 2 == 0

    def step(filling: float) -> Message:
        def filled(leaf: Any) -> Any:
            return jnp.where(present.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, filling)

        kept = jax.tree.map(filled, stacked)
        total = jax.tree.map(lambda leaf: jnp.sum(filled(leaf) * (filled(leaf) != filling), 0), stacked)
        received = Received(total, present.sum(), present.sum(), None, kept, present)
        return algorithm.server_update(jax.random.key(0), reference.config, server, received)

    _same("the server reads the upload of a client that is not there", step(0.0), step(7.0), algorithm.info.name)


# -- 4 ------------------------------------------------------------------------------------------------------


def second_round_compiles_nothing(algorithm: Algorithm) -> None:
    """All programs are compiled in the first round, whoever takes part in the next ones."""
    for conduct in (FULL, HALF):
        run = simulation(algorithm, conduct).run(1)
        compiled = COMPILING.programs
        run.run(1)
        more = COMPILING.programs - compiled
        assert more == 0, f"{algorithm.info.name}: the second round compiled {more} programs."


# -- 5 ------------------------------------------------------------------------------------------------------


def nothing_private_is_uploaded(algorithm: Algorithm) -> None:
    """No number of the private state stands in an upload.

    Checked on real uploads: a field of `Private` may not be a field of `Upload` unless it is an item table;
    and of no private leaf, before training, after it, or as the change between, may the numbers (up to their
    sign) be found in the upload. This finds what is sent by accident: a bias or a user vector, whole, as a
    difference or inside a longer vector. It cannot show that an upload reveals nothing: a gradient depends on
    private numbers without containing one.
    """
    if algorithm.central:
        return
    reference, name = loop(algorithm, tasks(algorithm)[0]), algorithm.info.name
    for client, _, private in _everybody(reference):
        upload, after, _, _ = reference.train(0, reference.start()[0], private, client)
        shared = set(private._fields) & set(upload._fields) - set(algorithm.info.item_tables)
        assert not shared, f"{name}: {', '.join(sorted(shared))} is a field of both Private and Upload."
        change = jax.tree.map(jnp.subtract, after, private)
        for kind, state in {"": private, "the trained ": after, "the change of ": change}.items():
            for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
                what = f"{kind}Private{jax.tree_util.keystr(path)}"
                assert not _contains(upload, leaf), f"{name}: {what} of client {client} stands in its Upload."


def _contains(message: Message, leaf: Any) -> bool:
    """Whether most numbers of a leaf stand somewhere in a message; 0 and 1 are no evidence."""
    inside = np.concatenate([np.zeros(0), *(np.abs(np.ravel(part)) for part in jax.tree.leaves(message))])
    numbers = np.unique(np.abs(np.ravel(leaf)))
    numbers = numbers[(numbers != 0) & (numbers != 1)]
    return bool(len(numbers)) and bool(np.isin(numbers, inside).mean() > 0.5)


def ledger_counts_serialised_bytes(algorithm: Algorithm) -> None:
    """Bytes in the ledger are those of real messages as they are encoded; decoding gives the message back.

    A centralised algorithm sends nothing.
    """
    run, name = trained(algorithm), algorithm.info.name
    if algorithm.central:
        assert run.ledger.up == run.ledger.down == 0, f"{name}: a centralised algorithm sends nothing."
        return
    reference = loop(algorithm, tasks(algorithm)[0])
    for client, down, private in _everybody(reference):
        upload = reference.train(0, reference.start()[0], private, client)[0]
        for kind, message, counted in (
            ("download", down, run.ledger.bytes_per_download),
            ("upload", upload, run.ledger.bytes_per_upload),
        ):
            payload = codec.encode(message)
            assert len(payload) == counted, f"{name}: a {kind} has {len(payload)} bytes, the ledger counts {counted}."
            _same(f"a {kind} is not what it was after decoding", message, codec.decode(payload, message), name)
    messages = sum(record.clients for record in run.history)
    assert run.ledger.up == messages * run.ledger.bytes_per_upload, f"{name}: the ledger miscounts uploads."


# -- 6 ------------------------------------------------------------------------------------------------------


def same_seed_gives_same_bits(algorithm: Algorithm) -> None:
    """Two runs of a seed are equal to the bit."""
    again = simulation(algorithm).run(ROUNDS)
    _same_run(trained(algorithm), again, "the same seed gave another result")


def resumed_equals_uninterrupted(algorithm: Algorithm) -> None:
    """A run that is stopped after a round, written to disk and taken up anew ends as if it had never stopped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        checkpoint.save(path, simulation(algorithm).run(1), {"seed": 0})
        fresh = simulation(algorithm)
        checkpoint.load(path, fresh, {"seed": 0})
    assert fresh.state.round == 1
    _same_run(trained(algorithm), fresh.run(ROUNDS - 1), "a resumed run went another way")


def _same_run(left: Watched, right: Watched, what: str) -> None:
    name = left.algorithm.info.name
    _same(what, (left.state.server, left.state.stores), (right.state.server, right.state.stores), name)
    _same(f"{what} in its best round", _kept(left.best), _kept(right.best), name)
    for a, b in zip(left.history, right.history, strict=True):
        assert _lasting(a) == _lasting(b), f"{name}: {what}: {_lasting(a)} and {_lasting(b)}."


def _kept(best: Best | None) -> tuple[Any, ...]:
    assert best is not None
    return best.value, best.state.server, best.state.stores, best.state.round, best.answers


def _lasting(record: Record) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(record).items() if key != "seconds"}


# -- 7 ------------------------------------------------------------------------------------------------------

LEARNS_NOTHING = {
    "popularity": "it is what the others are compared with",
    "local": "nothing is shared, so nothing about other people can be learned",
}
"""Algorithms that need not beat popularity, and why."""

LEARNING_ROUNDS = 40


def learns_planted_structure(algorithm: Algorithm) -> None:
    """With its own defaults it beats popularity where people fall into communities, by a fifth at least.

    The test metric is that of the round which validation chose so far; it has 40 rounds (or its own number, if
    that is smaller) to get there. A rating algorithm must have a tenth less error than the mean rating.
    """
    if algorithm.info.name in LEARNS_NOTHING:
        return
    task = tasks(algorithm)[0]
    problem, rating = planted(task), task == "rating"
    metric = "mae" if rating else f"hr@{problem.protocol.k}"
    theirs = references(problem)["constant" if rating else "popularity"][metric]
    conduct = Conduct.model_validate({"rounds": min(LEARNING_ROUNDS, algorithm.info.rounds), "eval_every": 5})
    run, mine, learned = Simulation(algorithm, {}, problem, conduct, buckets=1), theirs, False
    while not (run.finished or learned):
        run.advance()
        if run.best is not None and run.best.record.test is not None:
            mine = run.best.record.test[metric]
            learned = mine < 0.9 * theirs if rating else mine > 1.2 * theirs
    name = algorithm.info.name
    assert learned, f"{name}: {metric} is {mine:.3f} on planted communities, where knowing nobody gives {theirs:.3f}."


@lru_cache(maxsize=2)
def planted(task: Task) -> Problem:
    """Return the problem with planted structure."""
    return toys.planted(task)


# -- 8 ------------------------------------------------------------------------------------------------------


def saved_model_recommends_the_same(algorithm: Algorithm) -> None:
    """A model that is saved and loaded recommends the same lists, and the lists agree with the evaluation.

    Recommended are all items that a user has not trained on, best first; the places of the test item and its
    rivals in that list must give the rank that the round was measured by.
    """
    run, fresh, name = trained(algorithm), simulation(algorithm), algorithm.info.name
    if run.problem.protocol.task == "rating":
        return
    assert run.best is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        checkpoint.save_model(path, run.best.state, {"seed": 0})
        checkpoint.load_model(path, fresh, {"seed": 0})
    before, after = whole_lists(run, run.best.state), whole_lists(fresh, fresh.state)
    _same("the saved model recommends other items", before, after, name)
    ranks = ranks_in_lists(run.problem, before)
    _answers_alike("in the recommended lists", ranks, run.best.answers.test, run.problem, name)


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


# -- 9 ------------------------------------------------------------------------------------------------------


def settings_round_trip(algorithm: Algorithm) -> None:
    """Settings survive a trip through plain values; an unknown key is refused with the nearest known one."""
    name, config = algorithm.info.name, algorithm.configure({})
    assert isinstance(config, ClientConfig), f"{name}: Config is not a ClientConfig."
    for values in (config.model_dump(), config.model_dump(mode="json")):
        assert algorithm.configure(values) == config, f"{name}: settings change on a trip through plain values."
    for key in type(config).model_fields:
        typo = key + "z"
        try:
            algorithm.configure({typo: 1})
        except CoterieError as error:
            assert f"'{key}'" in str(error), f"{name}: the error for '{typo}' does not name '{key}': {error}"
        else:
            raise AssertionError(f"{name}: the unknown setting '{typo}' was accepted.")


# -- 10 -----------------------------------------------------------------------------------------------------


def local_training_leaks_only_on_paper(algorithm: Algorithm) -> None:
    """Nothing shared: at chance under the honest protocol, far above it under the papers'.

    A statement about the protocols, made with an algorithm whose clients share nothing (`server_sees` is
    "nothing", as `local`): the honest pool of negatives says nothing about the held-out item, the published
    pool gives it away, because it is the one item that is never drawn.
    """
    if algorithm.info.name != "local":
        return
    data = toys.planted().data
    hits = {}
    for form in ("loo99", "loo99-paper"):
        run = Simulation(
            algorithm, {}, prepare(data, form), Conduct.model_validate({"rounds": 30, "eval_every": 30}), buckets=1
        )
        while not run.finished:
            run.advance()
        hits[form] = run.history[-1].test["hr@10"]  # type: ignore[index]
    assert abs(hits["loo99"] - 0.10) < 0.05, f"honest: local training hits {hits['loo99']:.3f}, chance is 0.10."
    assert hits["loo99-paper"] > 0.25, f"paper: local training hits only {hits['loo99-paper']:.3f}."


POINTS: dict[str, Callable[[Algorithm], None]] = {
    point.__name__: point
    for point in (
        compiled_round_equals_plain_loop,
        rows_equal_whole_tables,
        order_of_clients_does_not_matter,
        buckets_and_chunks_do_not_matter,
        client_without_data_changes_nothing,
        absent_clients_are_untouched,
        second_round_compiles_nothing,
        nothing_private_is_uploaded,
        ledger_counts_serialised_bytes,
        same_seed_gives_same_bits,
        resumed_equals_uninterrupted,
        learns_planted_structure,
        saved_model_recommends_the_same,
        settings_round_trip,
        local_training_leaks_only_on_paper,
    )
}
"""Every point by its name; the numbers above are those of the design, ten in all."""
