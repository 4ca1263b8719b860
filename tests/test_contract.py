"""Every algorithm keeps the contract, and the contract notices when one does not."""

import itertools
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ConfigDict

from coterie import algorithms
from coterie.algorithm import Algorithm, ClientConfig
from coterie.engine import checkpoint
from coterie.testing import contract, median
from coterie.testing.contract import runs
from coterie.wire import codec

SAME = ("settings_round_trip", "compiled_round_equals_plain_loop")
ADDED = (*SAME, "nothing_private_is_uploaded")
FEWER = {**dict.fromkeys(algorithms.VARIANTS, SAME), **dict.fromkeys(("simgcl", "union", "fedprox", "fedproto"), ADDED)}
"""Points for which another algorithm with other defaults, or with another term in its loss, is checked again."""

ALGORITHMS = {name: algorithms.get(name) for name in algorithms.names()} | {"median": Algorithm.from_module(median)}

LONG = ("learns_planted_structure", "local_training_leaks_only_on_paper")
"""Points that compile programs of their own, so any worker may take them."""


def cases():
    for name, point in itertools.product(ALGORITHMS, contract.POINTS):
        if point not in FEWER.get(name, contract.POINTS):
            continue
        group = f"{name}-{point}" if point in LONG else name
        yield pytest.param(name, point, marks=pytest.mark.xdist_group(group), id=f"{name}-{point}")


@pytest.mark.parametrize(("name", "point"), list(cases()))
def test_algorithm_keeps_the_contract(name, point):
    contract.POINTS[point](ALGORITHMS[name])


def test_check_runs_every_point(monkeypatch):
    seen = []
    monkeypatch.setattr(contract, "POINTS", {"a": seen.append, "b": seen.append})
    contract.check("algorithm")
    assert seen == ["algorithm", "algorithm"]


# -- algorithms that break it ---------------------------------------------------------------------------------

COUNTS = ALGORITHMS["popularity"]
MEDIAN = ALGORITHMS["median"]


def counting(change, **also):
    """Popularity whose upload goes through `change(counts, data)`."""

    def local_update(key, config, download, private, data):
        upload, private, measured = COUNTS.local_update(key, config, download, private, data)
        return upload._replace(counts=change(upload.counts, data)), private, measured

    return replace(COUNTS, local_update=local_update, **also)


def reads_padding():
    return counting(lambda counts, data: counts.at[data.items].add(1.0))


def reads_capacity():
    return counting(lambda counts, data: counts / data.items.shape[0])


def touches_other_rows():
    return counting(lambda counts, data: counts + 1.0)


def divides_by_no_data():
    return counting(lambda counts, data: counts / data.count)


def uploads_its_samples():
    class Upload(NamedTuple):
        history: jax.Array

    def local_update(key, config, download, private, data):
        return Upload(data.items.astype(jnp.float32)), private, {}

    return replace(COUNTS, local_update=local_update, server_update=lambda key, config, server, received: server)


def uploads(field, change):
    """Median that also uploads `change(user before, user after)`, under the name `field`."""
    upload_type = NamedTuple("Upload", [("items", jax.Array), (field, jax.Array)])

    def local_update(key, config, download, private, data):
        upload, after, measured = MEDIAN.local_update(key, config, download, private, data)
        return upload_type(upload.items, change(private.user, after.user)), after, measured

    return replace(MEDIAN, local_update=local_update)


def reads_who_is_absent():
    def server_update(key, config, server, received):
        return server._replace(items=server.items + jnp.mean(received.uploads.stack().items, 0))

    return replace(MEDIAN, server_update=server_update)


def changes_its_type():
    """Starts with a weakly typed table, which is of another type once something was added."""

    def init_server(key, config, catalogue):
        return COUNTS.init_server(key, config, catalogue)._replace(counts=jnp.full(catalogue.n_items, 0.0))

    return replace(COUNTS, init_server=init_server)


