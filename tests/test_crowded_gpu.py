"""Runs that find too little memory on a GPU that they share: tried again alone, and lost to nobody.

There is no GPU here: methods raise what torch raises, and tell by the locks of other runs whether they are alone.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmark.runs import attempt, gpu_memory, planned, status, sweep, worker
from benchmark.runs.executors import crowded, outcomes
from benchmark.runs.executors.pool import Worker, WorkerPool
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Resources, SweepOptions, SweepResult
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

pytestmark = pytest.mark.usefixtures("plugins_forgotten")

HELD = "other programs hold 61.2 of its 139.8 GB"
HUNGRY = tiny_sweep.PLUGIN + '''
import time
from benchmark.runs import gpu_memory, locks

if (HERE / "others").exists():
    gpu_memory.held_by_others = lambda devices: "HELD" if (HERE / "others").exists() else ""

def under_way():
    held = [locks.newest(folder) for folder in (HERE / "runs").glob("*/*/*/*")]
    return sum(holder is not None and not holder.released for holder in held)

def until(met):
    deadline = time.monotonic() + 60
    while not met() and time.monotonic() < deadline:
        time.sleep(0.02)

def note(name, text):
    with (HERE / name).open("a") as stream:
        stream.write(f"{text}\\n")

@register("slow", family="test")
class Slow(Plain):
    """Is under way until the hungry one has met it."""
    def trouble(self):
        until((HERE / "hungry").exists)

@register("hungry", family="test")
class Hungry(Plain):
    """Has no room beside another run, from its second epoch on."""
    def trouble(self):
        if self.steps == 3 and not (HERE / "hungry").exists():
            until(lambda: under_way() > 1)
        beside = under_way() - 1
        if self.steps >= 3 or (HERE / "hungry").exists():
            note("hungry", beside)
            if beside:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

@register("greedy", family="test")
class Greedy(Plain):
    """Has no room anywhere, or none while others hold it."""
    def trouble(self):
        if (HERE / "enough").exists():
            return
        note("greedy", under_way() - 1)
        if (HERE / "ends").exists() and len((HERE / "greedy").read_text().split()) == 2:
            (HERE / "enough").touch()
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 200.00 GiB")
'''.replace("HELD", HELD)


def plugin(tiny: Workspace) -> str:
    path = tiny.root / "hungry.py"
    path.write_text(HUNGRY, encoding="utf-8")
    return str(path)


def run(tiny: Workspace, methods: str, jobs: int = 2) -> SweepResult:
    options = SweepOptions(tiny, plugins=(plugin(tiny),), resources=Resources(jobs), command="oodml run --this")
    return sweep.run(tiny_sweep.study(methods, seeds=1), options, lambda line: None)


def noted(tiny: Workspace, name: str) -> list[int]:
    """How many runs were under way beside this one, each time that it looked."""
    return [int(line) for line in (tiny.root / name).read_text().split()]


def failure(tiny: Workspace) -> dict[str, object]:
    (path,) = tiny.runs.rglob("failure.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.fixture
def others(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, other programs hold the memory."""
    monkeypatch.setattr(gpu_memory, "held_by_others", gpu_memory.held_by_others)  # to be as before after the test
    monkeypatch.setattr(crowded, "WAITS", (0.1, 0.2))
    path = tiny.root / "others"
    path.touch()
    return path


def test_a_run_without_room_beside_others_is_resumed_alone_when_they_are_over(
        tiny: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tiny, "hungry,slow,fine,margin")
    assert not result.failed
    assert [spec.method for spec in result.done][-1] == "hungry"
    assert {spec.method for spec in result.done} == {"hungry", "slow", "fine", "margin"}
    first, *again = noted(tiny, "hungry")
    assert first > 0
    assert again == [0, 0], "the second epoch's steps, with nothing beside"
    assert "the GPU's memory was shared; once more alone: " in capsys.readouterr().out
    (log,) = tiny.runs.rglob("hungry/*/log.jsonl")
    starts = [line["epoch"] for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "start"]
    assert starts == [0, 1], "from its checkpoint"
    assert not list(tiny.runs.rglob("failure.json"))


