"""The budget where a person reads it: on the screen and in the run directory."""

import json

import pytest
import yaml
from small import DATA

from coterie.experiment import config
from coterie.experiment.run import execute, load_run, resume

pytestmark = pytest.mark.xdist_group("cli")

SET = ("--data", DATA, "--rounds", "2")


def with_noise(**settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def everything_in(folder):
    """All text of a run directory, and all that its binary files say about themselves."""
    return b"".join(path.read_bytes() for path in folder.iterdir()).decode("utf-8", "ignore")


def test_with_clipping_the_budget_is_on_the_screen_and_in_the_directory(coterie, tmp_path):
    noise = with_noise(noise="laplace", noise_scale=4, clip=0.5)
    answer = coterie("run", "popularity", *SET, *noise, "--out", "run")
    assert answer.code == 0
    assert "noise     laplace, scale 4, uploads clipped to 0.5 before it" in answer.out
    assert "privacy   epsilon 0.25 per round, 0.5 in 2 rounds, delta 0, unit client: uploads are" in answer.out
    said = json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"]
    assert (said["epsilon_per_round"], said["epsilon"], said["delta"], said["rounds"]) == (0.25, 0.5, 0.0, 2)
    assert (said["mechanism"], said["scale"], said["clip"], said["unit"]) == ("laplace", 4.0, 0.5, "client")
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (written["noise"], written["noise_scale"], written["clip"]) == ("laplace", 4, 0.5)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_without_clipping_no_epsilon_is_printed_or_written(coterie, tmp_path, noise):
    answer = coterie("run", "popularity", *SET, *with_noise(noise=noise, noise_scale=4), "--out", "run")
    assert answer.code == 0
    assert "privacy   no guarantee: nothing bounds what one client uploads" in answer.out
    assert "epsilon" not in (answer.out + answer.err + everything_in(tmp_path / "run")).lower()


def test_an_interrupted_run_goes_on_with_the_same_noise_and_budget(tmp_path):
    given = {"algorithm": "popularity", "data": DATA, "rounds": 3, "checkpoint_every": 1}
    plan = config.plan(given | {"noise": "gaussian", "noise_scale": 2.0, "clip": 1.0})

    def stop(record, simulation):
        raise KeyboardInterrupt

    whole = execute(plan, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(plan, tmp_path / "cut", on_round=stop)
    rest = resume(tmp_path / "cut")
    assert rest.summary["privacy"] == whole.summary["privacy"]
    assert rest.summary["privacy"]["epsilon"] > rest.summary["privacy"]["epsilon_per_round"] > 0
    assert (rest.simulation.state.server.counts == whole.simulation.state.server.counts).all()
    assert load_run(tmp_path / "cut").summary["privacy"] == whole.summary["privacy"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"noise": "laplac"}, "The setting 'noise' cannot be 'laplac'"),
        ({"noise": "laplace", "noise_scale": -1}, "The setting 'noise_scale' cannot be -1"),
        ({"noise": "laplace", "noise_scale": 1, "clip": ".inf"}, "The setting 'clip' cannot be inf"),
        ({"noise": "gaussian", "noise_scale": 1, "delta": 0}, "The setting 'delta' cannot be 0"),
        ({"noise": "gaussian", "noise_scale": 1, "privacy_unit": "user"}, "The setting 'privacy_unit' cannot be"),
        ({"noise_scal": 1}, "There is no setting 'noise_scal'; did you mean 'noise_scale'?"),
        ({"noise": "gaussian"}, "noise=gaussian needs noise_scale"),
        ({"clip": 1}, "clip does nothing without noise"),
    ],
)
def test_bad_settings_are_one_sentence(refused, settings, sentence):
    assert sentence in refused("run", "popularity", *SET, *with_noise(**settings))
