"""Intervals and tests on cases whose answer is known."""

import numpy as np
import pytest
from scipy import stats

from coterie.errors import CoterieError
from coterie.evaluation import significance
from coterie.evaluation.significance import bootstrap_interval, holm, interval_over_seeds, paired_test


def test_bootstrap_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(1).normal(0.3, 1.0, 2000)
    interval = bootstrap_interval(values)
    reach = 1.96 * values.std() / np.sqrt(len(values))
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - reach, abs=0.08 * reach)
    assert interval.high == pytest.approx(values.mean() + reach, abs=0.08 * reach)


def test_a_higher_level_is_wider_and_a_seed_repeats():
    values = np.random.default_rng(2).random(200)
    narrow, wide = bootstrap_interval(values, level=0.8), bootstrap_interval(values, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)


def test_bootstrap_leaves_out_users_without_a_value():
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    assert bootstrap_interval(np.append(values, np.nan)) == bootstrap_interval(values)


def test_small_blocks_make_all_the_draws(monkeypatch):
    values = np.random.default_rng(3).random(50)
    whole = bootstrap_interval(values)
    monkeypatch.setattr(significance, "_BLOCK_ENTRIES", 50 * 7)
    assert sum(significance._blocks(2000, 50)) == 2000
    assert bootstrap_interval(values).low == pytest.approx(whole.low)


def test_sign_flips_of_few_users_give_the_exact_probability():
    # Only the two of 2^3 sign patterns with equal signs reach |sum| = 6: the exact p-value is 1/4.
    result = paired_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], draws=40_000)
    assert result.difference == 2.0
    assert result.p_value == pytest.approx(0.25, abs=0.01)


def test_paired_test_agrees_with_the_t_test_on_normal_differences():
    rng = np.random.default_rng(4)
    b = rng.random(300)
    a = b + rng.normal(0.02, 0.2, 300)
    assert paired_test(a, b).p_value == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)


def test_p_value_is_uniform_when_nothing_differs():
    rng = np.random.default_rng(5)
    p_values = [paired_test(rng.random(40), rng.random(40), draws=400, seed=i).p_value for i in range(300)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_a_plain_difference_has_the_smallest_possible_p_value():
    assert paired_test(np.full(100, 0.6), np.full(100, 0.5), draws=999).p_value == 1 / 1000


def test_equal_methods_have_p_value_one():
    assert paired_test([0.1, 0.5, np.nan], [0.1, 0.5, np.nan]).p_value == 1.0


def test_a_paired_test_refuses_different_users():
    with pytest.raises(CoterieError, match="same users"):
        paired_test([0.1, np.nan], [0.1, 0.2])
    with pytest.raises(CoterieError, match="same users"):
        paired_test([0.1], [0.1, 0.2])


def test_interval_over_seeds_by_hand():
    # Mean 2, s = 1, t_2(0.975) = 4.302653.
    interval = interval_over_seeds([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.high - 2.0 == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert 2.0 - interval.low == pytest.approx(interval.high - 2.0)


def test_one_seed_gives_no_interval():
    interval = interval_over_seeds([0.5])
    assert interval.mean == 0.5
    assert np.isnan([interval.low, interval.high]).all()


def test_holm_by_hand_in_any_order_and_capped():
    # Ascending: 0.01 * 4, then 0.02 * 3 = 0.06, 0.03 * 2 = 0.06, and 0.9 * 1.
    np.testing.assert_allclose(holm([0.03, 0.9, 0.01, 0.02]), [0.06, 0.9, 0.04, 0.06])
    np.testing.assert_allclose(holm([0.6, 0.7]), [1.0, 1.0])


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_outside_zero_and_one_is_an_error(level):
    with pytest.raises(CoterieError, match="level"):
        bootstrap_interval([0.1, 0.2], level=level)


def test_no_values_are_an_error():
    with pytest.raises(CoterieError, match="no value"):
        interval_over_seeds([np.nan])
