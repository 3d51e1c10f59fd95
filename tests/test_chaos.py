"""Kills at random moments: whatever happens, every cell ends with the record of an undisturbed run, bit for bit.

OODML_CHAOS_SECONDS lengthens the disturbance, OODML_CHAOS_SEED gives another schedule.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from benchmark.runs import status, worker
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

SECONDS = float(os.environ.get("OODML_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("OODML_CHAOS_SEED", "0"))
METHODS = "margin,arcface"
WORDS = ["run", *tiny_sweep.WORDS, "--methods", METHODS, "--splits", "1", "--seeds", "3", "--jobs", "2",
         "--retry-failed"]
CELLS = 6


def family(leader: int) -> list[int]:
    """The processes of a session but for its leader."""
    members = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and int(path.name) != leader and state != "Z":
            members.append(int(path.name))
    return sorted(members)


def strike(runner: subprocess.Popen[str], made: Workspace, dice: random.Random) -> str:
    """One disturbance; what it was."""
    kind = dice.choice(["runner", "runner", "worker", "worker", "half", "hang", "cut"])
    others = family(runner.pid)
    if kind == "runner":
        runner.kill()
        runner.wait()
    elif kind == "cut":
        done = sorted(made.runs.glob("*/*/*/*/record.json"))
        if done:
            victim = dice.choice(done)
            victim.write_bytes(victim.read_bytes()[:dice.randrange(victim.stat().st_size)])
    elif others:
        chosen = dice.sample(others, max(1, len(others) // 2)) if kind == "half" else [dice.choice(others)]
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if kind == "hang" else signal.SIGKILL)
    return kind


def finished(made: Workspace) -> bool:
    cells, _ = status.survey(made)
    return len(cells) == CELLS and all(cell.state.kind == "done" for cell in cells)


def end(runner: subprocess.Popen[str]) -> None:
    """Kill what is left of a runner's family, stopped ones too."""
    for pid in [*family(runner.pid), runner.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    runner.wait()


def undisturbed(root: Path) -> None:
    """Every cell, one after the other, without a runner."""
    torch.set_num_threads(1)
    for job in tiny_sweep.jobs(Workspace.at(root), METHODS, seeds=3):
        worker.run(job.spec, job.context)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds processes in /proc")
def test_nothing_is_lost_or_done_twice(tiny_base: Path, tmp_path: Path) -> None:
    quiet, wild = (Workspace.at(shutil.copytree(tiny_base, tmp_path / name)) for name in ("quiet", "wild"))
    # In a process of its own: another test may have switched this one to other kernels, whose last bits differ.
    reference = multiprocessing.get_context("spawn").Process(target=undisturbed, args=(quiet.root,))
    reference.start()
    dice = random.Random(SEED)
    began = time.monotonic()
    strikes: list[str] = []
    output = ""
    while True:
        with (tmp_path / "output").open("a") as stream:
            runner = tiny_sweep.oodml(wild, *WORDS, stdout=stream, OODML_STALE_SECONDS="6")
        try:
            while runner.poll() is None and (left := SECONDS - (time.monotonic() - began)) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    runner.wait(min(left, dice.uniform(1, 6)))
                if runner.poll() is None:
                    strikes.append(strike(runner, wild, dice))
            code = runner.wait(120)
        finally:
            end(runner)
        output = (tmp_path / "output").read_text()
        if finished(wild):
            if time.monotonic() - began >= SECONDS:
                break
            # done early: take some away, so that there is something left to disturb
            for record in dice.sample(sorted(wild.runs.glob("*/*/*/*/record.json")), CELLS // 2):
                shutil.rmtree(record.parent)
        assert code != 0 or time.monotonic() - began < SECONDS, f"{strikes}\n{output}"
    reference.join(120)
    assert reference.exitcode == 0
    expected = tiny_sweep.results(quiet)
    assert len(expected) == CELLS
    assert tiny_sweep.results(wild) == expected, f"{strikes}\n{output}"
    assert len(strikes) >= 3, f"{strikes}\n{output}"
    assert not list(wild.runs.rglob("lock.*"))
    assert not list(wild.runs.rglob("failure.json"))
