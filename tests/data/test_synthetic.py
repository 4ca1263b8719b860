import numpy as np
import pytest

from coterie.data import splits
from coterie.data.synthetic import make
from coterie.errors import CoterieError


def test_sizes():
    data = make(users=120, items=900, communities=4, interactions_per_user=20, seed=3)
    assert (data.n_users, data.n_items) == (120, 900)
    assert np.bincount(data.users, minlength=120).min() >= 5
    assert 14 < len(data) / 120 < 28
    assert len(set(zip(data.users.tolist(), data.items.tolist(), strict=True))) == len(data)
    assert set(data.ratings.tolist()) <= {1, 2, 3, 4, 5}
    assert len(set(data.titles)) == 900 and len(set(data.categories)) == 4


def test_a_crowded_set_is_still_made():
    data = make(users=30, items=20, communities=5, interactions_per_user=10, noise=0.0, seed=1)
    assert np.bincount(data.users).min() >= 5


def test_planted_structure():
    data, truth = make(seed=1), make(seed=1).truth
    at_home = truth.user_community[data.users] == truth.item_community[data.items]
    assert 0.7 < at_home.mean() < 0.95
    names = [category[0] for category in data.categories]
    assert len({(name, int(c)) for name, c in zip(names, truth.item_community, strict=True)}) == 6
    counts = np.bincount(data.items, minlength=data.n_items)
    assert np.sort(counts)[-60:].sum() > 0.22 * len(data)  # the most popular tenth
    assert mean_ratings_and_biases(data) > 0.8


def test_platforms_have_habits_and_nothing_else_changes():
    plain, data = make(seed=1), make(seed=1, platforms=3)
    platform = data.platforms[np.unique(data.users, return_index=True)[1]]
    np.testing.assert_array_equal(platform[data.users], data.platforms)  # a user is on one of them
    assert 0.8 < (platform == data.truth.user_community % 3).mean() < 0.95
    means = [data.ratings[data.platforms == number].mean() for number in range(3)]
    assert means[0] + 0.7 < means[1] < means[2] - 0.6
    assert plain.platforms is None and (plain.users == data.users).all() and (plain.items == data.items).all()
    blurred, clear = map(mean_ratings_and_biases, (data, plain))
    assert blurred < clear - 0.02


def mean_ratings_and_biases(data):
    means = np.bincount(data.items, data.ratings, data.n_items) / np.bincount(data.items)
    return np.corrcoef(means, data.truth.item_bias)[0, 1]


def test_seed():
    same, again, other = make(seed=4), make(seed=4), make(seed=5)
    assert same.fingerprint() == again.fingerprint() != other.fingerprint()
    assert same.titles == again.titles


def hit_ratio(scores, known, held_out, rng):
    hits = []
    for user, item in enumerate(held_out):
        rivals = rng.choice(np.flatnonzero(~known[user]), 99, replace=False)
        hits.append((scores[user, rivals] >= scores[user, item]).sum() < 10)
    return np.mean(hits)


def test_a_linear_model_beats_popularity():
    data = make(seed=0)
    split = splits.leave_one_out(data)
    seen = np.zeros((data.n_users, data.n_items))
    seen[data.users[split.train], data.items[split.train]] = 1
    known = np.zeros(seen.shape, dtype=bool)
    known[data.users, data.items] = True
    inverse = np.linalg.inv(seen.T @ seen + 50 * np.eye(data.n_items))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    popularity = np.broadcast_to(seen.sum(axis=0), seen.shape)
    held_out = data.items[split.test]
    assert hit_ratio(seen @ weights, known, held_out, np.random.default_rng(0)) > 0.6
    assert hit_ratio(popularity, known, held_out, np.random.default_rng(0)) < 0.4


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"users": 0}, "users=0 cannot be made; use at least 1"),
        ({"items": 3}, "items=3 cannot be made; use at least 10"),
        ({"communities": 500}, "communities=500 cannot be made; use a number from 1 to 400"),
        ({"interactions_per_user": 301}, "use a number from 5 to 300, at most half the items"),
        ({"interactions_per_user": 4}, "interactions_per_user=4"),
        ({"platforms": -1}, "platforms=-1"),
        ({"noise": 1.5}, "noise=1.5"),
        ({"noise": float("nan")}, "noise=nan"),
    ],
)
def test_impossible_sizes(sizes, says):
    with pytest.raises(CoterieError, match=says):
        make(**sizes)
