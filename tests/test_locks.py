"""Locks of runs: one owner at a time, stale ones taken over, no clock of another machine believed."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark import cli
from benchmark.runs import locks, planned
from benchmark.runs.locks import Heartbeat, Lock, Watch
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep


class Clock:
    """A monotonic clock that goes on by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def from_elsewhere(folder: Path) -> None:
    """Make the newest lock look like that of another machine."""
    path = max(folder.glob("lock.*"), key=lambda path: int(path.suffix[1:]))
    beat, _, facts = path.read_text().partition("\n")
    path.write_text(f"{beat}\n{json.dumps({**json.loads(facts), 'machine': 'elsewhere', 'host': 'far'})}\n")


def look(watch: Watch, clock: Clock, folder: Path, seconds: float, every: float = 5.0) -> int | None:
    """Look again and again for some time; what the last look said."""
    free = watch.free(folder)
    for _ in range(int(seconds / every)):
        clock.now += every
        free = watch.free(folder)
    return free


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    assert Watch().free(tmp_path) == 0
    lock = Lock.take(tmp_path, 0)
    assert lock is not None
    assert Lock.take(tmp_path, 0) is None
    assert Watch().free(tmp_path) is None
    lock.release()
    assert Watch().free(tmp_path) == 1
    second = Lock.take(tmp_path, 1)
    assert second is not None
    assert not lock.beat()
    assert second.beat()
    second.done()
    assert not list(tmp_path.iterdir())


def test_a_standing_count_is_taken_over_and_its_owner_learns_it(tmp_path: Path) -> None:
    clock = Clock()
    watch = Watch(stale=60, clock=clock)
    lock = Lock.take(tmp_path, 0)
    assert lock is not None
    from_elsewhere(tmp_path)
    assert look(watch, clock, tmp_path, 50) is None
    lock.beat()
    assert look(watch, clock, tmp_path, 55) is None
    assert look(watch, clock, tmp_path, 10) == 1
    assert Lock.take(tmp_path, 1) is not None
    assert not lock.beat()
    lock.release()
    assert locks.newest(tmp_path).number == 2  # type: ignore[union-attr]
    assert Watch().free(tmp_path) is None


def test_a_watcher_that_was_stopped_has_seen_nothing(tmp_path: Path) -> None:
    clock = Clock()
    watch = Watch(stale=60, clock=clock)
    Lock.take(tmp_path, 0)
    from_elsewhere(tmp_path)
    watch.free(tmp_path)
    clock.now += 10_000
    assert watch.free(tmp_path) is None