@pytest.mark.parametrize(("methods", "jobs", "tries"), [("greedy,fine,margin", 2, 2), ("greedy,fine", 1, 1)])
def test_a_run_that_has_no_room_alone_has_failed(tiny: Workspace, methods: str, jobs: int, tries: int) -> None:
    result = run(tiny, methods, jobs)
    assert [spec.method for spec in result.done] == methods.split(",")[1:]
    assert [spec.method for spec, _ in result.failed] == ["greedy"]
    assert len(noted(tiny, "greedy")) == tries
    assert noted(tiny, "greedy")[-1] == 0
    assert str(failure(tiny)["cause"]).startswith(gpu_memory.OUT + " (")
    assert "micro_batch" in str(failure(tiny)["remedy"])
    assert failure(tiny)["passing"] is False


def test_memory_that_others_hold_is_waited_for_a_few_times_and_asked_for_by_the_next_sweep(
        tiny: Workspace, others: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tiny, "greedy,fine", jobs=1)
    cause = f"{gpu_memory.OUT}: {HELD}"
    assert [(spec.method, why) for spec, why in result.failed] == [("greedy", cause)]
    assert len(noted(tiny, "greedy")) == 1 + len(crowded.WAITS)
    assert capsys.readouterr().out.count(f"{cause}; once more in 0 s: ") == len(crowded.WAITS)
    assert failure(tiny)["passing"] is True
    text = "\n".join(planned.failures(planned.survey(tiny)[0]))
    assert cause in text
    assert "again: oodml run --this\n" in text
    others.unlink()
    (tiny.root / "enough").touch()
    assert [spec.method for spec in run(tiny, "greedy,fine").done] == ["greedy"]


def test_memory_that_others_give_back_in_time_is_used(tiny: Workspace, others: Path) -> None:
    (tiny.root / "ends").touch()
    result = run(tiny, "greedy", jobs=1)
    assert [spec.method for spec in result.done] == ["greedy"]
    assert len(noted(tiny, "greedy")) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_ends_while_a_run_waits_loses_nothing(tiny: Workspace, number: int) -> None:
    (tiny.root / "others").touch()
    words = ["run", *tiny_sweep.WORDS, "--protocol", "demo", "--methods", "greedy", "--plugin", plugin(tiny),
             "--splits", "1", "--seeds", "1"]
    runner = tiny_sweep.oodml(tiny, *words)
    deadline = time.monotonic() + 90
    while not list(tiny.runs.rglob("failure.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    os.kill(runner.pid, number)
    out, _ = runner.communicate(timeout=90)
    assert runner.returncode == (130 if number == signal.SIGINT else -number), out
    (folder,) = (path.parent for path in tiny.runs.rglob("failure.json"))
    assert status.look(folder).kind == "missing"
    (tiny.root / "enough").touch()
    again = tiny_sweep.oodml(tiny, *words)
    out, _ = again.communicate(timeout=90)
    assert again.returncode == 0, out
    assert status.look(folder).kind == "done"


def test_nothing_is_begun_beside_a_run_that_is_alone(tiny: Workspace) -> None:
    """Such as a run that another runner held, and gives back only now."""
    first, second = tiny_sweep.jobs(tiny, "margin", seeds=2)
    pool = WorkerPool(["cpu", "cpu"], tiny_sweep.progress([first, second]), StopRequest(), deque([second]))
    pool.workers[0] = Worker(SimpleNamespace(), SimpleNamespace(), None, first, alone=True)  # type: ignore[arg-type]
    pool._assign(1)
    assert pool.workers[1] is None
    assert list(pool.waiting) == [second]


def test_without_a_pool_too_a_run_that_others_left_no_room_is_done_by_the_next_sweep(
        tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster of Ray and in `oodml.run`."""
    def no_room(*_: object, **__: object) -> Path:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(worker, "run", no_room)
    monkeypatch.setattr(gpu_memory, "held_by_others", lambda devices: HELD)
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    result, ended = SweepResult(), attempt.attempt_alone(job)
    assert ended == ("crowded", f"{gpu_memory.OUT}: {HELD}")
    outcomes.settle(job, *ended, result, tiny_sweep.progress([job]))
    assert result.failed == [(job.spec, ended.text)]
    assert status.look(job.folder).kind == "missing"


def test_a_gpu_that_has_no_room_for_a_process_is_held_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str) -> tuple[int, int]:
        raise RuntimeError("CUDA error: out of memory")

    assert gpu_memory.held_by_others(["cpu"]) == ""
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 10e9)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1e9, 80e9) if device == "cuda:1" else (5e9, 16e9))
    assert gpu_memory.held_by_others(["cuda:0"]) == ""
    assert gpu_memory.held_by_others(["cuda:0", "cuda:1"]) == "other programs hold 68.0 of its 80.0 GB"
    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    assert gpu_memory.held_by_others(["cuda:0"]) == "other programs hold all of it"
