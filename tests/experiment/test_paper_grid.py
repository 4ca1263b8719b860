"""Runs of a grid: cached, resumable, shared between tables, and one that fails stops no other."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.errors import CoterieError
from coterie.experiment import grid as running
from coterie.experiment.choice import choose
from coterie.experiment.grid import carry_out, is_done, run_all
from coterie.experiment.trials import Results, Trial, distinct, read_json, trials_of, write_json
from coterie.papers.chart import Chart
from coterie.papers.declare import HONEST, PAPER, Figure, Grid, Paper, Probe, Quick, Row

pytestmark = pytest.mark.xdist_group("cli")

DATA = "demo:users=60,items=360,interactions_per_user=14"


def fedmf(_, rounds=4, **more):
    return {"algorithm": "fedmf", "rounds": rounds, "embedding_dim": 4, "lr": 1.0, "item_lr": 100.0, **more}


def popularity(_):
    return {"algorithm": "popularity"}


GRID = Grid("1", "Toys", (Row("Popular", popularity), Row("Factors", fedmf), Row("Printed")), (DATA,), seeds=1)


def never(*_, **__):
    raise AssertionError("nothing is left to run")


def trial(seed=0, rounds=4, **more):
    return Trial("Factors", DATA, HONEST, "loo99", seed, fedmf(DATA, rounds, **more))


def quietly(results):
    return lambda one, probes: carry_out(one, results, probes)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All runs of the grid."""
    kept = Results(tmp_path_factory.mktemp("results"), "toy")
    assert run_all(trials_of(GRID), {}, quietly(kept)) == {}
    return kept


def test_a_trial_is_a_row_on_a_set_in_a_form_with_a_seed():
    trials = trials_of(GRID, seeds=2)
    assert len(trials) == 2 * 2 * 2 and {one.protocol for one in trials} == {"loo99", "loo99-paper"}
    assert trials[0].given == {"algorithm": "popularity", "data": DATA, "protocol": "loo99-paper", "seed": 0}
    assert [one.seed for one in trials] == [0] * 4 + [1] * 4
    assert len(trials_of(GRID, rows=["Factors"])) == 2 and trials_of(GRID, data=["other"]) == []
    assert {one.protocol for one in trials_of(GRID, protocols=["loo99"])} == {"loo99"}


def test_the_name_is_that_of_the_settings():
    assert trial().name.startswith("demo-users-60-items-360-interactions_per_user-14/loo99/fedmf-")
    assert trial().name.endswith("-s0")
    assert replace(trial(), row="Another label").name == trial().name
    assert trial(checkpoint_every=3, store="disk").name == trial().name
    names = {trial().name, trial(1).name, trial(rounds=5).name, replace(trial(), protocol="loo-full").name}
    assert len(names) == 4


def test_a_run_that_two_tables_need_is_made_once():
    twins = [trial(), trial(1), replace(trial(), row="Another label")]
    assert distinct(twins) == twins[:2]


def test_results_are_small_json_and_nothing_else_is_left(results):
    files = sorted(path for path in results.folder.rglob("*") if path.is_file())
    assert files == sorted(results.path(one) for one in trials_of(GRID))
    assert max(path.stat().st_size for path in files) < 20_000
    kept = json.loads(results.path(trial()).read_text())
    promised = {"given", "settings", "data", "protocol", "seed", "best_round", "rounds", "metrics", "validation"}
    assert promised | {"intervals", "references", "seconds", "bytes", "peak_rss_mb", "versions", "curve"} <= kept.keys()
    assert kept["given"] == trial().given and kept["settings"]["batch_size"] == 256
    assert kept["curve"]["round"] == [1, 2, 3, 4]
    columns = {"validation hr@10", "test hr@10", "validation ndcg@10", "test ndcg@10", "loss"}
    assert columns <= kept["curve"].keys() and all(len(column) == 4 for column in kept["curve"].values())
    best = kept["curve"]["round"].index(kept["best_round"])
    assert kept["curve"]["test hr@10"][best] == pytest.approx(kept["metrics"]["hr@10"], rel=1e-4)