@pytest.mark.parametrize("jump", [-10**6, 10**6])
def test_wall_clocks_decide_nothing(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    watch = Watch(stale=60, clock=clock)
    lock = Lock.take(tmp_path, 0)
    assert lock is not None
    from_elsewhere(tmp_path)
    for _ in range(30):
        clock.now += 5
        lock.beat()
        os.utime(lock.path, (time.time() + jump, time.time() + jump))
        assert watch.free(tmp_path) is None


def test_a_dead_process_of_this_machine_needs_no_waiting(tmp_path: Path) -> None:
    owner = multiprocessing.get_context("fork").Process(target=Lock.take, args=(tmp_path, 0))
    owner.start()
    owner.join()
    assert owner.exitcode == 0
    assert Watch().free(tmp_path) == (1 if locks.machine() else None)


def test_a_reused_process_number_is_another_process(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path, 0)
    assert lock is not None
    beat, _, facts = lock.path.read_text().partition("\n")
    lock.path.write_text(f"{beat}\n{json.dumps({**json.loads(facts), 'born': '1'})}\n")
    if not locks.machine():
        pytest.skip("this system does not tell when processes started")
    assert Watch().free(tmp_path) == 1


def test_an_empty_lock_file_is_held_until_it_is_stale(tmp_path: Path) -> None:
    (tmp_path / "lock.1").touch()
    clock = Clock()
    watch = Watch(stale=60, clock=clock)
    assert look(watch, clock, tmp_path, 50) is None
    assert look(watch, clock, tmp_path, 20) == 1


def test_a_full_disk_leaves_no_lock_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(locks.os, "fdopen", full)
        with pytest.raises(OSError, match="No space"):
            Lock.take(tmp_path, 0)
    assert Watch().free(tmp_path) == 0


def test_a_silent_owner_is_shown_and_not_watched_for_ever(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(locks, "STALE", 0.5)
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    Lock.take(job.folder, 0)
    from_elsewhere(job.folder)
    os.utime(job.folder / "lock.1", (0, 0))
    planned.save_plan(tiny, [job], "oodml run")
    cli.main(["status", "--watch", "--every", "0.1", "--work", str(tiny.root)])
    assert "no heartbeat for" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--watch", "--every", "0.1"], ["--every", "0.1"]])
def test_a_watch_outlasts_the_moment_in_which_no_run_is_held(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str],
                                                             words: list[str]) -> None:
    """As while a sweep is starting, or between two of its runs."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    planned.save_plan(tiny, [job], "oodml run")
    held: list[Lock | None] = []

    def pause(_: float) -> None:
        if not held:
            held.append(Lock.take(job.folder, 0))
        else:
            (job.folder / "lock.1").unlink(missing_ok=True)

    monkeypatch.setattr("benchmark.commands.status.time.sleep", pause)
    cli.main(["status", *words, "--work", str(tiny.root)])
    totals = re.findall(r"^all +(\d+) +(\d+) +(\d+) +(\d+)", capsys.readouterr().out, re.MULTILINE)
    assert [running for _, running, _, _ in totals] == ["0", "1", "0", "0"]


def _race(folder: str, after: int, gate: object, won: object) -> None:
    gate.wait()  # type: ignore[attr-defined]
    if Lock.take(Path(folder), after) is not None:
        with won.get_lock():  # type: ignore[attr-defined]
            won.value += 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("after", [0, 1])
def test_of_many_takers_one_wins(tmp_path: Path, after: int) -> None:
    if after:
        Lock.take(tmp_path, 0)
    fork = multiprocessing.get_context("fork")
    gate, won = fork.Barrier(6), fork.Value("i", 0)
    takers = [fork.Process(target=_race, args=(str(tmp_path), after, gate, won)) for _ in range(6)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert won.value == 1


@given(st.lists(st.sampled_from(["take", "beat", "release", "stall", "done"]), max_size=30))
@settings(max_examples=60)
def test_at_most_one_believes_to_be_owner(tmp_path_factory: pytest.TempPathFactory, actions: list[str]) -> None:
    folder = tmp_path_factory.mktemp("run")
    clock = Clock()
    watch = Watch(stale=60, clock=clock)
    owners: list[Lock] = []
    for action in actions:
        if action == "take":
            after = watch.free(folder)
            lock = Lock.take(folder, after) if after is not None else None
            if lock is not None:
                from_elsewhere(folder)
                owners.append(lock)
        elif action == "stall":
            look(watch, clock, folder, 70)
        elif owners:
            owner = owners[-1]
            if action == "beat":
                owner.beat()
            elif action == "release":
                owner.release()
                owners.pop()
            elif owner.beat():
                owner.done()
                owners.clear()
        assert sum(owner.beat() for owner in owners) <= 1


def test_heartbeats_go_to_the_lock_and_to_the_parent(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path, 0)
    counter = multiprocessing.get_context("spawn").RawValue("Q", 0)
    heartbeat = Heartbeat(counter, beat=0.01)
    heartbeat.lock = lock
    heartbeat.start()
    deadline = time.monotonic() + 10
    while counter.value < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    heartbeat.stop()
    assert counter.value >= 5
    assert int(locks.newest(tmp_path).beat) >= 4  # type: ignore[union-attr]


def test_a_busy_main_thread_that_does_nothing_gets_no_heartbeat() -> None:
    if locks._main_thread_seconds() is None:
        pytest.skip("this system does not tell the time of one thread")
    heartbeat = Heartbeat(beat=10, hung=0.05)
    heartbeat.busy = True
    seen: list[bool] = []
    watcher = threading.Thread(target=lambda: (heartbeat._moving(), time.sleep(0.3), seen.append(heartbeat._moving())))
    watcher.start()
    watcher.join()
    assert seen == [False]


@pytest.mark.parametrize("how", ["removed", "taken over"])
def test_who_beats_decides_what_a_lost_run_means_for_the_process(tmp_path: Path, how: str) -> None:
    lost, lock = threading.Event(), Lock.take(tmp_path, 0)
    heartbeat = Heartbeat(beat=0.01, on_lost=lost.set)
    heartbeat.lock = lock
    heartbeat.start()
    assert not lost.wait(0.1)
    if how == "removed":
        (tmp_path / "lock.1").unlink()
    else:
        assert Lock.take(tmp_path, 1) is not None
    assert lost.wait(10)
    heartbeat.join(10)
    assert not heartbeat.is_alive()


def test_by_default_the_process_ends(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_lose, args=(tmp_path,))
    child.start()
    child.join(30)
    assert child.exitcode == locks.LOST


def _lose(folder: Path) -> None:
    heartbeat = Heartbeat(beat=0.01)
    heartbeat.lock = Lock.take(folder, 0)
    heartbeat.start()
    (folder / "lock.1").unlink()
    time.sleep(20)
