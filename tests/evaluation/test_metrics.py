"""Metrics against numbers worked out by hand, against another library, and against their own laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.evaluation import metrics
from coterie.evaluation.metrics import MISS, RANKING, rank_of

# Four users with 3, 1, 1 and no held-out items.
RANKS = np.array([[12, 1, 3], [11, 0, 0], [2, 0, 0], [0, 0, 0]], np.int32)
LOG2_3 = np.log2(3)

BY_HAND = {
    "hr": [1, 0, 1],
    "recall": [2 / 3, 0, 1],
    "precision": [0.2, 0, 0.1],
    "mrr": [1, 0, 0.5],
    "ndcg": [(1 + 1 / 2) / (1 + 1 / LOG2_3 + 1 / 2), 0, 1 / LOG2_3],
    "ndcg_hits": [(1 + 1 / 2) / (1 + 1 / LOG2_3), 0, 1 / LOG2_3],
    "map": [(1 / 1 + 2 / 3) / 3, 0, 1 / 2],
}


@pytest.mark.parametrize("name", RANKING)
def test_a_metric_equals_the_number_worked_out_by_hand(name):
    values = RANKING[name](RANKS, 10)
    np.testing.assert_allclose(values[:3], BY_HAND[name])
    assert np.isnan(values[3]), "a user without held-out items has no value"


@pytest.mark.parametrize("name", ["ndcg", "ndcg_hits", "precision", "map", "mrr", "hr"])
def test_a_perfect_list_shorter_than_the_held_out_set_scores_one(name):
    assert RANKING[name](np.array([[9, 2, 1]], np.int32), 2) == [1.0]


def test_recall_divides_by_all_held_out_items_even_beyond_k():
    assert metrics.recall(np.array([[9, 2, 1]], np.int32), 2) == [2 / 3]


def test_summary_averages_only_users_with_held_out_items():
    summary = metrics.summarise(RANKS, 10)
    assert set(summary) == {f"{name}@10" for name in RANKING}
    assert summary["hr@10"] == pytest.approx(2 / 3)
    assert summary["mrr@10"] == pytest.approx(0.5)


def test_summary_of_nobody_is_not_a_number():
    assert all(np.isnan(value) for value in metrics.summarise(np.zeros((3, 2), np.int32), 10).values())
    assert all(np.isnan(value) for value in metrics.summarise(np.zeros((3, 0), np.int32), 10).values())


def test_a_miss_is_a_miss_at_any_k():
    ranks = np.array([[MISS]], np.int32)
    for name, values in metrics.per_user(ranks, 10**6).items():
        assert values == [0.0], name


@st.composite
def rank_matrices(draw):
    """Distinct ranks per user, padded with 0, in any column order."""
    users = draw(st.lists(st.lists(st.integers(1, 40), unique=True, max_size=8), min_size=1, max_size=6))
    width = max(len(ranks) for ranks in users) + 1
    padded = [draw(st.permutations(ranks + [0] * (width - len(ranks)))) for ranks in users]
    return np.array(padded, np.int32)


@given(rank_matrices(), st.integers(1, 30))
def test_ndcg_over_hits_is_never_below_ndcg_and_equal_when_nothing_is_missed(ranks, k):
    plain, over_hits = metrics.ndcg(ranks, k), metrics.ndcg_hits(ranks, k)
    known = ~np.isnan(plain)
    assert (over_hits[known] >= plain[known] - 1e-12).all()
    hits = ((ranks > 0) & (ranks <= k)).sum(axis=1)
    complete = known & (hits == np.minimum((ranks > 0).sum(axis=1), k))
    np.testing.assert_allclose(over_hits[complete], plain[complete])
    partial = known & (hits > 0) & ~complete
    assert (over_hits[partial] > plain[partial]).all()


@given(rank_matrices(), st.integers(1, 30))
def test_every_metric_lies_between_zero_and_one_and_ignores_column_order(ranks, k):
    for name, values in metrics.per_user(ranks, k).items():
        held = (ranks > 0).any(axis=1)
        assert ((values[held] >= 0) & (values[held] <= 1 + 1e-12)).all(), name
        np.testing.assert_allclose(values, RANKING[name](ranks[:, ::-1], k))


@pytest.fixture
def ranx(monkeypatch):
    """Import the independent library without compiling it, which would take most of a minute."""
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    return pytest.importorskip("ranx")


@pytest.mark.filterwarnings("ignore")
def test_agreement_with_ranx(ranx):
    rng = np.random.default_rng(0)
    k, users, listed = 10, 40, 30
    sizes = rng.integers(1, 15, size=users)
    ranks = np.zeros((users, 14), np.int32)
    for user, size in enumerate(sizes):
        ranks[user, :size] = rng.permutation(45)[:size] + 1  # places beyond 30 are not in the list
    held_out = ranx.Qrels({f"{u:02}": {f"d{r}": 1 for r in ranks[u] if r} for u in range(users)})
    run = ranx.Run({f"{u:02}": {f"d{r}": 1.0 / r for r in range(1, listed + 1)} for u in range(users)})
    # Its average precision divides by |T|, ours by min(|T|, k); the others are defined alike.
    names = {"hr": "hit_rate", "ndcg": "ndcg", "recall": "recall", "precision": "precision", "mrr": "mrr"}
    wanted = [f"{name}@{k}" for name in [*names.values(), "map"]]
    theirs = ranx.evaluate(held_out, run, wanted, return_mean=False)
    for ours, name in names.items():
        np.testing.assert_allclose(RANKING[ours](ranks, k), theirs[f"{name}@{k}"], err_msg=ours)
    rescaled = theirs[f"map@{k}"] * sizes / np.minimum(sizes, k)
    np.testing.assert_allclose(metrics.average_precision(ranks, k), rescaled)


def test_rank_counts_rivals_that_tie_against_the_held_out_item():
    scores = np.array([0.5, 0.5, 0.9, 0.1, 0.5])
    assert rank_of(scores, np.array([4]), masked=[]).tolist() == [4]
    assert rank_of(scores, np.array([4]), masked=[2, 0]).tolist() == [2]


def test_held_out_items_rank_by_score_and_then_by_id_among_themselves():
    scores = np.array([0.7, 0.2, 0.7, 0.9])
    assert rank_of(scores, np.array([2, 3, 0]), masked=[]).tolist() == [3, 1, 2]
    # Equal scores everywhere: the rival is ahead of all of them.
    assert rank_of(np.zeros(4), np.array([3, 1, 0]), masked=[]).tolist() == [4, 3, 2]


def test_nan_counts_against_the_held_out_item():
    assert rank_of(np.array([np.nan, 0.5, 0.1]), np.array([1]), masked=[]).tolist() == [2]
    assert rank_of(np.array([np.nan, 0.5, 0.1]), np.array([0]), masked=[]).tolist() == [MISS]
    # A fellow held-out item with NaN is nowhere in the list, so it takes no place.
    assert rank_of(np.array([np.nan, 0.5, 0.1]), np.array([0, 1]), masked=[]).tolist() == [MISS, 1]


def test_infinite_scores_are_ordinary_scores():
    scores = np.array([-np.inf, -np.inf, 0.0, np.inf, np.inf])
    assert rank_of(scores, np.array([0]), masked=[]).tolist() == [5]
    assert rank_of(scores, np.array([3]), masked=[]).tolist() == [2]


def test_coverage_counts_items_shown_to_anyone():
    assert metrics.coverage(np.array([[0, 1], [1, -1]]), n_items=8) == 0.25


def test_gini_of_known_exposures():
    # Exposure counts 0, 0, 1, 3: (-3*0 - 1*0 + 1*1 + 3*3) / (4 * 4).
    assert metrics.gini(np.array([[2, 3], [3, -1], [3, -1]]), n_items=4) == 10 / 16
    assert metrics.gini(np.array([[0, 1, 2, 3]]), n_items=4) == 0.0
    assert metrics.gini(np.full((2, 2), -1), n_items=4) == 0.0


def test_rating_errors_by_hand():
    assert metrics.mae([1, 2, 5], [2, 2, 3]) == 1.0
    assert metrics.rmse([1, 2, 5], [2, 2, 3]) == pytest.approx(np.sqrt(5 / 3))


def test_activity_groups_are_terciles_of_the_users_with_a_value():
    values = np.array([0.0, 0.2, 0.4, np.nan, 0.6, 0.8, 1.0])
    activity = np.array([50, 40, 30, 1, 20, 10, 5])
    groups = metrics.by_activity(values, activity)
    assert list(groups) == ["low", "middle", "high"]
    assert list(groups.values()) == pytest.approx([0.9, 0.5, 0.1])
