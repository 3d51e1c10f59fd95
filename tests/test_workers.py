"""How the workers of a sweep come into being: wherever the user stands, and however early somebody presses Ctrl-C."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmark.runs.interrupt import Brake
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

WORDS = ["run", *tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--seeds", "1"]


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    return tiny_sweep.workspace(tmp_path / "work")


def test_the_users_folder_does_not_matter_and_the_command_is_written_down(made: Workspace, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    for name in ("splits", "methods", "benchmark", "reports"):  # names that mean something else there
        (place / name).mkdir(parents=True)
    (place / "methods" / "__init__.py").touch()
    words = [*WORDS, "--work", str(made.root)]
    runner = subprocess.run([sys.executable, "-m", "oodml", *words], cwd=place, capture_output=True, text=True,
                            check=False)
    assert runner.returncode == 0, runner.stdout + runner.stderr
    (path,) = made.runs.rglob("record.json")
    assert json.loads(path.read_text())["provenance"]["command"] == shlex.join(["oodml", *words])


def server(session: int) -> bool:
    """Whether the process that workers are forked from runs in this session."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            own = int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session
            if own and "forkserver" in (path / "cmdline").read_text():
                return True
        except OSError:  # it is gone by now
            continue
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds processes in /proc")
def test_ctrl_c_while_workers_are_made_leaves_no_traceback(made: Workspace) -> None:
    runner = tiny_sweep.oodml(made, *WORDS)
    deadline = time.monotonic() + 60
    while not server(runner.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)  # so that it is in the middle of its imports
    os.killpg(runner.pid, signal.SIGINT)
    out, _ = runner.communicate(timeout=90)
    assert runner.returncode == 130, out
    assert "Traceback" not in out


SLOW = '''
import time
from methods import Objective, register

@register("slow", family="test")
class Slow(Objective):
    """A third of a second a step."""
    def forward(self, embeddings, labels):
        time.sleep(0.3)
        return embeddings.square().mean()
'''


def test_a_signal_to_all_processes_at_once_lets_workers_save(made: Workspace, tmp_path: Path) -> None:
    """As `timeout` and service managers send it."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    runner = tiny_sweep.oodml(made, "run", "--methods", "slow", "--plugin", str(tmp_path / "slow.py"), "--splits", "1",
                              "--seeds", "1", "--protocol", "demo", *tiny_sweep.WORDS, "--set", "steps_per_epoch=6",
                              "--set", "epochs=4")
    deadline = time.monotonic() + 90
    while not list(made.runs.rglob("slow/*/checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(runner.pid, signal.SIGTERM)
    out, _ = runner.communicate(timeout=90)
    assert runner.returncode == 75, out
    assert "died" not in out
    (kept,) = made.runs.rglob("slow/*/checkpoint-*")
    assert int(kept.name[-5:]) >= 2, "the epoch that it was in was finished and saved"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_is_heard_and_its_handler_put_back(number: int, code: int) -> None:
    before = signal.getsignal(number)
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})  # as a process inherits it from a server that is deaf
    with Brake() as brake:
        assert (brake.pressed, brake.exit_code) == (False, 0)
        os.kill(os.getpid(), number)
        assert (brake.pressed, brake.hard, brake.exit_code) == (True, False, code)
    assert signal.getsignal(number) is before
