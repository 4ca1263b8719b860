"""Every protocol makes a problem that keeps its promises; its two forms differ in nothing but what they say."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from coterie.data import synthetic
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError
from coterie.evaluation import protocols
from coterie.evaluation.protocols import ProtocolOptions, prepare

HONEST = [name for name in protocols.names() if not name.endswith("-paper")]
RANKING = [name for name in HONEST if protocols.get(name).task == "ranking"]
RATING = [name for name in HONEST if name not in RANKING]


@pytest.fixture(scope="module")
def data():
    made = synthetic.make(users=120, items=500, interactions_per_user=25, seed=1)
    parts = np.random.default_rng(0).choice(["train", "validation", "test"], size=len(made), p=[0.7, 0.1, 0.2])
    return replace(made, split=parts, platforms=made.items % 3, platform_ids=("a", "b", "c"))


def table(users, items, n_items, n_users=None):
    """An interactions table without times, one row per (user, item)."""
    users, items = np.asarray(users, np.int32), np.asarray(items, np.int32)
    count = int(users.max()) + 1 if n_users is None else n_users
    names = tuple(f"u{i}" for i in range(count)), tuple(f"i{i}" for i in range(n_items))
    return Interactions("hand-made", users, items, np.ones(len(users), np.float32), None, *names)


def every_user_takes(first, n_users, n_items):
    """A table in which all users have touched items 0 .. first - 1."""
    return table(np.repeat(np.arange(n_users), first), np.tile(np.arange(first), n_users), n_items)


@pytest.mark.parametrize("name", protocols.names())
def test_every_protocol_prepares_a_whole_problem(data, name):
    problem = prepare(data, name)
    assert problem.protocol.name == name
    parts = (
        [problem.test]
        if problem.protocol.leaks and problem.protocol.task == "rating"
        else [problem.validation, problem.test]
    )
    held_out = [(u, i) for part in parts for u, i in pairs(part.items)]
    train = list(zip(data.users[problem.train], data.items[problem.train], strict=True))
    assert sorted(train + held_out) == sorted(zip(data.users, data.items, strict=True))
    assert problem.client.shape == problem.train.shape
    assert problem.home.shape == (data.n_users,)
    assert min(problem.client.min(), problem.home.min()) >= 0
    assert max(problem.client.max(), problem.home.max()) < problem.n_clients
    for lists in (problem.never_negative, problem.validation.items, problem.test.items):
        assert len(lists) == data.n_users
        for user in range(data.n_users):
            assert (np.diff(lists[user]) > 0).all(), "sorted and without repeats"


@pytest.mark.parametrize("name", RATING)
def test_the_published_rating_form_trains_on_all_that_is_not_tested(data, name):
    honest, published = prepare(data, name), prepare(data, f"{name}-paper")
    assert pairs(published.test.items) == pairs(honest.test.items)
    assert pairs(published.validation.items) == pairs(published.test.items)
    assert set(honest.train) < set(published.train)
    assert len(published.train) + len(pairs(published.test.items)) == len(data)


def pairs(lists):
    return [(u, i) for u in range(len(lists)) for i in lists[u]]


@pytest.mark.parametrize("name", RANKING)
def test_the_forms_differ_only_in_the_pool_of_training_negatives(data, name):
    honest, paper = prepare(data, name, seed=3), prepare(data, f"{name}-paper", seed=3)
    assert (honest.protocol.leaks, paper.protocol.leaks) == (False, True)
    np.testing.assert_array_equal(honest.train, paper.train)
    np.testing.assert_array_equal(honest.client, paper.client)
    for part in ("validation", "test"):
        np.testing.assert_array_equal(honest.held_out(part).items.values, paper.held_out(part).items.values)
        np.testing.assert_equal(honest.held_out(part).candidates, paper.held_out(part).candidates)


@pytest.mark.parametrize("name", RANKING)
def test_the_honest_pool_holds_the_held_out_items_and_the_published_one_does_not(data, name):
    honest, paper = prepare(data, name).never_negative, prepare(data, f"{name}-paper").never_negative
    problem = prepare(data, name)
    for user in range(data.n_users):
        trained = set(data.items[problem.train[data.users[problem.train] == user]])
        held_out = {*problem.validation.items[user], *problem.test.items[user]}
        assert set(honest[user]) == trained
        assert set(paper[user]) == trained | held_out
        assert not trained & held_out


def test_candidates_are_distinct_items_that_the_user_never_touched(data):
    problem = prepare(data, "loo99")
    for user in range(data.n_users):
        drawn = [*problem.validation.candidates[user], *problem.test.candidates[user]]
        assert len(drawn) == len(set(drawn)) == 198
        assert not set(drawn) & set(data.items[data.users == user])
        assert 0 <= min(drawn) <= max(drawn) < data.n_items


def test_candidates_follow_the_seed(data):
    first, again, other = (prepare(data, "loo99", seed=seed).test.candidates for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_every_unseen_item_is_equally_likely_in_either_half():
    n_users, known, n_items = 2000, 3, 260
    problem = prepare(every_user_takes(known, n_users, n_items), "loo99")
    chance = 99 / (n_items - known)
    deviation = np.sqrt(n_users * chance * (1 - chance))
    for part in (problem.validation, problem.test):
        counts = np.bincount(part.candidates.ravel(), minlength=n_items)
        assert (counts[:known] == 0).all()
        assert np.abs(counts[known:] - n_users * chance).max() < 4.5 * deviation


def test_candidates_take_every_unseen_item_when_there_are_just_enough():
    problem = prepare(every_user_takes(4, 5, 202), "loo99")
    drawn = np.hstack([problem.validation.candidates, problem.test.candidates])
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(4, 202), (5, 1)))


@pytest.mark.parametrize("suffix", ["", "-paper"])
def test_too_few_unseen_items_point_to_the_full_ranking(suffix):
    with pytest.raises(CoterieError, match=f"use loo-full{suffix}, which ranks all items"):
        prepare(every_user_takes(4, 5, 201), f"loo99{suffix}")


def test_masks_grow_from_validation_to_test(data):
    problem = prepare(data, "ratio-full")
    for user in range(data.n_users):
        trained = data.items[problem.train[data.users[problem.train] == user]].tolist()
        assert problem.masked("validation")[user].tolist() == sorted(trained)
        seen = sorted(trained + problem.validation.items[user].tolist())
        assert problem.masked("test")[user].tolist() == seen


def test_held_out_ratings_belong_to_their_items(data):
    problem = prepare(data, "rating-dirichlet")
    rating = {(u, i): r for u, i, r in zip(data.users, data.items, data.ratings, strict=True)}
    for (user, item), value in zip(pairs(problem.test.items), [r for _, r in pairs(problem.test.ratings)], strict=True):
        assert rating[user, item] == value


def test_options_set_the_clients(data):
    options = ProtocolOptions(clients=7, platforms=3)
    assert prepare(data, "groups", options=options).n_clients == 7
    assert prepare(data, "rating-dirichlet", options=options).n_clients == 3
    assert prepare(data, "loo99", options=options).n_clients == data.n_users


def test_unknown_options_and_names_are_refused():
    with pytest.raises(ValidationError):
        ProtocolOptions(client=7)
    with pytest.raises(CoterieError, match="did you mean 'loo99'"):
        protocols.get("loo-99")


def test_a_negative_seed_is_refused(data):
    with pytest.raises(CoterieError, match="seed"):
        prepare(data, "loo99", seed=-1)


def test_a_user_with_every_item_leaves_no_negative_to_draw():
    everything = every_user_takes(6, 2, 6)
    assert prepare(everything, "loo-full").never_negative.lengths.tolist() == [4, 4]
    with pytest.raises(CoterieError, match="no item left to draw"):
        prepare(everything, "loo-full-paper")


def test_repeated_pairs_are_refused_where_they_would_leak():
    repeated = table([0, 0, 0, 0], [1, 2, 3, 1], n_items=9)
    with pytest.raises(CoterieError, match=r"1 repeated \(user, item\)"):
        prepare(repeated, "loo-full")


def test_misclicks_are_added_to_training_alone():
    data = synthetic.make(users=20, items=120, interactions_per_user=15)
    plain, noisy = (prepare(data, "groups", options=ProtocolOptions(clients=4, misclicks=m)) for m in (0.0, 0.2))
    old, new = plain.train, noisy.train[len(plain.train) :]
    np.testing.assert_array_equal(noisy.train[: len(old)], old)
    counts = np.bincount(data.users[old], minlength=20)
    np.testing.assert_array_equal(np.bincount(noisy.data.users[new], minlength=20), np.round(0.2 * counts))
    np.testing.assert_array_equal(noisy.test.items.values, plain.test.items.values)
    pairs = set(zip(noisy.data.users.tolist(), noisy.data.items.tolist(), strict=True))
    assert len(pairs) == len(noisy.data), "a misclick is on an item that the user has not, and on each once"
    assert any("random items" in note for note in noisy.data.notes)
    np.testing.assert_array_equal(noisy.client[: len(old)], plain.client)


def test_misclicks_of_the_unseen_fall_on_all_users_alike():
    data = synthetic.make(users=40, items=120, communities=4, interactions_per_user=12)
    many = {"clients": 4, "misclicks": 0.1, "misclicks_of": "unseen"}
    plain, noisy = (prepare(data, "groups", options=ProtocolOptions(**one)) for one in ({"clients": 4}, many))
    added = np.bincount(noisy.data.users[noisy.train], minlength=40) - np.bincount(
        data.users[plain.train], minlength=40
    )
    touched = np.bincount(data.users, minlength=40)
    np.testing.assert_array_equal(added, np.round(0.1 * (120 - touched)))


def test_misclicks_before_the_split_are_held_out_too():
    data = synthetic.make(users=40, items=120, communities=4, interactions_per_user=12)
    options = {"clients": 4, "misclicks": 0.5, "misclicks_in": "data"}
    plain, noisy = (prepare(data, "groups", options=ProtocolOptions(**one)) for one in ({"clients": 4}, options))
    assert len(noisy.data) == len(data) + np.round(0.5 * np.bincount(data.users, minlength=40)).sum()
    touched = set(zip(data.users.tolist(), data.items.tolist(), strict=True))
    held_out = {(user, item) for user in range(40) for item in noisy.test.items[user].tolist()}
    assert 0.2 < len(held_out - touched) / len(held_out) < 0.5 and len(held_out) > 1.3 * len(plain.test.items.values)


def test_misclicks_are_no_ratings(data):
    with pytest.raises(CoterieError, match="misclicks adds likes"):
        prepare(data, "rating-platforms", options=ProtocolOptions(misclicks=0.1))
