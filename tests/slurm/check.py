"""A sweep on a real Slurm: submitted, preempted, queued again and finished as if it had been done here."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmark.runs import planned, status, worker
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

WORDS = ["run", *tiny_sweep.WORDS, "--methods", "margin,arcface", "--splits", "1"]
LONG = {"epochs": 60}


def call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def until(what: str, condition: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {seconds:.0f} s in vain: {what}\n{call('squeue')}")
        time.sleep(0.3)
    print(f"{what}: yes")


def submit(made: Workspace, *words: str) -> str:
    """Submit by the command; its output."""
    runner = tiny_sweep.oodml(made, *WORDS, *words, "--executor", "slurm", "--slurm", "partition=test", "--slurm",
                              "time=30", "--slurm", "cpus_per_task=1", OODML_STALE_SECONDS="12")
    output = runner.communicate(timeout=200)[0]
    print(output)
    if runner.returncode:
        sys.exit(f"submission ended with {runner.returncode}")
    return output


def queue() -> list[str]:
    """Numbers of the jobs in the queue, NUMBER_ELEMENT."""
    return call("squeue", "--noheader", "--array", "--format=%i").split()


def main(root: Path) -> None:
    here = tiny_sweep.workspace(root / "here")
    shutil.copytree(here.root, root / "there")
    there = Workspace.at(root / "there")
    for job in [*tiny_sweep.jobs(here), *tiny_sweep.jobs(here, "margin", seeds=2, set=LONG)]:
        worker.run(job.spec, job.context)

    output = submit(there, "--seeds", "2", "--runs-per-job", "3")
    assert "submitted 4 runs in 2 jobs" in output, output
    until("four runs of two jobs are done", lambda: len(list(there.runs.glob("*/*/*/*/record.json"))) == 4)
    until("the queue is empty", lambda: not queue())

    job, after = tiny_sweep.jobs(there, "margin", seeds=2, set=LONG)
    submit(there, "--methods", "margin", "--seeds", "2", "--set", f"epochs={LONG['epochs']}", "--runs-per-job", "2")
    until("the first of two long runs of a job is saved", lambda: list(job.folder.glob("checkpoint-*")))
    assert status.look(job.folder).kind == "running"
    (number,) = queue()
    call("scancel", "--signal=USR2", number)
    until("preempted, it is in the queue again", lambda: call("squeue", "--noheader", "--format=%t", "--jobs", number)
          in ("PD", "CG") or call("squeue", "--noheader", "--format=%r", "--jobs", number) == "BeginTime")
    assert not (job.folder / "record.json").exists()
    assert not (job.folder / "failure.json").exists(), "a preempted run has not failed"
    assert list(job.folder.glob("checkpoint-*"))
    until("it may start again", lambda: not subprocess.run(
        ["scontrol", "update", f"JobId={number}", "StartTime=now"], capture_output=True, check=False).returncode)
    until("both are done", lambda: job.done and after.done)
    until("the queue is empty", lambda: not queue())

    assert tiny_sweep.results(there) == tiny_sweep.results(here)
    assert not list(there.runs.rglob("lock.*"))
    runs, _ = planned.survey(there)
    assert {run.state.kind for run in runs} == {"done"}
    print(planned.table(runs))
    print("all records are those of runs without Slurm, bit for bit")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
