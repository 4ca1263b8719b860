import pytest
import yaml

from coterie import algorithms, attacks, defences
from coterie.cli.arguments import gather
from coterie.errors import CoterieError
from coterie.experiment import config

OWN = """
from coterie.algorithms.popularity import *
from coterie.algorithms.popularity import info as base
from dataclasses import replace
info = replace(base, name="own")
"""


def settings(plan):
    return config.to_yaml(plan, plan.algorithm.configure(plan.settings))


def test_every_value_has_its_origin_and_the_command_line_wins(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("algorithm: fedmf\nrounds: 7\nlr: 1e-2\nseed: 3\n")
    given, origins = gather(str(file), {"seed": 4, "data": None}, ["item_lr=1e3", "eval_every=2"])
    text = settings(config.plan(given, origins))
    lines = text.splitlines()
    assert f"algorithm: fedmf  # {file}" in lines
    assert f"rounds: 7  # {file}" in lines
    assert f"lr: 0.01  # {file}" in lines
    assert "seed: 4  # command line" in lines
    assert "item_lr: 1000.0  # command line" in lines
    assert "eval_every: 2  # command line" in lines
    assert "data: demo  # default" in lines
    assert len(lines) == 1 + len(yaml.safe_load(text))


def test_settings_survive_the_file(tmp_path):
    plan = config.plan({"algorithm": "fedncf", "layers": [8, 4], "patience": 3, "min_rating": 2.5})
    file = tmp_path / "config.yaml"
    file.write_text(settings(plan))
    again = config.plan(config.read_yaml(file), config.read_origins(file))
    assert again.values() == plan.values()
    assert settings(again) == settings(plan)


def test_values_on_the_command_line_are_what_they_look_like():
    assert config.parse("lr=1e-3") == ("lr", 0.001)
    assert config.parse("binarise=true") == ("binarise", True)
    assert config.parse("hidden=[64, 32]") == ("hidden", [64, 32])
    assert config.parse("min_rating=null") == ("min_rating", None)
    assert config.parse("data=a=b") == ("data", "a=b")


def test_a_key_of_another_algorithm_is_unknown():
    with pytest.raises(CoterieError, match="There is no setting 'item_lr'"):
        config.plan({"algorithm": "popularity", "item_lr": 1.0})


def test_paths_in_a_file_are_relative_to_it(tmp_path, monkeypatch):
    place = tmp_path / "my folder" / ("long " * 20)
    place.mkdir(parents=True)
    (place / "own.py").write_text(OWN)
    (place / "ratings.csv").write_text("user_id,item_id\n1,2\n")
    (place / "mine.yaml").write_text("algorithm: own.py\ndata: ./ratings.csv\n")
    monkeypatch.chdir(tmp_path)
    plan = config.plan(config.read_yaml(place / "mine.yaml"))
    assert plan.algorithm.info.name == "own" and plan.source == OWN
    assert plan.what.data == str((place / "ratings.csv").resolve())
    written = yaml.safe_load(settings(plan))
    assert written["algorithm"] == config.OWN_ALGORITHM
    assert written["data"] == plan.what.data


def test_a_name_stays_a_name_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    (tmp_path / "ml-100k").mkdir()
    monkeypatch.chdir(tmp_path)
    assert config.plan({"data": "demo"}).what.data == "demo"
    assert config.plan({"data": "ml-100k"}).what.data == "ml-100k"


def test_attack_defence_and_regulariser_bring_their_settings():
    given = {"algorithm": "rcl4fedrec", "attack": "a_hum", "hard_steps": 3, "defence": "trimmed_mean", "trim": 2}
    plan = config.plan(given | {"hot_items": 7})
    ready = plan.protection()
    assert ready.threat.config.hard_steps == 3 and ready.threat.share == 0.001
    assert ready.guard.config.trim == 2 and ready.popularity.hot_items == 7
    assert plan.values()["hard_steps"] == 3 and plan.exposed()["trim"] == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"attack": "a_hunn"}, "There is no attack 'a_hunn'; did you mean 'a_hum'"),
        ({"defence": "medain"}, "There is no defence 'medain'; did you mean 'median'"),
        ({"hard_steps": 3}, "There is no setting 'hard_steps'"),
        ({"hot_items": 3}, "There is no setting 'hot_items'"),
        ({"attack": "a_hum", "malicious": 0}, "'malicious' cannot be 0"),
    ],
)
def test_settings_that_are_not_there(given, sentence):
    with pytest.raises(CoterieError, match=sentence):
        config.plan({"algorithm": "fedsgd", **given})


def test_no_key_has_two_owners():
    """What an attack or a defence brings is a setting of nothing else."""
    shared = [config.What, config.Conduct, config.Filters, config.ProtocolOptions, config.RobustnessOptions]
    shared += [config.Privacy, config.Popularity, *(algorithms.get(name).Config for name in algorithms.names())]
    taken = {key for group in shared for key in group.model_fields}
    for brought in (attacks, defences):
        own = {key for name in brought.names() for key in brought.get(name).Config.model_fields}
        assert not own & taken
        taken |= own
