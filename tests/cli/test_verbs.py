import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from small import DATA, SMALL

import coterie as ct
from coterie.cli import arguments
from coterie.cli.cite import of_data
from coterie.cli.progress import Watch
from coterie.cli.run import show_result

pytestmark = pytest.mark.xdist_group("cli")


def test_run_shows_rounds_notes_references_and_cost(coterie):
    answer = coterie("run", "fedmf", *SMALL, "--rounds", "3")
    assert answer.code == 0 and answer.err == ""
    assert "protocol loo99: Each user's last item" in answer.out
    assert "fedmf on demo:users=60,items=360,interactions_per_user=14, protocol loo99, seed 0" in answer.out
    for number in (1, 2, 3):
        assert re.search(rf"round {number}/3  loss \S+  hr@10 0\.\d+  \d+ s  \S+ [kM]B", answer.out)
    (folder,) = Path("runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    row = re.search(r"fedmf +(\S+) +(\S+) to (\S+) +(\S+) +(\S+)", answer.out)
    interval = summary["intervals"]["hr@10"]
    shown = [float(cell) for cell in row.groups()]
    metrics = summary["metrics"]
    expected = [metrics["hr@10"], interval["low"], interval["high"], metrics["ndcg@10"], metrics["mrr@10"]]
    assert shown == pytest.approx(expected, abs=6e-4)
    for name in ("popularity", "item bias", "user + item bias", "EASE"):
        assert re.search(rf"^ {re.escape(name)} +0\.\d+", answer.out, re.MULTILINE), name
    for word in ("seconds ", "bytes ", "memory ", "written "):
        assert word in answer.out


def test_filters_and_references_that_are_left_out_say_why(coterie):
    answer = coterie("run", "popularity", "--data", DATA, "--rounds", "1", "--set", "binarise=true")
    assert "  counted every interaction as 1\n" in answer.out
    assert "item bias left out: all training ratings are equal." in answer.out


def test_default_folders_are_numbered(coterie, tmp_path):
    names = []
    for _ in range(3):
        answer = coterie("run", "popularity", "--data", DATA, "--rounds", "1", "--seed", "4")
        names.append(answer.out.split("written   ")[1].split()[0])
    stem = "runs/demo-users-60-items-360-interactions_per_user-14-popularity-loo99-seed4"
    assert names == [stem, f"{stem}-2", f"{stem}-3"]
    assert all((tmp_path / name / "summary.json").exists() for name in names)


def test_a_long_run_prints_about_ten_lines(coterie):
    answer = coterie("run", "popularity", "--data", DATA, "--rounds", "45", "--out", "run")
    assert len(re.findall(r"^round +\d+/45 ", answer.out, re.MULTILINE)) == 10
    assert "round 45/45" in answer.out


def test_config_of_a_run_runs_again_and_the_command_line_wins(coterie, finished):
    config = finished / "config.yaml"
    answer = coterie("run", config, "--seed", "1", "--out", "again")
    assert answer.code == 0
    again = Path("again/config.yaml").read_text()
    assert yaml.safe_load(again) == yaml.safe_load(config.read_text()) | {"seed": 1}
    lines = again.splitlines()
    assert "seed: 1  # command line" in lines
    assert f"rounds: 3  # {config}" in lines


def test_recommend_gives_unseen_items_in_order(coterie, finished):
    answer = coterie("recommend", finished, "--user", "7", "-k", "4")
    run = ct.load_run(finished)
    expected = run.recommend("7", 4)
    seen = run.problem.data.items[run.problem.data.users == run.problem.data.user_number("7")]
    assert not {run.problem.data.item_ids.index(item.item) for item in expected} & set(seen.tolist())
    places = [answer.out.index(f" {item.title} ") for item in expected]
    assert answer.code == 0 and places == sorted(places)
    assert f"{expected[0].score:.4f}" in answer.out


def test_an_own_algorithm_runs_by_path_and_its_run_can_move(coterie, tmp_path):
    assert "coterie run ./mine.py" in coterie("new", "mine").out
    answer = coterie("run", "./mine.py", "--data", DATA, "--rounds", "2", "--out", "run")
    assert answer.code == 0 and "mine on demo" in answer.out
    before = coterie("recommend", "run", "--user", "1").out
    (tmp_path / "mine.py").write_text("this is no longer Python")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").rename(tmp_path / "elsewhere" / "moved")
    answer = coterie("recommend", "elsewhere/moved", "--user", "1")
    assert answer.code == 0 and answer.out == before


def test_new_refuses_bad_names_and_never_overwrites(refused, coterie, tmp_path):
    coterie("new", "mine")
    text = (tmp_path / "mine.py").read_text()
    assert 'name="mine"' in text and "template" not in text
    assert "mine.py exists already" in refused("new", "mine")
    assert (tmp_path / "mine.py").read_text() == text
    assert "cannot name an algorithm" in refused("new", "my-algorithm")
    assert "cannot name an algorithm" in refused("new", "class")
    assert "is an algorithm of Coterie" in refused("new", "fedmf")


def test_list_names_paper_task_and_what_the_server_sees(coterie):
    out = coterie("list").out
    assert re.search(r"fedmf +ranking +sums +complete", out)
    assert "Secure Federated Matrix" in out
    assert re.search(r"ncf +ranking +everything", out)


def test_cite_prints_bibtex(coterie, finished):
    out = coterie("cite", finished).out
    assert f"version = {{{ct.__version__}}}" in out
    assert "@article{chai2021secure," in out
    assert "% demo" in out


def test_cite_knows_the_named_sets():
    assert "Harper" in of_data("ml-100k") and of_data("ml-100k").startswith("@misc{ml-100k,")


def test_doctor_finds_what_is_wrong(coterie, monkeypatch, tmp_path):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    (tmp_path / "ml-100k").mkdir()
    answer = coterie("doctor")
    assert answer.code == 0 and "failed" not in answer.out
    assert "ml-100k" in answer.out and "jaxlib" in answer.out
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path / "nowhere"))
    answer = coterie("doctor")
    assert answer.code == 1
    assert re.search(r"COTERIE_DATA +failed", answer.out)


def test_a_diverged_run_says_so(finished):
    run = ct.load_run(finished)
    run.history[1].metrics["loss"] = float("nan")
    text = StringIO()
    show_result(Console(file=text, width=100), run)
    assert "The loss is no number from round 2 on: the training diverged" in text.getvalue()


def test_help_and_version_do_not_wait_for_jax():
    code = (
        "import sys; from coterie.cli import main; main(['--help']); main(['--version']);"
        "sys.exit('jax' in sys.modules or 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"coterie {ct.__version__}" in done.stdout and "recommend" in done.stdout


def test_the_bar_shows_rounds_in_a_terminal(finished):
    run = ct.load_run(finished)
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with Watch(console) as watch:
        watch.start(run.simulation)
        for record in run.history:
            watch.round(record, run.simulation)
    shown = text.getvalue()
    assert "round 3/3" in shown and "hr@10" in shown and "MB" in shown
    assert max(len(line) for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", shown)) <= 80


def test_folder_names_are_safe():
    assert arguments.safe("../up/my ratings.csv") == "my-ratings"
    assert arguments.safe("a:b/c") == "c"
    assert arguments.safe("demo:noise=0.1") == "demo-noise-0.1"
    assert os.sep not in arguments.safe("///")
