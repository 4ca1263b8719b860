"""Bad input gets one clear sentence and exit code 2; nothing is written or lost."""

import shutil
import signal
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from small import DATA, SMALL

from coterie import cli
from coterie.cli.progress import Watch

pytestmark = pytest.mark.xdist_group("cli")

ROWS = [(user, item, 1 + (user + item) % 5) for user in range(4) for item in range(6)]


def ratings(path, rows=ROWS, header="user_id,item_id,rating", separator=","):
    path.write_text("\n".join([header, *(separator.join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory):
    """A run that a signal stopped after its third round."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"

    def strike(self, record, simulation):
        if record.round == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "round", strike)
        assert cli.main(["run", "fedmf", *SMALL, "--rounds", "9", "--out", str(folder)]) == cli.INTERRUPTED
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    return folder


@pytest.fixture
def broken(interrupted, tmp_path):
    """A copy of that run to be broken."""
    return shutil.copytree(interrupted, tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rnu", "fedmf"], "There is no verb 'rnu'; did you mean 'run'?"),
        (["data", "lst"], "There is no verb 'lst'; did you mean 'list'?"),
        (["run"], "Missing argument"),
        (["run", "fedmf", "--rouns", "3"], "--rounds"),
        (["run", "fedmf", "--rounds", "many"], "Invalid value for '--rounds'"),
        (["run", "fedmff"], "There is no algorithm 'fedmff'; did you mean 'fedmf'?"),
        (["run", "./nowhere.py"], "There is no file nowhere.py"),
        (["run", "nowhere.yaml"], "There is no file nowhere.yaml"),
        (["run", "fedmf", "--data", "ml-100"], "There is no data set 'ml-100'; did you mean 'ml-100k'?"),
        (["run", "fedmf", "--data", "demo:user=9"], "There is no option of the demo set 'user'; did you mean 'users'?"),
        (["run", "fedmf", "--data", "no/where.csv"], "The file no/where.csv does not exist"),
        (["run", "fedmf", "--protocol", "loo9"], "There is no protocol 'loo9'; did you mean 'loo99'?"),
        (["run", "fedmf", "--set", "embeding_dim=8"], "did you mean 'embedding_dim'?"),
        (["run", "fedmf", "--set", "embedding_dim"], "--set takes key=value, not 'embedding_dim'"),
        (["run", "fedmf", "--set", "lr=fast"], "'lr' cannot be 'fast'"),
        (["run", "fedmf", "--set", "lr=nan"], "'lr' cannot be nan"),
        (["run", "fedmf", "--rounds", "3", "--set", "rounds=4"], "rounds is given twice"),
        (["run", "fedmf", "--rounds", "0"], "'rounds' cannot be 0"),
        (["run", "fedmf", "--seed", "-1"], "'seed' cannot be -1"),
        (["run", "local", "--protocol", "rating-dirichlet"], "local does ranking"),
        (["resume", "nowhere"], "nowhere is not a run directory"),
        (["recommend", "nowhere", "--user", "1"], "nowhere is not a run directory"),
        (["cite", "nowhere"], "nowhere is not a run directory"),
        (["compare", "fedmf", "fedmf"], "fedmf is there twice"),
        (["compare", "fedmf", "--seeds", "0"], "The number of seeds is 0"),
        (["compare", "fedmf", "popularity", "--set", "lr=1"], "popularity: There is no setting 'lr'"),
        (["compare", "fedmf", "--set", "seed=1"], "leave them out of the settings"),
    ],
)
def test_words_that_mean_nothing(refused, words, sentence):
    assert sentence in refused(*words)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_text(""), "is empty"),
        (lambda path: path.write_text("user_id,item_id\n"), "has no rows below its header"),
        (lambda path: ratings(path, header="user_id;item_id;rating", separator=";"), "looks separated by ';'"),
        (lambda path: ratings(path, header="who,item_id,rating"), "user column"),
        (lambda path: ratings(path, [*ROWS, (1, 9, "good")]), "line 26"),
        (lambda path: ratings(path, [*ROWS, (1, 9, "nan")]), "line 26"),
        (lambda path: ratings(path, [*ROWS, (9, 1, 3)]), "user '9' has 1 interaction; leave-one-out needs at least 3"),
    ],
)
def test_files_that_are_no_ratings(refused, tmp_path, make, sentence):
    make(tmp_path / "mine.csv")
    assert sentence in refused("run", "popularity", "--data", "mine.csv", "--protocol", "loo-full")


def test_duplicate_pairs_are_dropped_and_said_or_refused(coterie, refused, tmp_path):
    ratings(tmp_path / "mine.csv", [*ROWS, ROWS[0]], header="user_id,item_id,rating")
    words = ["run", "popularity", "--data", "mine.csv", "--protocol", "ratio-full", "--rounds", "1", "--out", "run"]
    assert "1 repeated (user, item) rows" in refused(*words, "--set", "deduplicate=false")
    assert "dropped 1 repeated (user, item) pair" in coterie(*words).out


def test_settings_files_that_hold_none(refused, tmp_path):
    (tmp_path / "list.yaml").write_text("- fedmf\n")
    assert "holds no settings" in refused("run", "list.yaml")
    (tmp_path / "broken.yaml").write_text("algorithm: [fedmf\n")
    assert "is not YAML" in refused("run", "broken.yaml")
    (tmp_path / "typo.yaml").write_text("algorithm: fedmf\nrouns: 3\n")
    assert "did you mean 'rounds'?" in refused("run", "typo.yaml")


def test_own_files_that_are_no_algorithms(refused, tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_of_that_name\n")
    assert "bad.py cannot be loaded: ModuleNotFoundError" in refused("run", "bad.py")
    (tmp_path / "half.py").write_text("info = None\n")
    assert "it lacks Config, init_server, score" in refused("run", "./half.py")


def test_a_folder_in_use_is_left_alone(refused, finished, broken, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    words = ["run", "fedmf", *SMALL, "--out"]
    assert refused(*words, "full").endswith("full is not empty; choose another --out.\n")
    assert "file is a file" in refused(*words, "file")
    assert refused(*words, "run").endswith("or run: coterie resume run\n")
    assert (tmp_path / "full" / "thesis.tex").read_text() == "precious"
    assert "is finished" in refused("resume", finished)


def test_a_folder_that_cannot_be_made(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused("run", "popularity", "--data", DATA, "--out", "file/run")


def test_users_and_lengths_that_are_not_there(refused, finished, interrupted):
    assert "User 'nobody' is not in demo" in refused("recommend", finished, "--user", "nobody")
    assert "k is 0; choose a number from 1 to" in refused("recommend", finished, "--user", "1", "-k", "0")
    assert "k is 100000" in refused("recommend", finished, "--user", "1", "-k", "100000")
    assert "is not finished; run: coterie resume" in refused("recommend", interrupted, "--user", "1")


def rewrite_header(path, change):
    with safe_open(path, framework="numpy") as file:
        about = file.metadata()["coterie"]
    save_file(load_file(path), path, metadata={"coterie": change(about)})


def test_checkpoint_of_another_version(refused, broken):
    rewrite_header(broken / "checkpoint.safetensors", lambda about: about.replace('"format": 1', '"format": 99'))
    assert "was written by another version (format 99, not 1)" in refused("resume", "run")


def test_checkpoint_of_another_algorithm(refused, broken):
    config, only_fedmf = broken / "config.yaml", ("item_lr", "init_scale", "optimiser", "weight_decay")
    text = config.read_text().replace("algorithm: fedmf", "algorithm: mf").splitlines()
    config.write_text("\n".join(line for line in text if not line.startswith(only_fedmf)))
    assert "belongs to another run: its algorithm is 'fedmf', not 'mf'" in refused("resume", "run")


def test_checkpoint_with_other_settings(refused, broken):
    config = broken / "config.yaml"
    config.write_text(config.read_text().replace("seed: 0", "seed: 1"))
    assert "belongs to another run: its seed is 0, not 1" in refused("resume", "run")


def test_checkpoint_with_another_rate(refused, broken):
    config = broken / "config.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("negatives:")]
    config.write_text("\n".join([*lines, "negatives: 7"]))
    assert "belongs to another run: its negatives is the default, not 7" in refused("resume", "run")


def test_checkpoint_of_a_version_that_lacks_a_setting_goes_on(broken):
    path, config = broken / "checkpoint.safetensors", broken / "config.yaml"
    with safe_open(path, "numpy") as file:
        assert '"weight_decay"' not in file.metadata()["coterie"]
    config.write_text("\n".join(x for x in config.read_text().splitlines() if not x.startswith("weight_decay:")))
    assert cli.main(["resume", str(broken)]) == 0


@pytest.mark.parametrize("kept", [0, 4, 0.5])
def test_truncated_checkpoint(refused, broken, kept):
    path = broken / "checkpoint.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw[: kept if isinstance(kept, int) else int(kept * len(raw))])
    assert "checkpoint.safetensors cannot be read, it may be damaged" in refused("resume", "run")


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "model.safetensors", "per_user.safetensors"])
def test_damaged_run(refused, finished, tmp_path, name):
    folder = shutil.copytree(finished, tmp_path / "run")
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: len(raw) // 2])
    assert "it may be damaged" in refused("recommend", "run", "--user", "1")


def test_bad_input_names_no_inner_part(refused):
    assert "pydantic" not in refused("run", "fedmf", "--set", "batch_size=[1")
    assert Path("runs").exists() is False
