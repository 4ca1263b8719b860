"""The rounds of a run as they happen: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulation
    from coterie.engine.state import Record

LINES = 10
"""How many lines a run writes, at most, where there is no terminal."""


class Watch:
    """Shows what a run reports; `start` and `round` are what `experiment.run.execute` calls.

    With a `label`, it is one run of several: then there is the bar alone, under that name.
    """

    def __init__(self, console: Console, label: str = "") -> None:
        self.console, self.label = console, label
        self._began = time.perf_counter()
        self._latest = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def start(self, simulation: Simulation) -> None:
        """Say what is run on what, and what the filters did."""
        if not self.label:
            self._introduce(simulation)
        self._began = time.perf_counter()
        self._task = self._bar.add_task(
            self._place(simulation.state.round, simulation),
            total=simulation.conduct.rounds,
            completed=simulation.state.round,
            state="compiling",
        )

    def _introduce(self, simulation: Simulation) -> None:
        data, protocol = simulation.problem.data, simulation.problem.protocol
        counts = f"{data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions"
        self._say(f"{simulation.algorithm.info.name} on {data.name}: {counts}")
        for note in data.notes:
            self._say(f"  {note}")
        self._say(f"protocol {protocol.name}: {protocol.about}")
        if simulation.history:
            self._say(f"going on after round {simulation.state.round}")

    def round(self, record: Record, simulation: Simulation) -> None:
        """Show a round."""
        place, state = self._place(record.round, simulation), self._state(record, simulation)
        self._bar.update(self._task, completed=record.round, description=place, state=state)
        tenths = [LINES * number // simulation.conduct.rounds for number in (record.round - 1, record.round)]
        quiet = self.label or self.console.is_terminal
        if not quiet and (tenths[0] < tenths[1] or simulation.finished):
            self._say(f"{place}  {state}")

    def _place(self, number: int, simulation: Simulation) -> str:
        rounds = str(simulation.conduct.rounds)
        return f"{self.label} round {number:{len(rounds)}}/{rounds}".strip()

    def _state(self, record: Record, simulation: Simulation) -> str:
        from coterie.experiment.report import human_bytes

        name = simulation.problem.protocol.selecting
        if record.validation is not None:
            self._latest = f"{name} {record.validation[name]:.3f}"
            if record.exposure is not None:
                self._latest += f"  er@5 {record.exposure['er@5']:.3f}"
        loss = f"loss {record.metrics['loss']:.4g}" if "loss" in record.metrics else ""
        seconds = f"{time.perf_counter() - self._began:.0f} s"
        sent = human_bytes(record.bytes["up"] + record.bytes["down"])
        return "  ".join(part for part in (loss, self._latest, seconds, sent) if part)

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=not self.console.is_terminal)


def show(console: Console, lines: list[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