def test_the_second_call_runs_nothing(results, monkeypatch):
    monkeypatch.setattr(running, "execute", never)
    monkeypatch.setattr(running, "resume", never)
    assert run_all(trials_of(GRID), {}, quietly(results)) == {}
    with pytest.raises(AssertionError, match="nothing is left to run"):
        carry_out(trial(rounds=5), results)


def strike_at(number):
    def strike(record, simulation):
        if record.round == number:
            signal.raise_signal(signal.SIGINT)

    return strike


ROUNDS = Probe("rounds", lambda simulation, seen: {"seen": seen}, of_round=lambda simulation: simulation.state.round)


def test_an_interrupted_run_goes_on_and_its_probes_see_each_round_once(results, tmp_path, monkeypatch):
    own = Results(tmp_path, "toy")
    with pytest.raises(KeyboardInterrupt):
        carry_out(trial(), own, [ROUNDS], on_round=strike_at(1))
    folder = own.running(trial())
    assert (folder / "checkpoint.safetensors").exists() and not own.path(trial()).exists()
    monkeypatch.setattr(running, "execute", never)
    again = carry_out(trial(), own, [ROUNDS])
    assert again["metrics"] == results.read(trial())["metrics"]
    assert own.measured(trial(), ROUNDS) == {"seen": [1, 2, 3, 4]}
    assert list((tmp_path / ".running").iterdir()) == []


def test_a_run_that_a_probe_missed_the_beginning_of_is_made_again(tmp_path):
    own = Results(tmp_path, "toy")
    with pytest.raises(KeyboardInterrupt):
        carry_out(trial(), own, on_round=strike_at(1))
    carry_out(trial(), own, [ROUNDS])
    assert own.measured(trial(), ROUNDS) == {"seen": [1, 2, 3, 4]}


def test_a_run_that_died_after_its_last_round_is_not_made_again(results, tmp_path, monkeypatch):
    own = Results(tmp_path, "toy")
    with monkeypatch.context() as patch:
        patch.setattr(running, "_keep", never)
        with pytest.raises(AssertionError):
            carry_out(trial(), own)
    assert (own.running(trial()) / "summary.json").exists()
    assert not (own.running(trial()) / "model.safetensors").exists()
    monkeypatch.setattr(running, "execute", never)
    monkeypatch.setattr(running, "resume", never)
    assert carry_out(trial(), own)["metrics"] == results.read(trial())["metrics"]


def test_what_fails_is_a_sentence_and_the_others_go_on(results, tmp_path):
    bad = [Row("Typo", lambda _: {"algorithm": "fedmff"}), Row("Wrong", lambda _: fedmf(DATA, ratio=1))]
    broken = Grid("2", "Broken", (*bad, Row("Popular", popularity)), (DATA,), forms=(HONEST,), seeds=1)
    trials = trials_of(broken)
    failed = run_all(trials, {}, quietly(results))
    assert set(failed) == {trials[0].name, trials[1].name}
    assert failed[trials[0].name] == "There is no algorithm 'fedmff'; did you mean 'fedmf'?"
    assert "There is no setting 'ratio'" in failed[trials[1].name]


def test_an_unforeseen_failure_leaves_its_trace_and_a_way_on(tmp_path):
    own = Results(tmp_path, "toy")

    def fail(record, simulation):
        raise ZeroDivisionError("of no\nuse")

    failed = run_all([trial()], {}, lambda one, probes: carry_out(one, own, probes, on_round=fail))
    assert failed == {trial().name: "ZeroDivisionError: of no use"}
    trace = next((tmp_path / ".running").glob("*.error.txt"))
    assert "in fail" in trace.read_text()
    carry_out(trial(), own)
    assert not trace.exists()


def test_two_processes_do_not_run_the_same(tmp_path):
    own = Results(tmp_path, "toy")
    with own.claimed(trial()):
        with pytest.raises(CoterieError, match="Another process is running it"):
            carry_out(trial(), own)
        with own.claimed(trial(1)):
            pass
    with own.claimed(trial()):
        pass


