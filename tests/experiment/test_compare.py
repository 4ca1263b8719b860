import csv
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from coterie.errors import CoterieError
from coterie.evaluation.significance import paired_test
from coterie.experiment import compare
from coterie.experiment.report import Table

pytestmark = pytest.mark.xdist_group("cli")

DATA = "demo:users=60,items=360,interactions_per_user=14"
NAMES = ["popularity", "fedmf"]
GIVEN = {"data": DATA, "rounds": 2, "fedmf.embedding_dim": 4, "fedmf.lr": 1.0, "fedmf.item_lr": 100.0}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def found(out):
    return compare.compare(NAMES, GIVEN, seeds=2, out=out)


def never(*_, **__):
    raise AssertionError("nothing is left to run")


def test_two_algorithms_over_two_seeds(found, out):
    assert {row.name for row in found.rows} == set(NAMES) and found.seeds == 2
    assert len([path for path in out.iterdir() if path.is_dir()]) == 4
    best, other = found.rows
    assert best.metrics["hr@10"].mean >= other.metrics["hr@10"].mean
    assert best.p_value is None and 0 < other.p_value <= 1
    assert best.metrics["hr@10"].low <= best.metrics["hr@10"].mean <= best.metrics["hr@10"].high
    assert found.references.keys() == {"popularity", "item_bias", "user_item_bias", "ease"}


def test_the_second_call_runs_nothing(found, out, monkeypatch):
    monkeypatch.setattr(compare, "execute", never)
    monkeypatch.setattr(compare, "resume", never)
    assert compare.compare(NAMES, GIVEN, seeds=2, out=out) == found
    for more in ({"rounds": 3}, {"fedmf.lr": 2.0}, {"data": DATA + ",seed=1"}):
        with pytest.raises(AssertionError, match="nothing is left to run"):
            compare.compare(NAMES, GIVEN | more, seeds=2, out=out)


def test_an_interrupted_run_is_taken_up(found, out, monkeypatch, tmp_path):
    plan = compare.plans_of(["popularity"], {"data": DATA, "rounds": 2}, 1)[0]
    data = compare.catalogue.load(DATA)
    folder = compare.folder_of(tmp_path, plan, data)
    whole = compare.run_or_reuse(plan, folder, data)
    (folder / "summary.json").unlink()
    monkeypatch.setattr(compare, "execute", never)
    again = compare.run_or_reuse(plan, folder, data)
    assert again.summary["metrics"] == whole.summary["metrics"]


def test_tables_are_written(found, out):
    rows = list(csv.DictReader(StringIO((out / "compare.csv").read_text())))
    assert [row["method"] for row in rows[:2]] == [row.name for row in found.rows]
    assert float(rows[0]["hr@10"]) == pytest.approx(found.rows[0].metrics["hr@10"].mean, abs=6e-5)
    assert rows[0]["p"] == "best" and "(EASE)" in {row["method"] for row in rows}
    markdown = (out / "compare.md").read_text()
    assert "protocol loo99" in markdown and "| method | hr@10 |" in markdown and "Holm" in markdown
    latex = (out / "compare.tex").read_text()
    assert r"interactions\_per\_user" in latex and r"95 \% interval" in latex and latex.count(r"\\") == 7


def result(protocol, metric, per_user, references=None):
    metrics = {"hr@10": 0.0, "ndcg@10": 0.0, "mrr@10": 0.0, "mae": 0.0, "rmse": 0.0}
    summary = {"data": "toy", "protocol": protocol, "metrics": metrics | {metric: float(np.nanmean(per_user))}}
    return compare.Result(summary | {"references": references or {}}, {metric: np.asarray(per_user)})


def test_values_are_averaged_over_seeds_before_they_are_paired():
    users = np.random.default_rng(0).random((3, 2, 200))
    users[1] += 0.3
    users[0, 0, 5] = np.nan
    results = {name: [result("loo99", "hr@10", row) for row in users[i]] for i, name in enumerate("abc")}
    found = compare.judge(results)
    assert found.rows[0].name == "b"
    means = np.where(np.isnan(users[:, 0]), users[:, 1], users.mean(1))
    raw = {name: paired_test(means[1], means[i]).p_value for i, name in ((0, "a"), (2, "c"))}
    order = sorted(raw, key=raw.get)
    holm = {order[0]: 2 * raw[order[0]], order[1]: max(2 * raw[order[0]], raw[order[1]])}
    assert {row.name: row.p_value for row in found.rows[1:]} == pytest.approx({k: min(1, v) for k, v in holm.items()})


def test_the_smaller_error_is_the_better():
    errors = {"far": [2.0, 3.0], "near": [1.0, 1.5]}
    found = compare.judge({name: [result("rating-dirichlet", "mae", values)] for name, values in errors.items()})
    assert [row.name for row in found.rows] == ["near", "far"]
    assert compare.tabulate(found).rows[0][2] == ""  # one seed gives no interval


def test_settings_of_one_algorithm_and_what_all_share():
    plans = compare.plans_of(["fedmf", "mf"], {"fedmf.lr": 5.0, "embedding_dim": 3}, 2)
    assert [(plan.algorithm.info.name, plan.what.seed) for plan in plans] == [
        ("fedmf", 0), ("mf", 0), ("fedmf", 1), ("mf", 1),
    ]  # fmt: skip
    assert plans[0].settings == {"embedding_dim": 3, "lr": 5.0} and plans[1].settings == {"embedding_dim": 3}
    with pytest.raises(CoterieError, match="on the same data"):
        compare.plans_of(["fedmf", "mf"], {"mf.min_user": 4}, 1)


def test_a_wide_table_keeps_all_its_text_at_eighty_columns(found):
    table = compare.tabulate(found)
    text = StringIO()
    Console(file=text, width=80).print(table.to_rich(emphasise=1))
    shown = text.getvalue()
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    for row in table.rows:
        assert any(all(cell in line for cell in row) for line in shown.splitlines()), row


def test_latex_is_escaped():
    table = Table("50 % of a_b & c", ("x", "y"), (("m_1", "<0.1"),), ("Note.",))
    latex = table.to_latex()
    assert r"\caption{50 \% of a\_b \& c. Note.}" in latex
    assert r"m\_1 & $<$0.1 \\" in latex
