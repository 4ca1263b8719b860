"""Every training row stands in exactly one place, with its own user, item and label, and little is padding."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.data import synthetic
from coterie.engine.plan import LocalUsers, capacities, enough_buckets, make_plan
from coterie.engine.simulate import hide
from coterie.evaluation.protocols import ProtocolOptions, prepare
from coterie.testing import toys

OPTIONS = ProtocolOptions(clients=7, platforms=4)


@pytest.fixture(scope="module")
def data():
    return synthetic.make(users=40, items=320, interactions_per_user=15, seed=2)


@pytest.mark.parametrize("name", ["loo99", "groups", "rating-dirichlet", "ratio-full"])
@pytest.mark.parametrize("buckets", [1, 3])
def test_every_training_row_is_in_one_place(data, name, buckets):
    problem = prepare(data, name, seed=1, options=OPTIONS)
    plan = make_plan(problem, buckets=buckets)
    local = LocalUsers.of(problem).users
    found = []
    for layout in plan.layouts:
        rows = layout.bucket
        fields = (rows.client, rows.user_numbers, rows.users, rows.items, rows.labels, rows.count)
        clients, numbers, users, items, labels, count = (np.asarray(leaf) for leaf in fields)
        for row, client in enumerate(clients):
            real = slice(0, count[row])
            names = local[client][users[row, real]]
            np.testing.assert_array_equal(numbers[row, users[row, real]], names)
            found += [(client, *triple) for triple in zip(names, items[row, real], labels[row, real], strict=True)]
            assert not items[row, count[row] :].any() and not labels[row, count[row] :].any()
    ratings = data.ratings[problem.train] if name == "rating-dirichlet" else np.ones(len(problem.train))
    rows = zip(problem.client, data.users[problem.train], data.items[problem.train], ratings, strict=True)
    assert sorted(found) == sorted(rows)


@pytest.mark.parametrize("name", ["loo99", "groups", "rating-dirichlet"])
def test_every_client_is_where_the_plan_says_and_every_user_answers_once(data, name):
    problem = prepare(data, name, seed=1, options=OPTIONS)
    plan = make_plan(problem, buckets=3)
    for client in range(problem.n_clients):
        layout = plan.layouts[plan.bucket_of[client]]
        assert layout.bucket.client[plan.row_of[client]] == client
    answering = np.concatenate([layout.user_numbers[layout.user_numbers >= 0] for layout in plan.layouts])
    assert sorted(answering) == list(range(data.n_users))
    for layout in plan.layouts:
        row, place = np.nonzero(layout.user_numbers >= 0)
        users = layout.user_numbers[row, place]
        np.testing.assert_array_equal(problem.home[users], np.asarray(layout.bucket.client)[row])
        for part, held in ((layout.bucket.validation, problem.validation), (layout.bucket.test, problem.test)):
            for r, p, user in zip(row, place, users, strict=True):
                count = int(part.count[r, p])
                np.testing.assert_array_equal(part.items[r, p, :count], held.items[user])
                if held.candidates is not None:
                    np.testing.assert_array_equal(part.candidates[r, p], held.candidates[user])
        away = layout.user_numbers < 0
        assert not np.asarray(layout.bucket.test.count)[away].any(), "a user is asked at home only"


def test_platforms_share_users_and_groups_do_not(data):
    platforms = prepare(data, "rating-dirichlet", seed=1, options=OPTIONS)
    assert LocalUsers.of(platforms).users.lengths.sum() > data.n_users
    groups = prepare(data, "groups", seed=1, options=OPTIONS)
    assert LocalUsers.of(groups).users.lengths.tolist() == [5, 5, 5, 5, 5, 5, 10]


@pytest.mark.parametrize("name", ["loo99", "loo99-paper", "groups"])
def test_gaps_describe_the_items_never_drawn(data, name):
    problem = prepare(data, name, seed=1, options=OPTIONS)
    local = LocalUsers.of(problem).users
    for layout in make_plan(problem, buckets=2).layouts:
        gaps, bounds = np.asarray(layout.bucket.gaps), np.asarray(layout.bucket.bounds)
        for row, client in enumerate(np.asarray(layout.bucket.client)):
            for place, user in enumerate(local[client]):
                start, stop = bounds[row, place : place + 2]
                known = gaps[row, start:stop] + np.arange(stop - start)
                np.testing.assert_array_equal(known, problem.never_negative[user])


def test_seen_items_are_those_of_training(data):
    problem = prepare(data, "groups", seed=1, options=OPTIONS)
    trained = problem.masked("validation")
    for layout in make_plan(problem, buckets=2).layouts:
        for numbers, lists in zip(layout.user_numbers, np.asarray(layout.bucket.seen), strict=True):
            for user, items in zip(numbers, lists, strict=True):
                if user >= 0:
                    assert sorted(items[items < data.n_items]) == trained[user].tolist()


def test_hidden_items_are_laid_out_by_local_user(data):
    problem = prepare(data, "groups", seed=1, options=OPTIONS)
    lists = problem.masked("test")
    for layout in make_plan(problem, buckets=2).layouts:
        hidden = np.asarray(hide(layout, lists))
        for numbers, rows in zip(layout.user_numbers, hidden, strict=True):
            for user, items in zip(numbers, rows, strict=True):
                if user >= 0:
                    assert sorted(items[: lists.lengths[user]]) == lists[user].tolist()
                    assert (items[lists.lengths[user] :] >= data.n_items).all()


def test_clients_without_data_have_a_place():
    problem = toys.problem()
    empty = problem.n_clients - 1
    plan = make_plan(problem, buckets=2)
    layout = plan.layouts[plan.bucket_of[empty]]
    assert layout.bucket.count[plan.row_of[empty]] == 0


def test_chunks_are_as_large_as_the_cache_and_the_cohort_allow():
    problem = toys.problem()
    assert [layout.chunk for layout in make_plan(problem, buckets=1, chunk_size=48).layouts] == [4]
    assert [layout.chunk for layout in make_plan(problem, buckets=1, chunk_size=1).layouts] == [1]
    assert [layout.chunk for layout in make_plan(problem, buckets=1, cohort=3).layouts] == [3]
    assert [layout.chunk for layout in make_plan(problem, buckets=2).layouts] == [9, 7]


@given(st.lists(st.integers(0, 15), min_size=1, max_size=12), st.integers(1, 4))
def test_capacities_waste_the_least(sizes, most):
    """Up to 16 sizes are not rounded, so all choices can be tried."""
    sizes = np.array(sizes)
    chosen = capacities(sizes, most)
    assert len(chosen) <= most and chosen == sorted(chosen) and chosen[-1] >= sizes.max()
    values = np.unique(np.maximum(sizes, 1))
    choices = (
        np.append(some, values[-1])
        for count in range(min(most, len(values)))
        for some in combinations(values[:-1], count)
    )
    assert padded(sizes, np.array(chosen)) == min(padded(sizes, np.array(choice, int)) for choice in choices)


def padded(sizes, limits):
    return int(limits[np.searchsorted(limits, np.maximum(sizes, 1))].sum())


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=50))
def test_capacities_hold_every_size(sizes):
    chosen = capacities(np.array(sizes), 4)
    assert chosen[-1] >= max(sizes)
    assert chosen[-1] <= max(1, 1.13 * max(sizes))


@pytest.mark.parametrize(
    ("interactions", "clients", "buckets"),
    [(0, 900, 1), (19_999, 900, 1), (20_000, 900, 2), (98_000, 900, 4), (10**7, 900, 4), (10**7, 5, 2), (10**7, 1, 1)],
)
def test_small_data_and_few_clients_are_not_worth_many_buckets(interactions, clients, buckets):
    assert enough_buckets(interactions, clients) == buckets