def draws_outside():
    draw = np.random.default_rng()

    def init_server(key, config, catalogue):
        return MEDIAN.init_server(jax.random.key(int(draw.integers(2**31))), config, catalogue)

    return replace(MEDIAN, init_server=init_server)


class Lenient(ClientConfig):
    model_config = ConfigDict(extra="ignore")


def named(algorithm, name):
    return replace(algorithm, info=replace(algorithm.info, name=name))


BROKEN = {
    "padding": ("compiled_round_equals_plain_loop", reads_padding, "differs"),
    "capacity": ("buckets_and_chunks_do_not_matter", reads_capacity, "differs"),
    "other rows": ("rows_equal_whole_tables", touches_other_rows, "differs"),
    "absent": ("absent_clients_are_untouched", reads_who_is_absent, "is not there"),
    "type": ("second_round_compiles_nothing", changes_its_type, "compiled"),
    "name": ("nothing_private_is_uploaded", lambda: uploads("user", jnp.multiply), "field of both"),
    "before": ("nothing_private_is_uploaded", lambda: uploads("more", lambda before, after: -before), "stands in"),
    "after": ("nothing_private_is_uploaded", lambda: uploads("more", lambda before, after: after.T), "trained"),
    "change": ("nothing_private_is_uploaded", lambda: uploads("more", lambda b, a: a - b), "change"),
    "random": ("same_seed_gives_same_bits", draws_outside, "same seed"),
    "nothing learned": ("learns_planted_structure", lambda: named(COUNTS, "counts"), "hr@10"),
    "leak": ("local_training_leaks_only_on_paper", lambda: named(COUNTS, "local"), "honest"),
    "settings": ("settings_round_trip", lambda: replace(COUNTS, Config=Lenient), "accepted"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_contract_notices(case):
    point, broken, sentence = BROKEN[case]
    with pytest.raises(AssertionError, match=sentence):
        contract.POINTS[point](broken())


def test_an_upload_as_long_as_the_history_does_not_run():
    with pytest.raises(TypeError, match=r"history has type float32\[1\]"):
        contract.ledger_counts_serialised_bytes(uploads_its_samples())


@pytest.mark.xdist_group("popularity")
def test_contract_notices_bytes_that_are_not_counted(monkeypatch):
    encode = codec.encode
    monkeypatch.setattr(codec, "encode", lambda message: encode(message) + b"header")
    with pytest.raises(AssertionError, match="a download has 886 bytes, the ledger counts 880"):
        contract.ledger_counts_serialised_bytes(COUNTS)


@pytest.mark.xdist_group("median")
def test_contract_notices_a_client_that_takes_its_neighbours_draws(monkeypatch):
    whole = runs.shuffled

    def numbers_stay(plan, seed):
        moved = whole(plan, seed)
        layouts = [
            replace(new, bucket=new.bucket._replace(client=old.bucket.client))
            for new, old in zip(moved.layouts, plan.layouts, strict=True)
        ]
        return replace(moved, layouts=layouts)

    monkeypatch.setattr(runs, "shuffled", numbers_stay)
    with pytest.raises(AssertionError, match="another order"):
        contract.order_of_clients_does_not_matter(MEDIAN)


@pytest.mark.xdist_group("median")
@pytest.mark.parametrize("point", ["resumed_equals_uninterrupted", "saved_model_recommends_the_same"])
def test_contract_notices_a_file_without_private_state(monkeypatch, point):
    unpacked = checkpoint._unpacked_state

    def forgetful(arrays, run, *rest):
        return replace(unpacked(arrays, run, *rest), stores=jax.tree.map(jnp.copy, run.state.stores))

    monkeypatch.setattr(checkpoint, "_unpacked_state", forgetful)
    with pytest.raises(AssertionError, match=r"resumed|recommends other"):
        contract.POINTS[point](MEDIAN)


def test_what_is_no_number_from_a_client_without_data_reaches_no_sum():
    contract.POINTS["client_without_data_changes_nothing"](divides_by_no_data())
