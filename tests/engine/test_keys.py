"""Every (stream, round, client) has draws of its own, and the same ones each time."""

import jax
import numpy as np

from coterie.algorithm import Algorithm
from coterie.engine import keys
from coterie.engine.reference import Reference
from coterie.engine.round import round_keys, streams
from coterie.testing import contract, median

ALGORITHM = Algorithm.from_module(median)


def test_every_place_in_every_stream_has_its_own_key():
    places = [
        keys.at(keys.stream(seed, name), number, client)
        for seed in (0, 1)
        for name in ("negatives", "training")
        for number in range(3)
        for client in range(4)
    ]
    data = np.stack([jax.random.key_data(place) for place in places])
    assert len(np.unique(data, axis=0)) == len(places)


def test_compiled_keys_are_the_plain_ones():
    drawn = round_keys(streams(5), 2, 4)
    for name in ("negatives", "training"):
        expected = [keys.at(keys.stream(5, name), 2, client) for client in range(4)]
        found = jax.random.key_data(getattr(drawn, name))
        np.testing.assert_array_equal(found, np.stack([jax.random.key_data(key) for key in expected]))


def test_host_draws_depend_on_all_of_their_place():
    def first(*place):
        return keys.host(*place).integers(2**62)

    assert first(0, "a", 1) == first(0, "a", 1)
    assert len({first(0, "a", 1), first(0, "a", 2), first(0, "b", 1), first(1, "a", 1)}) == 4


def test_negatives_are_drawn_anew_for_every_client_and_round():
    run = contract.simulation(ALGORITHM)
    reference = Reference(ALGORITHM, run.config, run.catalogue, run.problem)
    drawn = [
        np.asarray(reference.samples(number, client).items).reshape(-1, 5)[:, 1:]
        for number in range(2)
        for client in range(3)
    ]
    assert len({tuple(items.ravel()) for items in drawn}) == 6
