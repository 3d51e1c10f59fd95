"""Runs that share a GPU: how many, and the MPS daemon, started where it may be and ended with the sweep."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.runs.executors import gpus, mps


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control program that notes how it is called and, where a file `refuse` lies beside it, fails."""
    program = tmp_path / mps.CONTROL
    program.write_text(f'#!/bin/sh\necho "$* $(cat) ${mps.PIPES}" >> {tmp_path}/calls\ntest ! -e {tmp_path}/refuse\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv(mps.PIPES, raising=False)
    (tmp_path / "calls").touch()
    return tmp_path / "calls"


def test_it_runs_as_long_as_the_sweep(calls: Path) -> None:
    with mps.running(True) as ours:
        assert ours
        folder = os.environ[mps.PIPES]
        assert Path(folder).is_dir()
    assert mps.PIPES not in os.environ
    assert not Path(folder).exists()
    assert [line.split() for line in calls.read_text().splitlines()] == [["-d", folder], ["quit", folder]]


def test_it_is_not_started_where_none_is_wanted_or_one_is_there(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mps.running(False) as ours:
        assert not ours
    monkeypatch.setenv(mps.PIPES, "/somewhere")
    with mps.running(True) as ours:
        assert not ours
        assert os.environ[mps.PIPES] == "/somewhere"
    assert calls.read_text() == ""


def test_where_it_may_not_start_runs_go_on_without(calls: Path, caplog: pytest.LogCaptureFixture) -> None:
    (calls.parent / "refuse").touch()
    with caplog.at_level(logging.WARNING), mps.running(True) as ours:
        assert not ours
    assert "take turns" in caplog.text
    assert len(calls.read_text().splitlines()) == 1


def watched(sharing: gpus.Sharing, rate: Callable[[int], float], memory: float, seconds: float = 60.0) -> gpus.Sharing:
    """After so long of reports twice a second from every run, each at `rate(runs)` images a second."""
    for tick in range(round(2 * seconds)):
        for slot in range(sharing.gpus * sharing.allowed):
            sharing.note(slot, {"images": rate(sharing.allowed) / 2, "memory": memory}, tick / 2)
    return sharing


def test_runs_are_let_in_while_all_of_them_get_faster() -> None:
    """A GPU that does at most 3,000 images a second, shared alike, where one run alone reaches 800."""
    sharing = watched(gpus.Sharing(gpus=2, memory=80e9), lambda runs: min(800.0, 3000 / runs), 1e9)
    assert (sharing.allowed, sharing.settled) == (4, True)
    small = watched(gpus.Sharing(gpus=1, memory=16e9), lambda runs: 800.0, 3e9)
    assert small.allowed == 2, "four of them would need 16 GB"
    large = watched(gpus.Sharing(gpus=1, memory=16e9), lambda runs: 800.0, 9e9)
    assert (large.allowed, large.settled) == (1, True), "two of them would need 20 GB"
    full = watched(gpus.Sharing(gpus=1, memory=80e9), lambda runs: 7000 / runs, 3e9)
    assert (full.allowed, full.settled) == (4, True), "eight are not faster"


def short_runs(sharing: gpus.Sharing, steps: float, around: float, together: float, seconds: float) -> gpus.Sharing:
    """Runs of so many steps, `around` seconds between two of a worker, on a GPU that makes `together` steps a second.

    Those that train share it alike, none makes more than half of it, and workers begin a second apart.
    """
    tick = 0.1
    left: dict[int, float] = {}
    resumes: dict[int, float] = {}
    for now in (tick * i for i in range(round(seconds / tick))):
        for slot in range(sharing.allowed):
            resumes.setdefault(slot, now + slot)
        training = [slot for slot in range(sharing.allowed) if resumes[slot] <= now]
        done = tick * min(together / 2, together / max(1, len(training)))
        for slot in training:
            left[slot] = left.get(slot, steps) - done
            sharing.note(slot, {"images": done, "memory": 1e9}, now)
            if left[slot] <= 0:
                sharing.ended(slot)
                left[slot], resumes[slot] = steps, now + around
    return sharing


def test_short_runs_are_let_in_until_the_time_between_them_is_filled() -> None:
    """The GPU makes 200 steps a second with two runs or more; on an H200 some 2 s lie between two runs of 420 steps."""
    for around, allowed in ((6.0, 8), (2.0, 4), (0.2, 4)):
        sharing = short_runs(gpus.Sharing(gpus=1, memory=80e9), 420, around, together=200, seconds=200)
        assert (sharing.allowed, sharing.settled) == (allowed, True), around


def test_a_run_that_compiles_in_between_does_not_decide_for_all() -> None:
    sharing = gpus.Sharing(gpus=1, memory=80e9)
    for tick in range(400):
        for slot in range(sharing.allowed):
            if slot == 0 and 20 <= tick < 60:  # its second run, which compiles
                continue
            if slot == 0 and tick == 19:
                sharing.ended(slot)
            sharing.note(slot, {"images": 500.0, "memory": 1e9}, tick / 2)
    assert (sharing.allowed, sharing.settled) == (8, True)


def test_runs_of_a_few_seconds_count_though_none_lasts_long() -> None:
    """Each reports for two seconds, then three pass until the next run of its worker begins to train."""
    sharing = gpus.Sharing(gpus=1, memory=80e9)
    for tick in range(240):
        for slot in range(sharing.allowed):
            if tick % 10 < 5:
                sharing.note(slot, {"images": 500.0, "memory": 1e9}, tick / 2)
            elif tick % 10 == 5:
                sharing.ended(slot)
    assert (sharing.allowed, sharing.settled) == (8, True)
