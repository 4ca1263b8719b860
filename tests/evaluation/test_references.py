"""Ranks by blocks equal ranks one by one; references equal their formulas and find planted structure."""

from dataclasses import replace

import numpy as np
import pytest

from coterie.data import synthetic
from coterie.evaluation import references as refs
from coterie.evaluation.metrics import MISS, rank_of
from coterie.evaluation.protocols import prepare


@pytest.fixture(scope="module")
def data():
    return synthetic.make(users=150, items=420, interactions_per_user=25, seed=2)


def scores_with_ties_and_gaps(n_users, n_items):
    """Few distinct values, both infinities, and NaN."""
    rng = np.random.default_rng(5)
    values = np.array([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf, np.nan])
    return rng.choice(values, size=(n_users, n_items), p=[0.05, 0.25, 0.3, 0.25, 0.05, 0.05, 0.05])


def expected_ranks(problem, scores, user, part):
    held = problem.held_out(part)
    masked = problem.masked(part)[user]
    if held.candidates is not None:
        contest = np.append(held.candidates[user], held.items[user])
        masked = np.setdiff1d(np.arange(problem.data.n_items), contest)
    return rank_of(scores[user], held.items[user], masked).tolist()


@pytest.mark.parametrize("block_bytes", [refs.BLOCK_BYTES, 16 * 420 * 7])
@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("name", ["loo99", "loo-full", "ratio-full"])
def test_ranks_by_blocks_equal_ranks_one_by_one(monkeypatch, data, name, part, block_bytes):
    monkeypatch.setattr(refs, "BLOCK_BYTES", block_bytes)
    problem = prepare(data, name)
    scores = scores_with_ties_and_gaps(data.n_users, data.n_items)
    ranks = refs.evaluate_scores(problem, lambda users: scores[users], part)
    for user in range(data.n_users):
        expected = expected_ranks(problem, scores, user, part)
        assert ranks[user].tolist() == expected + [0] * (ranks.shape[1] - len(expected))
    assert (ranks == MISS).any(), "the case of a NaN score occurs"


def test_scorers_see_small_blocks_of_the_users_with_held_out_items(monkeypatch, data):
    monkeypatch.setattr(refs, "BLOCK_BYTES", 16 * 420 * 7)
    problem = prepare(data, "ratio-full")
    asked = []

    def score(users):
        asked.append(users)
        return np.zeros((len(users), data.n_items))

    refs.evaluate_scores(problem, score, "validation")
    assert max(map(len, asked)) == 7
    np.testing.assert_array_equal(np.concatenate(asked), np.flatnonzero(problem.validation.items.lengths))


def test_the_scores_of_a_model_are_left_as_they_were(data):
    scores = np.random.default_rng(0).random((data.n_users, data.n_items))
    before = scores.copy()
    refs.evaluate_scores(prepare(data, "loo-full"), lambda users: scores[users[0] : users[-1] + 1])
    np.testing.assert_array_equal(scores, before)


def test_ease_equals_its_formula(data):
    problem = prepare(data, "ratio-full")
    history = np.zeros((data.n_users, data.n_items))
    history[data.users[problem.train], data.items[problem.train]] = 1
    inverse = np.linalg.inv(history.T @ history + 50.0 * np.eye(data.n_items))
    weights = np.eye(data.n_items) - inverse / np.diag(inverse)
    users = np.array([3, 0, 77], np.int32)
    np.testing.assert_allclose(refs.ease(problem, ridge=50.0)(users), (history @ weights)[users], atol=1e-10)


