"""What every algorithm must pass, on toy data, in seconds.

    from coterie.testing import contract
    contract.check(my_algorithm)

Every point is a function of an `Algorithm`; `POINTS` lists them, so that pytest can take them one by one. A
point that does not apply (a centralised algorithm sends nothing) says so in its docstring and passes.
"""

from __future__ import annotations

from coterie.algorithm import Algorithm
from coterie.testing.contract.compare import TOLERANCE
from coterie.testing.contract.federation import absent_clients_are_untouched, client_without_data_changes_nothing
from coterie.testing.contract.learning import (
    LEARNING_ROUNDS,
    LEARNS_NOTHING,
    learns_planted_structure,
    local_training_leaks_only_on_paper,
    planted,
)
from coterie.testing.contract.persistence import (
    ranks_in_lists,
    resumed_equals_uninterrupted,
    same_seed_gives_same_bits,
    saved_model_recommends_the_same,
    whole_lists,
)
from coterie.testing.contract.plain import QUICK, Followed, followed, loop
from coterie.testing.contract.rounds import (
    buckets_and_chunks_do_not_matter,
    compiled_round_equals_plain_loop,
    order_of_clients_does_not_matter,
    rows_equal_whole_tables,
    second_round_compiles_nothing,
)
from coterie.testing.contract.runs import (
    FULL,
    HALF,
    LAYOUT,
    ROUNDS,
    Point,
    Watched,
    shuffled,
    simulation,
    small,
    tasks,
    toy,
    trained,
)
from coterie.testing.contract.settings import settings_round_trip
from coterie.testing.contract.wire import ledger_counts_serialised_bytes, nothing_private_is_uploaded

POINTS: dict[str, Point] = {
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
"""Every point by its name, in the order in which they are checked."""

__all__ = [
    *POINTS,
    "FULL",
    "HALF",
    "LAYOUT",
    "LEARNING_ROUNDS",
    "LEARNS_NOTHING",
    "POINTS",
    "QUICK",
    "ROUNDS",
    "TOLERANCE",
    "Followed",
    "Watched",
    "check",
    "followed",
    "loop",
    "planted",
    "ranks_in_lists",
    "shuffled",
    "simulation",
    "small",
    "tasks",
    "toy",
    "trained",
    "whole_lists",
]


def check(algorithm: Algorithm) -> None:
    """Run all points; the first one that fails raises an AssertionError that says what is wrong."""
    for point in POINTS.values():
        point(algorithm)
