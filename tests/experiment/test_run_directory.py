import json

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.experiment.run import read_result

pytestmark = pytest.mark.xdist_group("cli")

DATA = "demo:users=60,items=360,interactions_per_user=14"
SETTINGS = {"embedding_dim": 4, "lr": 1.0, "item_lr": 100.0}


@pytest.fixture(scope="module")
def data():
    return ct.load(DATA)


@pytest.fixture(scope="module")
def run(data):
    return ct.fit("fedmf", data, rounds=4, **SETTINGS)


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    return run.save(tmp_path_factory.mktemp("runs") / "deep" / "run")


def test_saved_run_recommends_the_same(run, folder, data):
    loaded = ct.load_run(folder)
    for user in (data.user_ids[0], int(data.user_ids[-1])):
        assert loaded.recommend(user, k=7) == run.recommend(user, k=7)
    assert loaded.metrics == run.metrics
    assert [record.round for record in loaded.history] == [1, 2, 3, 4]


def test_summary_has_all_that_is_promised(folder):
    summary = json.loads((folder / "summary.json").read_text())
    promised = {"algorithm", "data", "protocol", "seed", "rounds", "metrics", "seconds", "bytes", "peak_rss_mb"}
    assert promised | {"versions"} <= summary.keys()
    assert summary["algorithm"] == "fedmf" and summary["data"] == DATA and summary["protocol"] == "loo99"
    assert summary["rounds"] == 4 and 1 <= summary["best_round"] <= 4
    seconds = summary["seconds"]
    assert seconds.keys() == {"compile", "train", "evaluate", "total"}
    assert seconds["total"] >= seconds["train"] > 0
    assert summary["bytes"]["up"] == summary["bytes"]["down"] == 4 * 60 * 302 * 4 * 4
    assert {"hr@10", "ndcg@10", "coverage@10", "gini@10"} <= summary["metrics"].keys()
    assert {"coterie", "python", "jax", "numpy"} <= summary["versions"].keys()
    assert summary["peak_rss_mb"] > 50


def test_metrics_by_user_are_kept_and_average_to_the_metric(run, folder):
    summary, per_user = read_result(folder)
    assert per_user.keys() == run.per_user.keys()
    for name, values in per_user.items():
        assert np.array_equal(values, run.per_user[name])
        assert np.nanmean(values) == pytest.approx(summary["metrics"][name])


def test_a_frame_without_a_name_can_be_loaded_with_its_data(tmp_path):
    frame = pd.DataFrame({"user_id": np.repeat(np.arange(6), 5), "item_id": np.tile(np.arange(10), 3)})
    data = ct.from_frame(frame)
    run = ct.fit("popularity", data, protocol="ratio-full", rounds=1)
    run.save(tmp_path / "run")
    with pytest.raises(ct.CoterieError, match="There is no data set 'frame'"):
        ct.load_run(tmp_path / "run")
    assert ct.load_run(tmp_path / "run", data).recommend(0, k=2) == run.recommend(0, k=2)


def test_another_data_set_is_refused(folder):
    other = ct.load(DATA + ",seed=1")
    with pytest.raises(ct.CoterieError, match="its data is"):
        ct.load_run(folder, other)


def test_errors_of_ratings_have_an_interval_that_holds_them():
    run = ct.fit("mf", DATA, protocol="rating-dirichlet", rounds=2, embedding_dim=4)
    interval = run.summary["intervals"]["mae"]
    assert interval["mean"] == pytest.approx(run.metrics["mae"], rel=1e-6)
    assert interval["low"] < run.metrics["mae"] < interval["high"]
    errors, counts = run.per_user["mae"], run.problem.test.items.lengths
    assert np.nansum(errors * counts) / counts.sum() == pytest.approx(run.metrics["mae"], rel=1e-6)
