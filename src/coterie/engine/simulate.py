"""A federation in one process: rounds, evaluation, selection of the best round on validation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from pydantic import Field

from coterie.algorithm import Algorithm, Client, Message
from coterie.attack import Scene
from coterie.data.ragged import Ragged
from coterie.engine import keys
from coterie.engine.attackers import Attackers
from coterie.engine.clock import Clock
from coterie.engine.evaluate import Answers, Lists, exposure, measure
from coterie.engine.federation import Federation
from coterie.engine.participation import Participation, Step, expected, steps
from coterie.engine.plan import Layout, Plan, make_plan, pad
from coterie.engine.robustness import Robustness, controls_of, targets_of
from coterie.engine.round import Keys, Outcome, Programs, round_keys, streams
from coterie.engine.serverside import ServerSide
from coterie.engine.setup import catalogue_of, check_task, configured, pooled, with_vectors
from coterie.engine.state import Best, Record, State
from coterie.engine.store import PART, Store, too_large
from coterie.evaluation.problem import Problem
from coterie.privacy.mechanisms import Privacy
from coterie.regulariser import Sides
from coterie.wire import codec
from coterie.wire.ledger import Ledger


class Conduct(Participation):
    """How a run is conducted."""

    rounds: int = Field(100, ge=1, description="communication rounds; epochs of a centralised method")
    eval_every: int = Field(1, ge=1, description="rounds between evaluations; the last round always is one")
    patience: int | None = Field(None, ge=1, description="evaluations without a better one before stopping")
    store: Literal["auto", "memory", "disk"] = Field(
        "auto", description="where private states live between rounds; auto: on disk if memory is too small"
    )


class Nothing(NamedTuple):
    """The private state of a client that has none."""


class Simulation:
    """Runs an algorithm over a problem, one round at a time."""

    def __init__(
        self,
        algorithm: Algorithm,
        settings: dict[str, Any],
        problem: Problem,
        conduct: Conduct,
        *,
        robustness: Robustness | None = None,
        privacy: Privacy | None = None,
        rows: bool | None = None,
        buckets: int | None = None,
        chunk_size: int = 4096,
    ) -> None:
        robustness, privacy = robustness or Robustness(), privacy or Privacy()
        check_task(algorithm, problem)
        robustness.check(algorithm, problem)
        self.algorithm, self.conduct, self.seed = algorithm, conduct, problem.seed
        self.problem = pooled(problem) if algorithm.central else problem
        self.catalogue = catalogue_of(problem)
        self.config = configured(algorithm, settings, problem, self.catalogue)
        privacy.check(algorithm, self.config)
        self.catalogue, self.notes = with_vectors(self.catalogue, self.config, problem)
        self.targets = targets_of(robustness.threat.target, problem) if robustness.threat else np.zeros(0, np.int64)
        watched = (*self.targets, *controls_of(self.targets, problem)) if robustness.threat else ()
        self.programs = Programs(
            algorithm,
            self.config,
            problem.data.n_items,
            problem.protocol.task,
            problem.protocol.candidates is not None,
            rows=algorithm.info.touches == "rows" if rows is None else rows,
            watched=tuple(int(item) for item in watched),
            defended=robustness.guard is not None,
            bound=robustness.bound,
            privacy=privacy,
        )
        self.private_bytes = self._private_bytes()
        self.store = Store(conduct.store == "disk" or (conduct.store == "auto" and too_large(self.private_bytes)))
        self.plan = self._plan(buckets, chunk_size)
        self.state = self._initial()
        shapes = self.programs.shapes(self.state.server, self.state.stores[0])
        privacy.check_upload(algorithm, shapes.upload)
        self.federation = self._federation(robustness, shapes.upload)
        self.state.beside = self.federation.start(self.state.server, keys.stream(self.seed, "attackers"))
        self.ledger = Ledger.of(shapes.download, shapes.upload, shapes.answer, algorithm.info.only_if)
        self._sent: NDArray[np.int64] | None = None
        self._streams = streams(self.seed)
        regularised = self.config.regulariser != "none"
        self._sides = Sides.of(robustness.popularity, self.catalogue.popularity) if regularised else None
        self.best: Best | None = None
        self.history: list[Record] = []
        self.clock = Clock()

    def _federation(self, robustness: Robustness, upload: Message) -> Federation:
        attackers = None
        if robustness.threat:
            scene = Scene(self.algorithm, self.config, self.catalogue, jnp.asarray(self.targets))
            count = max(1, int(robustness.threat.share * self.problem.n_clients))
            attackers = Attackers(robustness.threat, scene, count)
        server = ServerSide.of(self.algorithm, self.config, robustness.popularity, self.state.server, upload)
        most = expected(self.conduct, self.problem.n_clients + (attackers.count if attackers else 0))
        return Federation(self.programs, self.plan, self.store, server, upload, most, attackers, robustness.guard)

    def _private_bytes(self) -> int:
        """Return the size of all private states."""
        if self.algorithm.central:
            return 0
        config, catalogue = self.config, self.catalogue
        one = lambda: self.algorithm.init_client(jax.random.key(0), config, catalogue, Client(0, 1))  # noqa: E731
        return self.problem.n_clients * codec.size(jax.eval_shape(one))

    def _plan(self, buckets: int | None, chunk_size: int) -> Plan:
        each = max(1, self.private_bytes // self.problem.n_clients)
        return make_plan(
            self.problem,
            buckets=buckets,
            chunk_size=chunk_size,
            cohort=expected(self.conduct, self.problem.n_clients),
            chunk_clients=self._chunk_clients(),
            part_clients=max(1, PART // each) if self.store.on_disk else None,
            seen=bool(self.programs.watched),
        )

    def _chunk_clients(self) -> int | None:
        """Return the most clients of a chunk: few where each works on whole tables, or sends them with noise."""
        if not self.programs.rows:
            return 4
        return 16 if self.programs.privacy.noised else None

    def _initial(self) -> State:
        server = self.algorithm.init_server(keys.stream(self.seed, "server"), self.config, self.catalogue)
        return State(server, [self.store.keep(self._initial_clients(layout)) for layout in self.plan.layouts])

    def _initial_clients(self, layout: Layout) -> Message:
        """Draw the private states of a bucket."""
        if self.algorithm.central:
            return Nothing()
        key, init = keys.stream(self.seed, "client"), self.algorithm.init_client
        each = jax.vmap(lambda number: init(key, self.config, self.catalogue, Client(number, layout.room)))
        return jax.jit(each)(layout.bucket.client)

    def keep(self, state: State, over: State | None = None) -> State:
        """Return a state that later rounds cannot overwrite; the server's never is. `over` is used up."""
        return State(state.server, self.store.copy(state.stores, over and over.stores), state.round, state.beside)

    # -- a round ------------------------------------------------------------------------------------------

    def advance(self) -> Record:
        """Run one round; evaluate and remember it if validation likes it best."""
        start, number = time.perf_counter(), self.state.round
        asks = (number + 1) % self.conduct.eval_every == 0 or number + 1 == self.conduct.rounds
        before = self.keep(self.state) if self.programs.local_view and asks else None
        train = self._train_centrally if self.algorithm.central else self._train_clients
        with self.clock.on("train"):
            record, answers = train(number)
        self.state.round = number + 1
        record.bytes = {"up": self.ledger.up, "down": self.ledger.down}
        if asks:
            with self.clock.on("evaluate"):
                self._judge(record, answers or self.ask(), before)
        record.seconds = {"round": time.perf_counter() - start, **self.clock.spent}
        self.history.append(record)
        return record

    def _round_keys(self, number: int) -> tuple[Keys, Array]:
        """Return the keys of all clients, and that of the server, for a round."""
        drawn = round_keys(self._streams, number, self.plan.n_clients, self.config.redraw)
        return drawn, keys.at(keys.stream(self.seed, "server step"), number)

    def _steps(self, number: int) -> list[Step]:
        return steps(self.conduct, self.seed, number, self.federation.n_clients)

    def _train_clients(self, number: int) -> tuple[Record, Answers | None]:
        drawn, server_key = self._round_keys(number)
        answers, refused, clients = None, [], 0
        sums: dict[str, float] = {}
        for i, step in enumerate(self._steps(number)):
            before = self.state.server
            stepped = self.federation.step(drawn, keys.at(server_key, i), self.state, step)
            self._answer(number, step, stepped.uploads)
            clients += sum(int(out.clients) for out in stepped.outcomes)
            refused += stepped.refused
            sums = _added(sums, [out.metrics for out in stepped.outcomes])
            if self.programs.local_view:
                answers = self._merge(answers, stepped.outcomes, before, step.arrived)
        self._end_round(number)
        measured = {name: value / max(clients, 1) for name, value in sums.items()}
        if self.algorithm.observe:
            seen = self.algorithm.observe(self.config, self.state.server)
            measured |= {name: float(value) for name, value in seen.items()}
        return _record(number, clients, measured, refused), answers

    def _end_round(self, number: int) -> None:
        key, state = keys.at(keys.stream(self.seed, "end of round"), number), self.state
        ended = self.federation.server.end_round(key, state.server, state.beside, self._sides)
        state.server, state.beside = ended

    def trained_from(self, state: State) -> list[Outcome]:
        """Return what all clients have, by bucket, after training once from a state; the state is left as it is."""
        drawn, _ = self._round_keys(state.round)
        return self.federation.train(drawn, self.keep(state), np.arange(self.plan.n_clients))

    def _answer(self, number: int, step: Step, uploads: int) -> None:
        """Let the clients that reported back receive their answers, and count what has travelled."""
        if not self.algorithm.receive or not uploads:
            self.ledger.count(len(step.chosen), uploads, news=self._news(number, step))
            return
        flags = self.federation.receive(self.state, step.arrived)
        self.ledger.count(len(step.chosen), uploads, uploads, flags)

    def _news(self, number: int, step: Step) -> Any:
        """Return what those chosen need to be sent, and to send, in a round; all of it where nothing else is said."""
        if self.algorithm.news is None:
            return {}, {}
        if self._sent is None:  # who was chosen before a checkpoint is drawn again
            self._sent = np.full(self.federation.n_clients, -1)
            for before in range(number):
                for each in self._steps(before):
                    self._sent[each.chosen] = before
        news = self.algorithm.news(self.config, number, self._sent[step.chosen])
        self._sent[step.chosen] = number
        return news

    def _train_centrally(self, number: int) -> tuple[Record, None]:
        drawn = round_keys(self._streams, number, 1, self.config.redraw)
        bucket = self.plan.layouts[0].bucket
        self.state.server, measured = self.programs.train_centrally(drawn, self.state.server, bucket)
        self._end_round(number)
        return _record(number, 1, {name: float(value) for name, value in measured.items()}, []), None

    # -- evaluation ---------------------------------------------------------------------------------------

    def ask(self, server: Message | None = None, clients: NDArray[np.int64] | None = None) -> Answers:
        """Ask clients (all of them by default) with a server state (the present one); rows are users."""
        server = self.state.server if server is None else server
        clients = np.arange(self.plan.n_clients) if clients is None else clients

        def ask(number: int, layout: Layout) -> Answers:
            store = self.state.stores[number]
            return self.programs.ask(server, store, layout.bucket, *self.federation.members(number, clients))

        return self._by_user(self.federation.at_once(ask))

    def _merge(
        self, answers: Answers | None, outcomes: list[Outcome], server: Message, trained: NDArray[np.int64]
    ) -> Answers:
        """Add the answers of the clients that just trained; who has not trained answers with the download."""
        new = self._by_user([out.answers for out in outcomes])
        absent = np.setdiff1d(np.arange(self.plan.n_clients), trained)
        if len(absent) == 0:
            return new
        rest = answers if answers is not None else self.ask(server, absent)
        took_part = np.isin(self.problem.home, trained)[:, None]
        return jax.tree.map(lambda mine, other: np.where(took_part, mine, other), new, rest)

    def _by_user(self, answers: list[Answers | None]) -> Answers:
        tables: dict[str, Any] = {}
        for part in Answers._fields:
            if getattr(answers[0], part) is None:
                continue
            parts = [np.asarray(getattr(each, part)) for each in answers]
            table = np.zeros((self.plan.n_users, max(each.shape[-1] for each in parts)), parts[0].dtype)
            for layout, each in zip(self.plan.layouts, parts, strict=True):
                here = layout.user_numbers >= 0
                table[layout.user_numbers[here], : each.shape[-1]] = each[here]
            tables[part] = table
        return Answers(**tables)

    def top(self, state: State, k: int, hidden: Ragged, clients: NDArray[np.int64] | None = None) -> Lists:
        """Return each user's first `k` items outside `hidden`, in a state that `Best` kept; rows are users.

        Where clients are evaluated with what they just trained, those that took part train again, with the same
        draws.
        """
        rest = np.arange(self.plan.n_clients) if clients is None else clients
        shape = (self.plan.n_users, k)
        lists = Lists(np.full(shape, -1, np.int32), np.full(shape, np.nan, np.float32))
        if self.programs.local_view:
            for before, arrived in self._replayed(state):
                self._list(lists, before, hidden, np.intersect1d(rest, arrived), trained=True)
                rest = np.setdiff1d(rest, arrived)
                if not len(rest):
                    return lists
        self._list(lists, state, hidden, rest, trained=False)
        return lists

    def parts(self, state: State, user: int, items: NDArray[np.int32]) -> dict[str, NDArray[np.float32]]:
        """Return what a user's scores of items are the sum of, by name; nothing if the algorithm does not say."""
        if self.algorithm.parts is None or self.programs.local_view:
            return {}
        client = int(self.problem.home[user])
        bucket, row = self.plan.bucket_of[client], self.plan.row_of[client]
        layout = self.plan.layouts[bucket]
        private = jax.tree.map(lambda leaf: leaf[row], state.stores[bucket])
        view = self.algorithm.download(self.config, state.server, Client(client, layout.room))
        local = np.flatnonzero(layout.user_numbers[row] == user)[0]
        known_as = jnp.int32(user if self.algorithm.info.users == "global" else local)
        found = self.algorithm.parts(self.config, view, private, known_as, jnp.asarray(items))
        return {name: np.asarray(values) for name, values in found.items()}

    def _replayed(self, state: State) -> Iterator[tuple[State, NDArray[np.int64]]]:
        """Go through the server steps of the round that begins with `state`: what each saw, and who reported back."""
        drawn, server_key = self._round_keys(state.round)
        cohort = self._steps(state.round)
        for i, step in enumerate(cohort):
            yield state, step.arrived
            if i + 1 < len(cohort):
                after = self.keep(state)
                self.federation.step(drawn, keys.at(server_key, i), after, step)
                state = State(after.server, state.stores, state.round, after.beside)

    def _list(self, lists: Lists, state: State, hidden: Ragged, clients: NDArray[np.int64], *, trained: bool) -> None:
        """Write the first items of the users of `clients` into `lists`."""
        drawn, _ = self._round_keys(state.round)
        k, layouts = lists.items.shape[1], self.plan.layouts
        asked = [np.isin(each.bucket.client, clients)[:, None] & (each.user_numbers >= 0) for each in layouts]

        def top(number: int, layout: Layout) -> Lists | None:
            if not asked[number].any():
                return None
            store, hide_here = state.stores[number], hide(layout, hidden)
            members = self.federation.members(number, clients)
            return self.programs.top(k, trained, drawn, state.server, store, layout.bucket, hide_here, *members)

        for layout, these, found in zip(layouts, asked, self.federation.at_once(top), strict=True):
            if found is not None:
                lists.items[layout.user_numbers[these]] = np.asarray(found.items)[these]
                lists.scores[layout.user_numbers[these]] = np.asarray(found.scores)[these]

    def _judge(self, record: Record, answers: Answers, before: State | None) -> None:
        """Measure a round, and keep it if validation has seen nothing better; the last of equals wins."""
        record.validation = measure(self.problem, answers, "validation")
        record.test = measure(self.problem, answers, "test")
        if answers.watched is not None:
            record.exposure = exposure(answers.watched, len(self.targets))
        value = record.validation[self.problem.protocol.selecting] * (
            -1 if self.problem.protocol.lower_is_better else 1
        )
        if self.best is None or not value < self.best.value:
            self.best = Best(value, record, before or self._kept_best(), answers)

    def _kept_best(self) -> State:
        """Keep the present state in the place of the best one before, which is of no more use."""
        return self.keep(self.state, over=self.best.state if self.best else self.keep(self.state))

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or patience ran out."""
        if self.conduct.patience is None or self.best is None:
            return self.state.round >= self.conduct.rounds
        waited = sum(record.validation is not None for record in self.history if record.round > self.best.record.round)
        return self.state.round >= self.conduct.rounds or waited >= self.conduct.patience


def hide(layout: Layout, hidden: Ragged) -> Array:
    """Return the items hidden from each local user, by client; n_items-sized numbers are padding."""
    flat = np.maximum(layout.user_numbers, 0).ravel()
    items, filled = pad(hidden, flat, max(1, int(hidden.lengths.max(initial=0))))
    return jnp.asarray(
        np.where(filled, items, np.iinfo(np.int32).max).reshape(*layout.user_numbers.shape, -1), jnp.int32
    )


def _record(number: int, clients: int, metrics: dict[str, float], refused: list[str]) -> Record:
    return Record(number + 1, clients, metrics, None, None, {}, {}, refused=refused)


def _added(sums: dict[str, float], more: list[dict[str, Array]]) -> dict[str, float]:
    return {name: sums.get(name, 0.0) + sum(float(part[name]) for part in more) for name in more[0]}
