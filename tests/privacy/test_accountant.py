"""Budgets, against numbers worked out by hand and an independent computation."""

import math
import sys

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from coterie.errors import CoterieError
from coterie.privacy.accountant import NO_BOUND, budget, report
from coterie.privacy.mechanisms import Privacy


def gaussian_epsilon(scale, moved, rounds, delta):
    """Solve delta(epsilon) of the Gaussian mechanism; the mean shift of k rounds together is sqrt(k) times that of one.

    The likelihood ratio of N(m, 1) and N(0, 1) exceeds e^epsilon beyond epsilon / m + m / 2, so that delta is the
    probability of that region under the one minus e^epsilon times that under the other.
    """
    m = math.sqrt(rounds) * moved / scale

    def excess(epsilon):
        edge = epsilon / m + m / 2
        return norm.sf(edge - m) - math.exp(epsilon + norm.logsf(edge)) - delta

    return brentq(excess, 0, 1000, xtol=1e-12)


def test_laplace_by_hand():
    """Clipped to 0.5, replaced data move an upload by 1; noise of scale 4 is a quarter a round."""
    spent = budget(Privacy(noise="laplace", noise_scale=4.0, clip=0.5), rounds=10)
    assert spent == (0.25, 2.5, 0.0)


@pytest.mark.parametrize(
    ("scale", "clip", "rounds", "delta"),
    [(10.0, 0.5, 1, 1e-5), (20.0, 1.0, 50, 1e-5), (3.0, 2.0, 7, 1e-3), (200.0, 1.0, 100, 1e-8)],
)
def test_gaussian_equals_an_independent_computation(scale, clip, rounds, delta):
    spent = budget(Privacy(noise="gaussian", noise_scale=scale, clip=clip, delta=delta), rounds)
    assert spent.epsilon == pytest.approx(gaussian_epsilon(scale, 2 * clip, rounds, delta), rel=1e-6)
    assert spent.epsilon_per_round == pytest.approx(gaussian_epsilon(scale, 2 * clip, 1, delta), rel=1e-6)
    assert spent.delta == delta


def test_gaussian_is_below_what_renyi_divergences_give():
    """k rounds have the divergence a k m^2 / 2 of order a; its usual conversion is a little loose, never below."""
    m, rounds, delta = 0.1, 50, 1e-5
    orders = [1 + step / 100 for step in range(1, 10000)]
    loose = min(order * rounds * m**2 / 2 + math.log(1 / delta) / (order - 1) for order in orders)
    spent = budget(Privacy(noise="gaussian", noise_scale=20.0, clip=1.0, delta=delta), rounds)
    assert 0.8 * loose < spent.epsilon < loose


def test_one_interaction_has_the_bound_of_a_client_and_says_what_it_is_about():
    given = {"noise": "laplace", "noise_scale": 1.0, "clip": 1.0}
    client, interaction = (report(Privacy(**given, privacy_unit=unit), 3) for unit in ("client", "interaction"))
    assert client["epsilon"] == interaction["epsilon"] == 6.0
    assert "all data of one client" in client["guarantee"] and "one interaction" in interaction["guarantee"]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_there_is_no_budget_without_clipping(noise):
    said = report(Privacy(noise=noise, noise_scale=0.1), 5)
    assert said["guarantee"] == NO_BOUND
    assert not any("epsilon" in key or key == "delta" for key in said)
    assert budget(Privacy(), 5) is None and report(Privacy(), 5) == {"mechanism": "none"}


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(CoterieError, match=r"pip install 'coterie\[privacy\]'"):
        budget(Privacy(noise="gaussian", noise_scale=1.0, clip=1.0), 1)
    assert budget(Privacy(noise="laplace", noise_scale=1.0, clip=1.0), 1).epsilon == 2.0