def test_ease_predicts_an_item_best_from_the_others(data):
    """Column j of B is the ridge regression of item j on the other items."""
    problem = prepare(data, "ratio-full")
    history = np.zeros((data.n_users, data.n_items))
    history[data.users[problem.train], data.items[problem.train]] = 1
    item, others = 11, np.delete(np.arange(data.n_items), 11)
    rest = history[:, others]
    regression = np.linalg.solve(rest.T @ rest + 50.0 * np.eye(len(others)), rest.T @ history[:, item])
    everybody = np.arange(data.n_users, dtype=np.int32)
    np.testing.assert_allclose(refs.ease(problem, ridge=50.0)(everybody)[:, item], rest @ regression, atol=1e-9)


@pytest.mark.parametrize("name", ["loo99", "groups"])
def test_ease_finds_the_planted_communities_and_popularity_does_not(data, name):
    problem = prepare(data, name)
    found = refs.references(problem)
    assert list(found) == ["popularity", "item_bias", "user_item_bias", "ease"]
    chance = refs.evaluate_scores(problem, lambda users: np.random.default_rng(0).random((len(users), 420)))
    at_random = refs.summarise(chance, 10)["recall@10"]
    assert found["ease"]["recall@10"] > 1.3 * found["popularity"]["recall@10"]
    assert found["popularity"]["recall@10"] > 1.3 * at_random


def test_popularity_ranks_by_training_counts(data):
    problem = prepare(data, "loo-full")
    counts = np.bincount(data.items[problem.train], minlength=data.n_items)
    np.testing.assert_array_equal(refs.popularity(problem)(np.array([4, 2], np.int32)), [counts, counts])


def test_item_bias_by_hand(data):
    problem = prepare(data, "rating-dirichlet")
    fitted = refs.item_bias(problem, shrink=5.0)
    ratings, items = data.ratings[problem.train].astype(float), data.items[problem.train]
    item = int(items[0])
    own = ratings[items == item]
    assert fitted.item[item] == pytest.approx((own - ratings.mean()).sum() / (len(own) + 5))
    assert not fitted.user.any()


def test_user_and_item_biases_minimise_their_loss(data):
    """At the minimum the gradient of sum e^2 + shrink (|b_u|^2 + |b_i|^2) vanishes for every bias."""
    problem = prepare(data, "rating-dirichlet")
    fitted = refs.user_item_bias(problem, shrink=5.0)
    users, items = data.users[problem.train], data.items[problem.train]
    error = data.ratings[problem.train] - fitted.predict(users, items)
    for keys, bias in ((users, fitted.user), (items, fitted.item)):
        np.testing.assert_allclose(np.bincount(keys, error, minlength=len(bias)), 5.0 * bias, atol=1e-6)


def test_rating_references_improve_on_each_other_where_biases_are_planted(data):
    errors = refs.references(prepare(data, "rating-dirichlet"))
    assert list(errors) == ["constant", "item_bias", "user_item_bias"]
    for metric in ("mae", "rmse"):
        assert errors["constant"][metric] > errors["item_bias"][metric] > errors["user_item_bias"][metric]


def test_the_constant_predicts_the_training_mean(data):
    problem = prepare(data, "rating-dirichlet")
    mean = data.ratings[problem.train].mean()
    actual = problem.test.ratings.values
    errors = refs.references(problem)["constant"]
    assert errors["mae"] == pytest.approx(np.abs(actual - mean).mean(), rel=1e-5)
    assert errors["rmse"] == pytest.approx(np.sqrt(((actual - mean) ** 2).mean()), rel=1e-5)


def test_what_does_not_apply_is_left_out_with_a_reason(monkeypatch, data):
    implicit = prepare(replace(data, ratings=np.ones_like(data.ratings)), "loo99")
    assert set(refs.skipped(implicit)) == {"item_bias", "user_item_bias"}
    assert list(refs.references(implicit)) == ["popularity", "ease"]
    monkeypatch.setattr(refs, "EASE_MOST_ITEMS", data.n_items - 1)
    assert "420 items are more than 419" in refs.skipped(implicit)["ease"]
    assert list(refs.references(implicit)) == ["popularity"]
    assert refs.skipped(prepare(data, "rating-dirichlet")) == {}
