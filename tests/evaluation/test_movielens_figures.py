"""References on MovieLens-100K against figures measured independently; needs $COTERIE_DATA/ml-100k.

The figures come from other splits and other candidate draws, so they are met within the spread over seeds.
"""

import os
from pathlib import Path

import pytest

from coterie.data import catalogue
from coterie.evaluation.protocols import prepare
from coterie.evaluation.references import references

pytestmark = pytest.mark.skipif(
    not Path(os.environ.get("COTERIE_DATA", "missing"), "ml-100k").is_dir(),
    reason="MovieLens-100K may not be shipped: set COTERIE_DATA to a folder that holds ml-100k",
)

FIGURES = {
    "loo99": {
        "popularity": {"hr@10": 0.405, "ndcg@10": 0.227},
        "ease": {"hr@10": 0.639, "ndcg@10": 0.383},
    },
    "loo-full": {
        "popularity": {"hr@10": 0.082, "ndcg@10": 0.044},
        "ease": {"hr@10": 0.144, "ndcg@10": 0.081},
    },
    "groups": {
        "popularity": {"recall@10": 0.116, "mrr@10": 0.424, "ndcg@10": 0.222, "ndcg_hits@10": 0.481},
        "ease": {"recall@10": 0.227, "mrr@10": 0.680, "ndcg@10": 0.424, "ndcg_hits@10": 0.704},
    },
    "rating-dirichlet": {
        "constant": {"mae": 0.9414, "rmse": 1.1224},
        "item_bias": {"mae": 0.8108, "rmse": 1.0155},
        "user_item_bias": {"mae": 0.7394, "rmse": 0.9356},
    },
}
TOLERANCE = {"loo99": 0.02, "loo-full": 0.01, "groups": 0.02, "rating-dirichlet": 0.012}


@pytest.mark.parametrize("protocol", FIGURES)
def test_references_on_movielens_100k(protocol):
    measured = references(prepare(catalogue.load("ml-100k"), protocol))
    for name, figures in FIGURES[protocol].items():
        near = pytest.approx(figures, abs=TOLERANCE[protocol])
        assert {metric: measured[name][metric] for metric in figures} == near, name
