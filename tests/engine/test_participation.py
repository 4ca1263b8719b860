"""Who takes part: as many as asked for, everybody once in a global epoch, and drop-outs by their share."""

import numpy as np
import pytest

from coterie.engine.participation import Participation, expected, steps


def test_all_is_everybody():
    (step,) = steps(Participation(), 0, 3, 10)
    assert step.chosen.tolist() == step.arrived.tolist() == list(range(10))


@pytest.mark.parametrize(("fraction", "count"), [(0.25, 5), (0.01, 1), (1.0, 20)])
def test_fraction_takes_its_share(fraction, count):
    settings = Participation(participation="fraction", fraction=fraction)
    (step,) = steps(settings, 0, 0, 20)
    assert len(step.chosen) == len(np.unique(step.chosen)) == count == expected(settings, 20)
    assert (np.diff(step.chosen) > 0).all()


def test_fraction_is_drawn_anew_each_round_and_by_the_seed_alone():
    settings = Participation(participation="fraction", fraction=0.5)
    chosen = [steps(settings, 7, number, 40)[0].chosen.tolist() for number in range(3)]
    assert chosen[0] != chosen[1] != chosen[2]
    assert steps(settings, 7, 1, 40)[0].chosen.tolist() == chosen[1]
    assert steps(settings, 8, 1, 40)[0].chosen.tolist() != chosen[1]


def test_everybody_is_as_likely():
    settings = Participation(participation="fraction", fraction=0.3)
    taken = sum(np.isin(np.arange(10), steps(settings, 1, number, 10)[0].chosen) for number in range(1000))
    assert (np.abs(taken - 300) < 75).all()


def test_batches_are_a_partition_in_random_order():
    settings = Participation(participation="batches", clients_per_step=4)
    cohorts = [step.chosen for step in steps(settings, 0, 0, 10)]
    assert [len(cohort) for cohort in cohorts] == [4, 4, 2]
    assert sorted(np.concatenate(cohorts)) == list(range(10))
    assert np.concatenate(cohorts).tolist() != list(range(10))
    assert expected(settings, 10) == 4 and expected(settings, 3) == 3


@pytest.mark.parametrize("kind", ["all", "fraction", "batches"])
def test_dropouts_are_a_share_of_the_chosen(kind):
    settings = Participation(participation=kind, fraction=0.8, clients_per_step=100, dropout=0.25)
    made = [step for number in range(40) for step in steps(settings, 0, number, 500)]
    chosen, arrived = (sum(len(getattr(step, name)) for step in made) for name in ("chosen", "arrived"))
    assert all(np.isin(step.arrived, step.chosen).all() for step in made)
    assert abs(arrived / chosen - 0.75) < 0.015
