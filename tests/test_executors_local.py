"""Worker processes of a sweep: shared work, Ctrl-C at any moment, whatever folder the user is in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmark import cli
from benchmark.runs import failures, locks, planned, status, sweep
from benchmark.runs.executors.pool import ATTEMPTS, STOPPING, Worker, WorkerPool
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Resources, SweepOptions, SweepResult
from benchmark.runs.locks import Lock
from benchmark.utils import processors, provenance
from benchmark.utils.workspace import Workspace
from reports import records
from tests import tiny_sweep

GPU = pytest.param("cuda:0", id="gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))
WORDS = ["run", *tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--seeds", "1"]


def run(tiny: Workspace, methods: str, jobs: int = 2, **fields: object) -> SweepResult:
    options = SweepOptions(tiny, resources=Resources(jobs))
    return sweep.run(tiny_sweep.study(methods, **fields), options, lambda line: None)


def test_a_cell_held_elsewhere_is_waited_for_and_taken_over(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(locks, "STALE", 4.0)
    held, free = tiny_sweep.jobs(tiny, "margin")
    lock = Lock.take(held.folder, 0)
    assert lock is not None
    beat, _, facts = lock.path.read_text().partition("\n")
    lock.path.write_text(f"{beat}\n{json.dumps({**json.loads(facts), 'machine': 'elsewhere'})}\n")
    assert status.look(held.folder).kind == "running"

    def live() -> None:
        deadline = time.monotonic() + 60
        while not free.done and time.monotonic() < deadline and lock.beat():
            time.sleep(0.1)

    other = threading.Thread(target=live)
    other.start()
    result = run(tiny, "margin")
    other.join()
    assert [spec.seed for spec in result.done] == [1, 0]
    assert "another runner holds" in capsys.readouterr().out
    assert status.look(held.folder).kind == status.look(free.folder).kind == "done"


@pytest.mark.parametrize(("asked", "each"), [(None, 2), ("3", 3), ("3,1", 3), ("0", 2), ("many", 2)])
def test_workers_heed_the_number_of_threads_that_is_asked_for(asked: str | None, each: int,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert processors.threads(4) == each


def test_two_runners_share_the_work(tiny: Workspace) -> None:
    results: list[SweepResult] = []
    runners = [threading.Thread(target=lambda: results.append(run(tiny, "margin,arcface", jobs=1)))
               for _ in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(150)
    done = [spec.identity for result in results for spec in result.done]
    assert sorted(done) == sorted(job.spec.identity for job in tiny_sweep.jobs(tiny))
    assert len(list(tiny.runs.rglob("record.json"))) == 4
    assert not list(tiny.runs.rglob("lock.*"))


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_ctrl_c_saves_and_the_same_command_resumes(tiny: Workspace, times: int, device: str,
                                                   monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("benchmark.runs.executors.local.devices", lambda resources: [device])
    # an epoch takes longer than the time between two presses
    long = {"epochs": 4, "evaluate_every": 4, "steps_per_epoch": 25}
    words = ["run", *tiny_sweep.WORDS, *(word for key, value in long.items() for word in ("--set", f"{key}={value}")),
             "--methods", "margin", "--splits", "1", "--seeds", "1", "--work", str(tiny.root)]
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1, set=long)

    def press() -> None:
        deadline = time.monotonic() + 90
        while not list(job.folder.glob("checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(times if time.monotonic() < deadline else 0):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    finger.join()
    assert caught.value.code == 130
    out = capsys.readouterr().out
    assert "same command resumes" in out
    assert (STOPPING in out) or times == 2, "a second press may come before the first is seen"
    state = status.look(job.folder)
    assert (state.kind, state.begun) == ("missing", True)
    assert not (job.folder / "failure.json").exists()
    assert ("saved" in out) == (times == 1)
    cli.main(words)
    starts = [line["epoch"] for line in map(json.loads, (job.folder / "log.jsonl").read_text().splitlines())
              if line["event"] == "start"]
    assert len(starts) == 2
    assert 0 < starts[1] < 4
    record = records.read(job.folder)
    assert [entry["epoch"] for entry in record["curve"]] == list(range(1, 5))
    cost = record["cost"]
    assert cost["device"] == provenance.device_name(device)
    assert cost["seconds"] > cost["train_seconds"] + cost["evaluate_seconds"] > 0, "all attempts together"
    assert not list(job.folder.glob("checkpoint-*"))


def test_what_is_done_anew_is_resumed_without_being_begun_again(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    """--redo is stopped in the first of two runs: both were set aside, and no command that is named does that again."""
    long = {"epochs": 4, "evaluate_every": 4, "steps_per_epoch": 25}
    words = ["run", *tiny_sweep.WORDS, *(word for key, value in long.items() for word in ("--set", f"{key}={value}")),
             "--methods", "margin", "--splits", "1", "--seeds", "2", "--jobs", "1", "--work", str(tiny.root)]
    jobs = tiny_sweep.jobs(tiny, "margin", set=long)
    cli.main(words)
    before = {job.spec.seed: (job.folder / "record.json").read_bytes() for job in jobs}

    def press() -> None:
        deadline = time.monotonic() + 90
        while not list(jobs[0].folder.glob("checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press)
    monkeypatch.setattr(sys, "argv", ["oodml", *words, "--redo"])
    finger.start()
    with pytest.raises(SystemExit) as caught:
        cli.main([*words, "--redo"])
    finger.join()
    assert caught.value.code == 130
    assert "Stopped. The same command without --redo resumes." in capsys.readouterr().out
    assert {plan.command for plan in planned.plans(tiny)} == {shlex.join(["oodml", *words])}
    assert [status.look(job.folder).kind for job in jobs] == ["missing"] * 2
    cli.main(words)
    for job in jobs:
        assert job.done
        (kept,) = job.folder.glob("before-*.json")
        assert kept.read_bytes() == before[job.spec.seed] != (job.folder / "record.json").read_bytes()
        assert records.read(job.folder)["scores"] == json.loads(kept.read_text())["scores"]
    starts = [line["epoch"] for line in map(json.loads, (jobs[0].folder / "log.jsonl").read_text().splitlines())
              if line["event"] == "start"]
    assert len(starts) == 3
    assert starts[:2] == [0, 0]
    assert 0 < starts[2] < 4, "from its checkpoint"


def test_what_failed_elsewhere_meanwhile_is_not_tried_again(tiny: Workspace) -> None:
    before, meanwhile, full, fresh = tiny_sweep.jobs(tiny, "margin", seeds=4)
    failures.write_failure(before, "before the sweep, so that --retry-failed was given")
    jobs = [before, meanwhile, full, fresh]
    pool = WorkerPool(["cpu"], tiny_sweep.progress(jobs), StopRequest(), deque(jobs))
    failures.write_failure(meanwhile, "it broke there")
    failures.write_failure(full, "the disk is full", passing=True)
    taken = []
    while (job := pool._next()) is not None:
        taken.append(job.spec)
    assert taken == [before.spec, full.spec, fresh.spec]
    assert pool.result.failed == [(meanwhile.spec, "it broke there")]


@pytest.mark.parametrize("released", [False, True])
def test_a_run_that_others_take_over_again_and_again_has_not_failed(tiny: Workspace, released: bool) -> None:
    """A machine that is put to sleep twice while it works: its worker ends, and the run is another's."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    pool = WorkerPool(["cpu"], tiny_sweep.progress([job]), StopRequest(), deque([job]))
    for generation in range(0, 6, 2):
        own, other = Lock.take(job.folder, generation), Lock.take(job.folder, generation + 1)
        assert own is not None
        assert other is not None
        if released:
            other.release()
        process = SimpleNamespace(pid=-1, exitcode=locks.LOST, kill=lambda: None, join=lambda seconds: None)
        pool.waiting.clear()
        pool._lost(0, Worker(process, SimpleNamespace(close=lambda: None), None, job), job)
        assert list(pool.waiting) == [job]
    assert pool.result.failed == []
    assert not (job.folder / "failure.json").exists(), "the folder is another's"


