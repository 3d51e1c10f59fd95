"""What a sweep says on its way where there is no terminal."""

from __future__ import annotations

import pytest

from benchmark.runs import progress as progress_module
from benchmark.runs.executors.outcomes import ELSEWHERE
from benchmark.runs.progress import Progress
from benchmark.runs.time_left import Work


def test_progress_in_a_log_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    work = {"a": "first", "b": "second", "c": "third", "d": "fourth"}
    progress = Progress({key: Work(label, 4) for key, label in work.items()}, terminal=False, interval=0)
    progress.start("a")
    for epoch in range(1, 5):
        now += 600.0 if epoch == 1 else 10.0
        progress.epoch("a", {"epoch": epoch, "loss": 1.0})
        assert progress.position == epoch
    progress.done("a", score="recall@1 50 %")
    progress.start("b")
    progress.failed("b", "made to fail")
    progress.done("c", ELSEWHERE)
    progress.start("d")
    progress.paused("d")
    progress.close()
    assert (progress.position, progress.epochs) == (12, 16)
    assert capsys.readouterr().out.splitlines() == [
        "[0/4] running first (epoch 1 of 4)",  # of the first epoch's seconds most were spent before it
        "[0/4] running first (epoch 2 of 4), 2.3 min left",
        "[0/4] running first (epoch 3 of 4), 2.2 min left",
        "[0/4] running first (epoch 4 of 4), 2.0 min left",
        "[1/4] done    first: recall@1 50 %, 2.0 min left",
        "[2/4] FAILED  second: made to fail, 1.3 min left",
        "[3/4] done elsewhere: third, 40 s left",
        "[3/4] saved   fourth, 40 s left"]


def test_epochs_of_an_earlier_sweep_are_no_speed_of_this_one() -> None:
    progress = Progress({key: Work(key, 10) for key in "ab"}, terminal=False)
    for key in "ab":
        progress.start(key)
        progress.epoch(key, {"epoch": 6})  # resumed
    assert (progress.position, progress.left()) == (12, None)
    progress.epoch("a", {"epoch": 6, "loss": 1.0, "step": 50})
    progress.epoch("a", {"epoch": 7, "loss": 1.0})
    assert (progress.position, progress.left()) == (13, None)
    progress.close()


def test_a_frozen_network_has_no_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress({"a": Work("cub/1 frozen")}, terminal=False, interval=0)
    progress.start("a")
    progress.tick()
    progress.done("a")
    progress.close()
    said = capsys.readouterr().out.splitlines()
    assert said == ["[0/1] running cub/1 frozen (embedding)", "[1/1] done    cub/1 frozen"]
