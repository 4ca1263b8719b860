"""The compiled ranks are those of the plainest rule, with ties and numbers that are none."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.engine import evaluate
from coterie.engine.evaluate import MISS
from coterie.engine.plan import Bucket, Part
from coterie.evaluation import metrics
from coterie.evaluation.metrics import rank_of

ITEMS, HELD = 8, 3

ranks = jax.jit(evaluate.ranks)
scores = st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0, float("nan"), float("inf")]), min_size=ITEMS, max_size=ITEMS)


@given(scores, st.sets(st.integers(0, ITEMS - 1), max_size=HELD), st.sets(st.integers(0, ITEMS - 1)))
@example([1.0] * ITEMS, {1, 5, 7}, set())
@example([float("nan")] * ITEMS, {0}, set())
def test_ranks_follow_the_plain_rule(score, held, masked):
    score, held = np.array(score, np.float32), np.array(sorted(held), int)
    masked = np.array(sorted(masked - set(held.tolist())), int)
    padded = np.append(held, np.zeros(HELD - len(held), int))
    real = np.arange(HELD) < len(held)
    allowed = ~np.isin(np.arange(ITEMS), np.append(held, masked))
    found = np.asarray(ranks(score[padded], real, score, allowed))
    expected = np.minimum(rank_of(score, held, masked), MISS)
    np.testing.assert_array_equal(found[: len(held)], expected)
    assert not found[len(held) :].any()


def test_a_miss_is_a_miss_for_the_metrics():
    assert metrics.summarise(np.array([[MISS]]), 10)["hr@10"] == 0


def bucket(validation, test, seen=None, candidates=None):
    """A bucket row of one client with one user and given held-out items."""
    blank = jnp.zeros(0, jnp.int32)
    parts = [
        Part(
            jnp.array([[*items, 0]]),
            jnp.array([len(items)]),
            None if rivals is None else jnp.array([rivals]),
            jnp.arange(len(items)),
        )
        for items, rivals in zip((validation, test), candidates or (None, None), strict=True)
    ]
    return Bucket(
        client=jnp.int32(0),
        user_numbers=jnp.zeros(1, jnp.int32),
        users=blank,
        items=blank,
        labels=jnp.zeros(0),
        count=jnp.int32(0),
        gaps=blank,
        bounds=jnp.zeros(2, jnp.int32),
        seen=None if seen is None else jnp.array([seen]),
        validation=parts[0],
        test=parts[1],
    )


SCORES = jnp.array([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0])


def score(user, items):
    return SCORES[items]


def test_full_ranking_hides_training_items_and_for_test_validation_items():
    row = bucket(validation=[2], test=[4, 6], seen=[0, ITEMS])
    answers = evaluate.full(score, row, jnp.arange(1), ITEMS)
    assert np.asarray(answers.validation).tolist() == [[2, 0]], "behind 1; 0 is trained"
    assert np.asarray(answers.test).tolist() == [[3, 5, 0]], "4 behind 1, 3; 6 behind 1, 3, 4, 5"


def test_sampled_ranking_looks_at_candidates_only():
    row = bucket(validation=[2], test=[4], candidates=([0, 1, 7], [5, 6, 7]))
    answers = evaluate.sampled(score, row, jnp.arange(1))
    assert np.asarray(answers.validation).tolist() == [[3, 0]]
    assert np.asarray(answers.test).tolist() == [[1, 0]]


def test_predictions_are_the_scores():
    answers = evaluate.predicted(score, bucket(validation=[2], test=[4, 6]))
    assert np.asarray(answers.test).tolist() == [[4.0, 2.0, 0.0]]


def test_top_lists_are_ordered_and_leave_out_what_is_hidden():
    hidden = jnp.array([[0, 2, ITEMS]])
    lists = evaluate.top(score, hidden, jnp.arange(1), ITEMS, 7)
    assert np.asarray(lists.items).tolist() == [[1, 3, 4, 5, 6, 7, -1]]
    tied = evaluate.top(lambda user, items: jnp.zeros(items.shape), hidden, jnp.arange(1), ITEMS, 3)
    assert np.asarray(tied.items).tolist() == [[1, 3, 4]]


def test_many_users_are_asked_in_parts(monkeypatch):
    row = bucket(validation=[2], test=[4], candidates=([0, 1, 7], [5, 6, 7]))
    wide = jax.tree.map(lambda leaf: jnp.repeat(leaf, 5, 0) if leaf.ndim > 1 else leaf, row)
    wide = wide._replace(
        validation=wide.validation._replace(count=jnp.ones(5, int)), test=wide.test._replace(count=jnp.ones(5, int))
    )
    whole = evaluate.sampled(score, wide, jnp.arange(5))
    monkeypatch.setattr(evaluate, "PAIRS", 20)
    parts = evaluate.sampled(score, wide, jnp.arange(5))
    np.testing.assert_array_equal(whole.test, parts.test)
    np.testing.assert_array_equal(np.asarray(whole.test)[:, 0], [1] * 5)