def test_a_worker_that_ends_itself_under_its_own_lock_has_failed(tiny: Workspace) -> None:
    """So it does where a process that shares its batches is lost, which may be so every time."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    pool = WorkerPool(["cpu"], tiny_sweep.progress([job]), StopRequest(), deque())
    pool.failures = {job.spec.identity: None}
    Lock.take(job.folder, 0)
    process = SimpleNamespace(pid=os.getpid(), exitcode=locks.LOST, kill=lambda: None, join=lambda seconds: None)
    for _ in range(ATTEMPTS):
        pool._lost(0, Worker(process, SimpleNamespace(close=lambda: None), None, job), job)
    assert [spec for spec, _ in pool.result.failed] == [job.spec]


def test_the_users_folder_does_not_matter_and_the_command_is_written_down(tiny: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    for name in ("splits", "methods", "benchmark", "reports"):  # names that mean something else there
        (folder / name).mkdir(parents=True)
    (folder / "methods" / "__init__.py").touch()
    words = [*WORDS, "--work", str(tiny.root)]
    runner = subprocess.run([sys.executable, "-m", "oodml", *words], cwd=folder, capture_output=True, text=True,
                            check=False)
    assert runner.returncode == 0, runner.stdout + runner.stderr
    (path,) = tiny.runs.rglob("record.json")
    assert json.loads(path.read_text())["provenance"]["command"] == shlex.join(["oodml", *words])


SLOW = '''
import time
from methods import Objective, register

@register("slow", family="test")
class Slow(Objective):
    """A tenth of a second a step."""
    def forward(self, embeddings, labels):
        time.sleep(0.1)
        return embeddings.square().mean()
'''


def test_a_signal_to_all_processes_at_once_lets_workers_save(tiny: Workspace, tmp_path: Path) -> None:
    """As `timeout` and service managers send it."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    runner = tiny_sweep.oodml(tiny, "run", "--methods", "slow", "--plugin", str(tmp_path / "slow.py"), "--splits", "1",
                              "--seeds", "1", "--protocol", "demo", *tiny_sweep.WORDS, "--set", "steps_per_epoch=6",
                              "--set", "epochs=20")
    deadline = time.monotonic() + 90
    while not list(tiny.runs.rglob("slow/*/checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(runner.pid, signal.SIGTERM)
    out, _ = runner.communicate(timeout=90)
    assert runner.returncode == 75, out
    assert "died" not in out
    (kept,) = tiny.runs.rglob("slow/*/checkpoint-*")
    assert int(kept.name[-5:]) >= 2, "the epoch that it was in was finished and saved"
