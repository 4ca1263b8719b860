"""A run that is killed, interrupted or out of disk goes on as if nothing had happened."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file
from small import SMALL

from coterie import cli

pytestmark = pytest.mark.xdist_group("cli")

ROUNDS = 200
WORDS = ["run", "fedmf", *SMALL, "--rounds", str(ROUNDS)]
PATIENCE = 120.0


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The run that the others are compared with; it also fills the compilation cache for them."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert cli.main([*WORDS, "--checkpoint-every", "0", "--out", str(folder)]) == 0
    return folder


def started(folder, *words):
    command = [sys.executable, "-c", "import sys; from coterie.cli import main; sys.exit(main())", *WORDS, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, "--out", str(folder)], stdout=pipe, stderr=pipe, text=True, env=os.environ)


def wait_for(process, there):
    end = time.monotonic() + PATIENCE
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "the run does not get there"
        time.sleep(0.005)


def rounds_in(folder):
    file = folder / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def same_model(left, right):
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (left, right))
    assert ours.keys() == theirs.keys() and ours
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        assert np.array_equal(array.view(np.uint8), theirs[name].view(np.uint8)), name


def test_killed(uninterrupted, coterie, tmp_path):
    folder = tmp_path / "run"
    process = started(folder, "--checkpoint-every", "7")
    wait_for(process, lambda: (folder / "checkpoint.safetensors").exists() and rounds_in(folder) >= 16)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "summary.json").exists() and rounds_in(folder) < ROUNDS
    answer = coterie("resume", folder)
    assert answer.code == 0 and "going on after round" in answer.out
    same_model(uninterrupted, folder)
    assert rounds_in(folder) == ROUNDS
    assert not (folder / "checkpoint.safetensors").exists()
    assert "rounds: 200  # command line" in (folder / "config.yaml").read_text()


def test_interrupted(uninterrupted, coterie, tmp_path):
    folder = tmp_path / "run"
    process = started(folder, "--checkpoint-every", "0")
    wait_for(process, lambda: rounds_in(folder) >= 3)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    last = complaint.strip().splitlines()[-1]
    assert last == f"Interrupted; the checkpoint is kept, go on with: coterie resume {folder}"
    assert "Traceback" not in complaint
    assert (folder / "checkpoint.safetensors").exists() and rounds_in(folder) < ROUNDS
    assert coterie("resume", folder).code == 0
    same_model(uninterrupted, folder)


def test_full_disk(uninterrupted, coterie, tmp_path):
    """A file may not grow beyond a limit, as on a disk that fills up: the last checkpoint stays and is enough."""
    folder = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
    try:
        answer = coterie(*WORDS, "--checkpoint-every", "5", "--out", folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert answer.code == 2, answer
    assert answer.err.count("\n") == 1 and "cannot be written: File too large" in answer.err
    assert (folder / "checkpoint.safetensors").exists() and 5 <= rounds_in(folder) < ROUNDS
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert coterie("resume", folder).code == 0
    same_model(uninterrupted, folder)


def test_full_disk_for_the_rounds(coterie, tmp_path, monkeypatch):
    """The file of rounds meets the full disk before the first checkpoint."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, before[1]))
    try:
        answer = coterie(*WORDS, "--checkpoint-every", "0", "--out", tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "metrics.jsonl cannot be written: File too large; the last checkpoint is unchanged." in answer.err


def test_second_interrupt_stops_at_once(coterie, tmp_path, monkeypatch):
    from coterie.cli.progress import Watch

    def strike(self, record, simulation):
        if record.round == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Watch, "round", strike)
    answer = coterie(*WORDS, "--checkpoint-every", "0", "--out", "run")
    assert answer.code == 130
    assert answer.err.endswith("Interrupted before the first checkpoint; start again with: coterie resume run\n")
    assert rounds_in(tmp_path / "run") == 2
