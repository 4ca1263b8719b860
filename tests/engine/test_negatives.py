"""Negatives come uniformly from exactly the pool, and each positive has its own distinct ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coterie.data import negatives

KNOWN = [np.array([0, 3, 4, 9]), np.array([2]), np.array([], int)]
ITEMS = 12

draw = jax.jit(negatives.draw, static_argnums=(1, 2, 9))
distinct = jax.jit(negatives.distinct)
outside = jax.jit(negatives.outside)


def sampled(key, each=3, rows=(0, 0, 1, 2, 0), padding=0):
    """Samples of a client with three users; `padding` rows follow the real ones."""
    users = jnp.asarray([*rows, *[0] * padding], jnp.int32)
    items = jnp.where(jnp.arange(len(users)) < len(rows), users + 5, 0)
    gaps = np.concatenate([known - np.arange(len(known)) for known in KNOWN])
    bounds = np.concatenate([[0], np.cumsum([len(known) for known in KNOWN])])
    labels = jnp.ones(len(users)).at[len(rows) :].set(0)
    return draw(
        key, each, ITEMS, users, items, labels, jnp.int32(len(rows)),
        jnp.asarray(gaps, jnp.int32), jnp.asarray(bounds, jnp.int32),
    )  # fmt: skip


def test_each_interaction_is_followed_by_its_own_negatives():
    data = sampled(jax.random.key(0))
    users, items = (np.asarray(column).reshape(5, 4) for column in (data.users, data.items))
    assert data.count == data.most == 20
    np.testing.assert_array_equal(users, np.repeat([[0], [0], [1], [2], [0]], 4, axis=1))
    np.testing.assert_array_equal(items[:, 0], [5, 5, 6, 7, 5])
    np.testing.assert_array_equal(np.asarray(data.labels).reshape(5, 4), np.tile([1, 0, 0, 0], (5, 1)))
    for row in items[:, 1:]:
        assert len(set(row)) == 3


def test_pool_is_everything_but_the_known_items_and_equally_likely():
    keys = jax.random.split(jax.random.key(1), 4000)
    items = np.asarray(jax.jit(jax.vmap(lambda key: sampled(key).items))(keys)).reshape(-1, 5, 4)
    for row, user in enumerate([0, 0, 1, 2, 0]):
        pool = np.setdiff1d(np.arange(ITEMS), KNOWN[user])
        for column in (1, 2, 3):
            counts = np.bincount(items[:, row, column], minlength=ITEMS)
            assert set(np.flatnonzero(counts)) == set(pool)
            assert stats.chisquare(counts[pool]).pvalue > 1e-4


def test_draws_do_not_depend_on_padding():
    key = jax.random.key(2)
    short, long = sampled(key), sampled(key, padding=7)
    assert int(long.count) == 20
    np.testing.assert_array_equal(long.items[:20], short.items)
    np.testing.assert_array_equal(long.labels[:20], short.labels)
    assert not long.labels[20:].any()


def test_no_negatives_leaves_the_interactions():
    data = sampled(jax.random.key(0), each=0)
    np.testing.assert_array_equal(data.items, [5, 5, 6, 7, 5])
    assert int(data.count) == 5


@given(st.sets(st.integers(0, 29)))
def test_outside_counts_through_what_is_left(known):
    ordered = np.array(sorted(known), np.int32)
    gaps = np.zeros(40, np.int32)
    gaps[7 : 7 + len(known)] = ordered - np.arange(len(known))
    found = outside(jnp.arange(40), jnp.asarray(gaps), jnp.int32(7), jnp.int32(7 + len(known)))
    left = np.setdiff1d(np.arange(40 + len(known)), ordered)
    np.testing.assert_array_equal(found, left)


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(4, 50), min_size=6, max_size=6))
def test_distinct_numbers_of_the_pool(seed, pools):
    words = jax.random.bits(jax.random.key(seed), (len(pools), 4), jnp.uint32)
    numbers = np.asarray(distinct(words, jnp.asarray(pools)))
    for pool, row in zip(pools, numbers, strict=True):
        assert len(set(row)) == 4 and row.min() >= 0 and row.max() < pool


def test_a_pool_of_just_enough_is_drawn_whole_in_any_order():
    words = jax.random.bits(jax.random.key(5), (6000, 3), jnp.uint32)
    numbers = np.asarray(distinct(words, jnp.full(6000, 3)))
    assert (np.sort(numbers, axis=1) == np.arange(3)).all()
    orders = np.unique(numbers, axis=0, return_counts=True)[1]
    assert len(orders) == 6
    assert stats.chisquare(orders).pvalue > 1e-3


@pytest.mark.parametrize("left", [1, 2])
def test_a_pool_smaller_than_the_negatives_is_never_left(left):
    known = np.arange(ITEMS - left) + 1
    one = jnp.zeros(1, jnp.int32)
    bounds = jnp.asarray([0, len(known)], jnp.int32)
    gaps = jnp.asarray(known - np.arange(len(known)), jnp.int32)
    for seed in range(20):
        data = draw(jax.random.key(seed), 4, ITEMS, one, one + 1, jnp.ones(1), jnp.int32(1), gaps, bounds)
        assert set(data.items[1:].tolist()) <= set(range(ITEMS)) - set(known.tolist())


# -- virtual ratings ------------------------------------------------------------------------------------------

RATED = np.arange(20)


def with_virtual(key, virtual=0.4, count=20, padding=0, known=RATED, items=100, each=2):
    """Samples of a client with one user who knows the items `known` and has `count` interactions."""
    column = jnp.zeros(count + padding, jnp.int32)
    rated = column.at[:count].set(known[:count])
    return draw(
        key, each, items, column, rated, jnp.ones(len(column)), jnp.int32(count),
        jnp.asarray(known - np.arange(len(known)), jnp.int32), jnp.asarray([0, len(known)], jnp.int32), virtual,
    )  # fmt: skip


def test_virtual_ratings_follow_the_real_samples():
    data = with_virtual(jax.random.key(0))
    plain = with_virtual(jax.random.key(0), virtual=0.0)
    assert data.count == data.most == negatives.n_samples(20, 2, 0.4) == 60 + 8
    for name in ("users", "items", "labels"):
        np.testing.assert_array_equal(getattr(data, name)[:60], getattr(plain, name))
        assert getattr(data, name).shape == (68,)


def test_virtual_items_are_distinct_and_unknown():
    for seed in range(50):
        drawn = np.asarray(with_virtual(jax.random.key(seed), virtual=3.0).items[60:])
        assert len(drawn) == len(set(drawn)) == 60
        assert drawn.min() >= 20 and drawn.max() < 100


def test_virtual_items_are_equally_likely_and_half_of_them_liked():
    keys = jax.random.split(jax.random.key(1), 2000)
    data = jax.jit(jax.vmap(with_virtual))(keys)
    counts = np.bincount(np.asarray(data.items[:, 60:]).ravel(), minlength=100)
    assert stats.chisquare(counts[20:]).pvalue > 1e-4
    labels = np.asarray(data.labels[:, 60:])
    assert set(labels.ravel()) == {0, 1} and abs(labels.mean() - 0.5) < 0.02


def test_virtual_ratings_are_drawn_anew_with_every_key():
    first, second = (with_virtual(jax.random.key(seed)) for seed in (0, 1))
    assert (first.items[60:] != second.items[60:]).any() and (first.labels[60:] != second.labels[60:]).any()


def test_virtual_ratings_do_not_depend_on_padding():
    key = jax.random.key(2)
    short, long = with_virtual(key), with_virtual(key, padding=13)
    assert short.count == long.count == 68 and len(long.items) == 33 * 3 + 14
    for name in ("users", "items", "labels"):
        np.testing.assert_array_equal(getattr(long, name)[:68], getattr(short, name))


@pytest.mark.parametrize("virtual", [0.2, 1.0, 2.4])
def test_virtual_ratings_go_to_users_in_proportion(virtual):
    # Twelve items: user 0 knows four and has 3 of 5 interactions, users 1 and 2 have one each.
    keys = jax.random.split(jax.random.key(3), 500)
    users, drawn = (np.asarray(column)[:, 20:] for column in jax.jit(jax.vmap(lambda k: several(k, virtual)))(keys))
    assert users.shape[1] == round(virtual * 5)
    np.testing.assert_allclose(np.bincount(users.ravel()) / users.size, [0.6, 0.2, 0.2], atol=0.04)
    for user, known in enumerate(KNOWN):
        for row, items in zip(users, drawn, strict=True):
            mine = items[row == user]
            assert len(mine) == len(set(mine)) and not np.isin(mine, known).any()
            assert mine.size == 0 or (mine.min() >= 0 and mine.max() < ITEMS)


def several(key, virtual):
    gaps = np.concatenate([known - np.arange(len(known)) for known in KNOWN])
    bounds = np.concatenate([[0], np.cumsum([len(known) for known in KNOWN])])
    users = jnp.asarray([0, 0, 1, 2, 0])
    data = draw(
        key, 3, ITEMS, users, users + 5, jnp.ones(5), jnp.int32(5),
        jnp.asarray(gaps, jnp.int32), jnp.asarray(bounds, jnp.int32), virtual,
    )  # fmt: skip
    return data.users, data.items


def test_room_for_more_users_changes_no_virtual_rating():
    key, column, gaps = jax.random.key(4), jnp.zeros(10, jnp.int32), jnp.asarray([2, 4], jnp.int32)
    one, three = (
        draw(key, 1, 30, column, column, jnp.ones(10), jnp.int32(10), gaps, jnp.asarray(bounds, jnp.int32), 0.5)
        for bounds in ([0, 2], [0, 2, 2, 2])
    )
    np.testing.assert_array_equal(one.items, three.items)


def test_a_pool_that_is_used_up_starts_again():
    drawn = np.asarray(with_virtual(jax.random.key(5), items=24).items[60:])
    np.testing.assert_array_equal(np.bincount(drawn, minlength=24)[20:], 2)


@pytest.mark.parametrize("padding", [1, 8])
def test_without_interactions_there_are_no_virtual_ratings(padding):
    data = with_virtual(jax.random.key(6), count=0, padding=padding)
    assert data.count == 0 and not data.real.any()


@given(st.integers(0, 5000), st.integers(0, 5), st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 1.0, 1.7]))
def test_number_of_samples_fits_the_room(count, each, virtual):
    total = int(negatives.n_samples(jnp.int32(count), each, virtual))
    assert abs(total - count * (1 + each) - virtual * count) <= 0.5 + 1e-3
    assert total <= count * (1 + each) + np.ceil(virtual * count)
