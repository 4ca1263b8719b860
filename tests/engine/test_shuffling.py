"""The keyed shuffle is a permutation, and close to a uniform one."""

from collections import Counter
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coterie.shuffling import WORDS, scale, shuffled

many = jax.jit(jax.vmap(shuffled, in_axes=(0, None, None)), static_argnums=2)


def words(seed, n):
    return jax.random.bits(jax.random.key(seed), (n, WORDS), jnp.uint32)


@given(st.integers(0, 2**31 - 1), st.integers(0, 70))
def test_real_positions_are_permuted_and_padding_stays(seed, count):
    order = np.asarray(many(words(seed, 1), jnp.int32(count), 70))[0]
    assert sorted(order[:count]) == list(range(count))
    assert order[count:].tolist() == list(range(count, 70))


def test_order_does_not_depend_on_padding():
    drawn = words(3, 5)
    np.testing.assert_array_equal(many(drawn, 13, 16)[:, :13], many(drawn, 13, 40)[:, :13])


def test_large_counts_are_permuted_too():
    order = np.asarray(many(words(0, 1), 100_003, 100_003))[0]
    np.testing.assert_array_equal(np.sort(order), np.arange(100_003))


def test_all_orders_of_four_are_about_equally_likely():
    drawn = Counter(map(tuple, np.asarray(many(words(1, 24_000), 4, 4)).tolist()))
    counts = [drawn[order] for order in permutations(range(4))]
    assert stats.chisquare(counts).pvalue > 1e-3


def test_every_place_goes_everywhere_about_equally_often():
    count, draws = 11, 22_000
    order = np.asarray(many(words(2, draws), count, 16))[:, :count]
    table = np.stack([np.bincount(order[:, place], minlength=count) for place in range(count)])
    assert stats.chisquare(table.ravel(), ddof=2 * count - 2).pvalue > 1e-3


def test_neighbours_part():
    """Consecutive samples, a positive and its negatives, must not stay together."""
    count, draws = 50, 4000
    order = np.asarray(many(words(4, draws), count, count)).astype(int)
    together = np.mean(np.abs(np.diff(order, axis=1)) == 1)
    assert abs(together - 2 / count) < 0.004


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31))
def test_scale_is_the_high_word_of_the_product(word, bound):
    assert int(scale(jnp.uint32(word), jnp.uint32(bound))) == word * bound >> 32
