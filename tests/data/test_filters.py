import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.readers import from_frame
from coterie.data.synthetic import make
from coterie.errors import CoterieError


def table(rows, **options) -> Interactions:
    columns = ["user", "item", "rating", "timestamp"][: len(rows[0])]
    return from_frame(pd.DataFrame(rows, columns=columns), **options)


def pairs_of(data):
    return [(data.user_ids[u], data.item_ids[i]) for u, i in zip(data.users, data.items, strict=True)]


def test_nothing_to_do_changes_nothing():
    data = table([("a", "x", 1), ("b", "y", 2)])
    result = apply(data, Filters())
    assert result.fingerprint() == data.fingerprint() and result.notes == ()


def test_latest_of_a_repeated_pair_stays():
    rows = [("a", "x", 1, 30), ("a", "x", 2, 10), ("a", "y", 3, 5), ("a", "y", 4, 5), ("a", "x", 5, 20)]
    result = apply(table(rows), Filters())
    assert result.ratings.tolist() == [1, 4]  # the latest by time; of equal times the last row
    assert result.notes == ("dropped 3 repeated (user, item) pairs",)
    assert len(apply(table(rows), Filters(deduplicate=False))) == 5


def test_last_row_of_a_repeated_pair_stays_without_times():
    result = apply(table([("a", "x", 1), ("a", "x", 2)]), Filters())
    assert result.ratings.tolist() == [2]
    assert result.notes == ("dropped 1 repeated (user, item) pair",)


def test_rare_users_go_and_numbers_close_up():
    data = table(
        [("a", "w"), ("b", "x"), ("b", "y"), ("c", "x"), ("c", "z")],
        titles=dict(zip("wxyz", "WXYZ", strict=True)),
    )
    result = apply(data, Filters(min_user=2))
    assert result.user_ids == ("b", "c") and result.item_ids == ("x", "y", "z")
    assert result.titles == ("X", "Y", "Z")
    assert pairs_of(result) == [("b", "x"), ("b", "y"), ("c", "x"), ("c", "z")]
    assert result.notes == ("kept 2 of 3 users with at least 2 interactions",)


def test_users_and_items_are_dropped_until_nothing_changes():
    # Item z is rare; without it user c is rare; without c item y is rare; without y user b is rare.
    rows = [("a", "v"), ("a", "w"), ("d", "v"), ("d", "w"), ("b", "v"), ("b", "y"), ("c", "y"), ("c", "z")]
    result = apply(table(rows), Filters(min_user=2, min_item=2))
    assert result.user_ids == ("a", "d") and result.item_ids == ("v", "w")
    note = "kept 2 of 4 users with at least 2 interactions and 2 of 4 items with at least 2 interactions"
    assert result.notes == (note,)


def test_ratings():
    data = table([("a", "x", 1), ("a", "y", 4), ("a", "z", 5)])
    result = apply(data, Filters(min_rating=4, binarise=True))
    assert result.ratings.tolist() == [1, 1] and result.item_ids == ("y", "z")
    notes = ("kept 2 of 3 interactions rated 4 or more", "counted every interaction as 1")
    assert result.notes == notes


def test_repeats_do_not_count_for_the_minimum():
    with pytest.raises(CoterieError, match="No interaction of frame is left after min_user=2"):
        apply(table([("a", "x"), ("a", "x")]), Filters(min_user=2))


def test_empty_result_names_the_filter():
    with pytest.raises(CoterieError, match="left after min_rating=9; loosen that filter"):
        apply(table([("a", "x", 1)]), Filters(min_rating=9))


def test_truth_follows_the_numbers():
    data = make(users=30, items=40, communities=3, interactions_per_user=8, seed=1)
    result = apply(data, Filters(min_user=8))
    users = [data.user_number(user) for user in result.user_ids]
    items = [data.item_ids.index(item) for item in result.item_ids]
    assert 0 < result.n_users < 30
    assert np.array_equal(result.truth.user_community, data.truth.user_community[users])
    assert np.array_equal(result.truth.item_bias, data.truth.item_bias[items])


def test_unknown_setting():
    with pytest.raises(ValidationError, match="min_users"):
        Filters(min_users=3)
