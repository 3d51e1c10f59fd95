"""What a sweep says on its way where there is no terminal."""

from __future__ import annotations

import re

import pytest

from benchmark.runs.progress import Progress


def test_progress_in_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(2, 8, terminal=False, interval=0)
    progress.start("a", "first", 4)
    progress.epoch("a", {"epoch": 3, "loss": 1.0})
    assert (progress.position, progress.fresh) == (3, 1)
    progress.epoch("a", {"epoch": 4, "loss": 1.0})
    progress.done("a")
    progress.start("b", "second", 4)
    progress.failed("b", "made to fail")
    progress.close()
    out = capsys.readouterr().out
    assert "running first (epoch 3 of 4)" in out
    assert re.search(r"\[1/2\] done    first, \d+ s left", out)
    assert "[2/2] FAILED  second: made to fail" in out


def test_epochs_of_an_earlier_sweep_are_no_speed_of_this_one() -> None:
    progress = Progress(2, 20, terminal=False)
    for key in "ab":
        progress.start(key, key, 10)
        progress.epoch(key, {"epoch": 6})  # resumed
    assert (progress.position, progress.fresh, progress.left()) == (12, 0, None)
    progress.epoch("a", {"epoch": 6, "loss": 1.0, "step": 50})
    progress.epoch("a", {"epoch": 7, "loss": 1.0})
    assert (progress.position, progress.fresh) == (13, 1)
    progress.close()


def test_a_frozen_network_has_no_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(1, 0, terminal=False, interval=0)
    progress.start("a", "cub/1 frozen", 0)
    progress.tick()
    progress.done("a")
    progress.close()
    said = capsys.readouterr().out.splitlines()
    assert said == ["[0/1] running cub/1 frozen (embedding)", "[1/1] done    cub/1 frozen"]
