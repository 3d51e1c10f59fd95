"""Kills at random moments: whatever happens, every run ends with the record of an undisturbed one, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import chaos, chaos_commands

SEED = int(os.environ.get("OODML_CHAOS_SEED", "0"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds processes in /proc")
@pytest.mark.parametrize(("kills", "epochs"), [(6, 12), pytest.param(60, 40, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_done_twice(kills: int, epochs: int, tmp_path: Path) -> None:
    disturbed = chaos.check(tmp_path, kills, seeds=1, epochs=epochs, seed=SEED)
    assert disturbed.kills.total() >= kills
    assert disturbed.kills["training"] > kills / 2, dict(disturbed.kills)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the commands run in forks")
def test_a_command_that_was_killed_is_given_again() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.chaos_commands", "--build-kills", "3", "--kills", "2", "--seed",
                           str(SEED)], cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kills in") == len(chaos_commands.SCENES)
