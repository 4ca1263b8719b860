import numpy as np
import pandas as pd
import pytest

from coterie.data import splits
from coterie.data.readers import from_frame
from coterie.data.synthetic import make
from coterie.errors import CoterieError


def table(rows):
    return from_frame(pd.DataFrame(rows, columns=["user", "item", "timestamp"][: len(rows[0])]))


def assert_partition(split, n):
    assert np.array_equal(np.sort(np.concatenate([split.train, split.validation, split.test])), np.arange(n))


def test_latest_is_test():
    # rows:        0            1            2            3            4            5            6
    rows = [("b", 1, 5), ("a", 1, 9), ("a", 2, 7), ("b", 2, 6), ("a", 3, 8), ("b", 3, 4), ("a", 4, 1)]
    split = splits.leave_one_out(table(rows))
    assert split.test.tolist() == [1, 3]  # of user a, then of user b
    assert split.validation.tolist() == [4, 0]
    assert split.train.tolist() == [2, 5, 6]


def test_of_equal_times_the_earlier_row_is_the_later_one():
    split = splits.leave_one_out(table([("a", 1, 5), ("a", 2, 5), ("a", 3, 5), ("a", 4, 1)]))
    assert (split.test.tolist(), split.validation.tolist(), split.train.tolist()) == ([0], [1], [2, 3])


def test_ties_agree_with_the_published_ranking():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": np.repeat(np.arange(50), 8)[rng.permutation(400)],
            "item": np.arange(400),
            "timestamp": rng.integers(4, size=400),  # many ties
        }
    )
    rank = frame.groupby("user")["timestamp"].rank(method="first", ascending=False).to_numpy()
    split = splits.leave_one_out(from_frame(frame))
    assert sorted(split.test) == np.flatnonzero(rank == 1).tolist()
    assert sorted(split.validation) == np.flatnonzero(rank == 2).tolist()


def test_without_times_the_later_row_is_later():
    split = splits.leave_one_out(table([("a", 1), ("a", 2), ("a", 3)]))
    assert (split.test.tolist(), split.validation.tolist()) == ([2], [1])


def test_rows_without_a_time_are_the_latest_in_file_order():
    split = splits.leave_one_out(table([("a", 1, None), ("a", 2, 9), ("a", 3, 9), ("a", 4, None)]))
    assert (split.test.tolist(), split.validation.tolist()) == ([3], [0])


def test_too_few_rows_name_the_user():
    rows = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    with pytest.raises(CoterieError, match=r"user 'b' has 1 interaction; .* at least 3: set min_user=3"):
        splits.leave_one_out(table(rows))


def test_user_ratio_counts():
    rows = [("a", i) for i in range(10)] + [("b", i) for i in range(2)] + [("c", 0)]
    data = table(rows)
    split = splits.user_ratio(data, test=0.2, validation=0.1, seed=3)
    assert_partition(split, 13)
    # a: 2 of 10, then round(0.1 x 8) = 1; b: one each; c: a single row stays in training.
    assert np.bincount(data.users[split.test], minlength=3).tolist() == [2, 1, 0]
    assert np.bincount(data.users[split.validation], minlength=3).tolist() == [1, 0, 0]
    assert np.bincount(data.users[split.train], minlength=3).tolist() == [7, 1, 1]


def test_user_ratio_always_leaves_training_rows():
    data = table([(user, item) for user in range(20) for item in range(1 + user % 4)])
    split = splits.user_ratio(data, test=0.9, validation=0.9)
    assert np.bincount(data.users[split.train], minlength=20).min() == 1


def test_global_ratio_counts():
    data = make(seed=2)
    split = splits.global_ratio(data, seed=1)
    assert_partition(split, len(data))
    assert len(split.test) == round(0.2 * len(data))
    assert len(split.validation) == round(0.1 * (len(data) - len(split.test)))


@pytest.mark.parametrize("ratio", [splits.user_ratio, splits.global_ratio])
def test_ratio_follows_the_seed(ratio):
    data = make(users=50, items=60, interactions_per_user=10)
    first, again, other = (ratio(data, seed=seed).test for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("shares", "says"),
    [({"test": 0.0}, "test share is 0.0"), ({"validation": 1.0}, "validation share is 1.0")],
)
def test_impossible_shares(shares, says):
    with pytest.raises(CoterieError, match=says):
        splits.user_ratio(table([("a", 1)]), **shares)


def test_ratio_of_a_single_row():
    with pytest.raises(CoterieError, match="leaves none for the test part"):
        splits.global_ratio(table([("a", 1)]))


def test_given(tmp_path):
    from coterie.data.readers import read

    (tmp_path / "ratings.csv").write_text("user,item\na,1\na,2\nb,1\nb,2\n")
    (tmp_path / "split.csv").write_text("user,item,split\na,1,tst\na,2,trn\nb,1,val\nb,2,trn\n")
    split = splits.given(read(tmp_path))
    assert (split.train.tolist(), split.validation.tolist(), split.test.tolist()) == ([1, 3], [2], [0])


def test_given_needs_a_split():
    with pytest.raises(CoterieError, match="frame has no split of its own"):
        splits.given(table([("a", 1)]))


def test_negative_seed():
    with pytest.raises(CoterieError, match="seed is -1"):
        splits.global_ratio(table([("a", 1)] * 10), seed=-1)