def test_damaged_results_are_named(tmp_path):
    own = Results(tmp_path, "toy")
    path = own.path(trial())
    write_json(path, {"loss": [1.0, float("nan"), {"deep": float("inf")}], "name": "é"})
    assert read_json(path) == {"loss": [1.0, None, {"deep": None}], "name": "é"}
    path.write_text(path.read_text()[:-4])
    with pytest.raises(CoterieError, match="may be damaged"):
        own.read(trial())


def paper_of(*figures):
    return Paper("toy", "Toys", "here", (GRID,), figures, Quick(DATA, lambda settings: settings | {"rounds": 2}))


def figure_of(grid):
    return Figure(grid, lambda grid, samples: Chart("", ()), ROUNDS)


def test_a_run_that_is_due_serves_the_figures_on_the_way(results, tmp_path):
    shown = replace(GRID, number="7", forms=(HONEST,), rows=(Row("Factors", fedmf),))
    paper = paper_of(figure_of(shown))
    own = Results(tmp_path, "toy")
    assert choose(paper, tables=["1"]).probes(own) == {trial().name: [ROUNDS]}
    assert choose(paper, tables=["1"]).probes(results) == {}
    assert choose(paper, figures=["7"]).probes(results) == {trial().name: [ROUNDS]}
    assert not is_done(trial(), results, [ROUNDS]) and is_done(trial(), results, [])
    assert len(choose(paper).all_trials()) == 4


def test_the_small_version_changes_settings_and_data():
    large = replace(GRID, data=("ml-1m", "ml-100k"), seeds=5, quick=("Factors",))
    paper = replace(paper_of(), tables=(large, replace(GRID, number="2")))
    small = choose(paper, quick=True)
    assert [grid.number for grid in small.tables] == ["1"]
    assert [(one.row, one.data, one.settings["rounds"]) for one in small.all_trials()] == [("Factors", DATA, 2)] * 2
    assert len(choose(paper, tables=["2"], quick=True).all_trials()) == 4


def test_a_set_that_is_not_declared_is_the_users_own():
    shown = replace(GRID, number="7", data=("ml-1m",))
    paper = paper_of(figure_of(shown))
    assert {one.data for one in choose(paper, tables=["1"], data=["demo"]).all_trials()} == {"demo"}
    both = choose(paper, figures=["7"], data=["demo:users=50", "ml-1m"])
    assert {one.data for one in both.all_trials()} == {"demo:users=50", "ml-1m"}
    assert set(both.probes(Results(Path("nowhere"), "toy"))) == {one.name for one in both.all_trials()}
    assert not choose(paper, tables=["1"], figures=["7"], data=["ml-1m"]).trials(GRID)


def test_results_of_a_file_are_those_of_what_it_holds(tmp_path):
    here, there = tmp_path / "mine.csv", tmp_path / "other" / "mine.csv"
    there.parent.mkdir()
    for place, rating in ((here, 3), (there, 4)):
        place.write_text(f"user,item,rating\n1,1,{rating}\n")
    first, again, other = (replace(trial(), data=str(place)).name for place in (here, here, there))
    assert first == again != other
    assert first.startswith("mine.csv-") and other.startswith("mine.csv-")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"tables": ["11"]}, "There is no table of toy '11'; did you mean '1'?"),
        ({"figures": ["1"]}, "There is no figure of toy '1'"),
        ({"data": ["dema"]}, "There is no data set 'dema'; did you mean 'demo'?"),
        ({"data": ["mine/ratings.csv"]}, "The file mine/ratings.csv does not exist"),
        ({"rows": ["Factor"]}, "There is no row of this part of toy 'Factor'; did you mean 'Factors'?"),
        ({"protocols": ["loo"]}, "There is no protocol of this part of toy 'loo'; did you mean 'loo99'?"),
        ({"seeds": 0}, "The number of seeds is 0"),
    ],
)
def test_names_that_mean_nothing(words, sentence):
    with pytest.raises(CoterieError) as error:
        choose(paper_of(), **words)
    assert str(error.value).startswith(sentence)


def test_forms():
    assert GRID.protocol_of(PAPER) == "loo99-paper" and GRID.protocol_of(HONEST) == "loo99"
