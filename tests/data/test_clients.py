from dataclasses import replace

import numpy as np
import pytest

from coterie.data import clients
from coterie.data.synthetic import make
from coterie.errors import CoterieError


@pytest.fixture(scope="module")
def data():
    return make(users=60, items=80, communities=4, interactions_per_user=15, seed=5)


def test_per_user(data):
    train = np.arange(0, len(data), 2)
    result = clients.per_user(data, train)
    assert result.count == 60
    assert np.array_equal(result.of_row, data.users[train])
    assert np.array_equal(result.home, np.arange(60))


def test_groups_of_movielens_100k():
    data = make(users=943, items=50, interactions_per_user=5)
    result = clients.groups(data, np.arange(len(data)), 100)
    sizes = np.bincount(result.home)
    assert sizes.tolist() == [9] * 99 + [52]
    assert (np.diff(result.home) >= 0).all()  # in id order
    assert np.array_equal(result.of_row, result.home[data.users])


@pytest.mark.parametrize("k", [0, 61])
def test_impossible_groups(data, k):
    with pytest.raises(CoterieError, match=f"{k} groups are asked of 60 users; use a number from 1 to 60"):
        clients.groups(data, np.arange(len(data)), k)


def test_dirichlet_gives_every_row_one_platform(data):
    train = np.arange(0, len(data), 2)
    result = clients.dirichlet(data, train, platforms=5, beta=0.5, seed=1)
    assert result.of_row.shape == train.shape
    sizes = np.bincount(result.of_row, minlength=5)
    assert sizes.sum() == len(train) and sizes.min() >= 10 and len(sizes) == 5


def test_dirichlet_home_is_the_majority(data):
    train = np.flatnonzero(data.users != 7)
    result = clients.dirichlet(data, train, platforms=3, seed=1)
    for user in range(60):
        counts = np.bincount(result.of_row[data.users[train] == user], minlength=3)
        assert result.home[user] == counts.argmax()
    assert result.home[7] == 0


def test_platforms_that_the_data_names(data):
    named = replace(data, platforms=(data.items % 3).astype(np.int32), platform_ids=("a", "b", "c"))
    train = np.arange(0, len(data), 2)
    result = clients.given(named, train)
    assert result.count == 3
    np.testing.assert_array_equal(result.of_row, data.items[train] % 3)
    own = data.items[train][data.users[train] == 4] % 3
    assert result.home[4] == np.bincount(own, minlength=3).argmax()


def test_data_without_platforms(data):
    with pytest.raises(CoterieError, match="demo does not say which platform a row belongs to; import it with"):
        clients.given(data, np.arange(len(data)))


def test_dirichlet_skews_the_labels(data):
    train = np.arange(len(data))

    def spread(beta):
        of_row = clients.dirichlet(data, train, platforms=3, beta=beta, seed=4).of_row
        shares = [np.bincount(of_row[data.ratings == r], minlength=3) / (data.ratings == r).sum() for r in (2, 3, 4)]
        return np.std(shares)

    assert spread(0.3) > 0.1 > spread(1000.0)


def test_dirichlet_follows_the_seed(data):
    train = np.arange(len(data))
    first, again, other = (clients.dirichlet(data, train, seed=seed).of_row for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"platforms": 0}, "number of platforms is 0"),
        ({"beta": 0.0}, "beta is 0.0; use a number above 0"),
        ({"beta": float("nan")}, "beta is nan"),
        ({"platforms": 500}, "cannot give 500 platforms 10 each"),
    ],
)
def test_impossible_platforms(data, options, says):
    with pytest.raises(CoterieError, match=says):
        clients.dirichlet(data, np.arange(len(data)), **options)


def test_hopeless_draws_end(data):
    one_label = replace(data, ratings=np.ones(len(data), dtype=np.float32))
    with pytest.raises(CoterieError, match="left a platform with fewer than 10 records each time"):
        clients.dirichlet(one_label, np.arange(len(data)), beta=1e-4)
