"""Runs as a job array of a Slurm cluster, through submitit: submitted here, done there, shown by `oodml status`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from benchmark.runs.attempt import GPU_FAILED, attempt_alone
from benchmark.runs.job import Job, Resources, SweepResult
from benchmark.runs.progress import Progress
from benchmark.utils.errors import UserError
from benchmark.utils.wording import counted

MINUTES = 24 * 60
"""Time limit of a job where `--slurm time=...` gives none; a job at its limit is saved and queued again."""

TIMEOUTS = 100
"""How often a job that reached its time limit is queued again."""


class Task:
    """One element of the array: its runs one after the other.

    Preempted or at its time limit it is queued again, leaves what is done and resumes from the last checkpoint.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = tuple(jobs)
        self.preempted = False

    def __call__(self) -> list[str]:
        import torch

        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
        ended = []
        for job in self.jobs:
            if torch.cuda.is_available():
                job = replace(job, context=replace(job.context, device="cuda:0"))
            outcome = attempt_alone(job, leaving=lambda: self.preempted)
            ended.append(" ".join(outcome).strip())
            if outcome.kind == "full" or outcome.text.startswith(GPU_FAILED):
                break  # those that are left would fail as well: they stay missing, and the same command submits them
        return ended

    def checkpoint(self) -> Any:
        """What submitit calls before a job is preempted: the same runs again; a checkpoint lies in each one's folder.

        It then queues them again and leaves the process by a SystemExit, wherever that is.
        """
        from submitit.helpers import DelayedSubmission

        self.preempted = True
        return DelayedSubmission(Task(self.jobs))


def execute(jobs: list[Job], resources: Resources, progress: Progress, cluster: str | None = None) -> SweepResult:
    """Submit an array of jobs and come back; `cluster` is submitit's name of one (None: Slurm)."""
    if resources.seconds is not None:
        raise UserError("--budget ends what runs here; a job of Slurm has its own limit: --slurm time=12:00:00")
    submitted = submit(jobs, resources, cluster)
    each = f" in {counted(len(submitted), 'job')}" if len(submitted) < len(jobs) else ""
    progress.write(f"submitted {counted(len(jobs), 'run')}{each}: {submitted[0].job_id} to {submitted[-1].job_id}")
    return SweepResult(submitted=len(jobs))


def submit(jobs: list[Job], resources: Resources, cluster: str | None = None) -> list[Any]:
    """The jobs of submitit that do these runs, submitted as one array."""
    try:
        import submitit
    except ImportError:
        raise UserError("the executor slurm needs submitit: `pip install 'oodml[slurm]'`") from None
    folder = jobs[0].context.work / "slurm"
    try:
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster or "slurm",
                                         slurm_max_num_timeout=TIMEOUTS)
    except RuntimeError as error:
        raise UserError(f"no Slurm on this machine ({error}); submit from a node that has sbatch") from None
    try:
        executor.update_parameters(**parameters(resources, cluster))
    except (NameError, AssertionError) as error:  # what submitit raises for a key or a value that it does not know
        raise UserError(f"--slurm: {str(error).splitlines()[0]}") from None
    with executor.batch():
        return [executor.submit(Task(part)) for part in parts(jobs, resources.runs_per_job)]


def parts(jobs: Iterable[Job], most: int) -> list[list[Job]]:
    """The runs in parts of so many at most, each of one dataset and backbone: images and compiled network serve all."""
    alike: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        alike.setdefault((job.context.dataset, job.spec.protocol.backbone), []).append(job)
    return [group[first:first + most] for group in alike.values() for first in range(0, len(group), most)]


def parameters(resources: Resources, cluster: str | None = None) -> dict[str, Any]:
    """The parameters for submitit: a name, a time limit, and every KEY=VALUE of `--slurm`, as sbatch calls it.

    >>> parameters(Resources(slurm={"partition": "gpu", "time": "2:30:00"}))
    {'name': 'oodml', 'timeout_min': 150, 'slurm_partition': 'gpu'}
    """
    values: dict[str, Any] = {"name": "oodml", "timeout_min": MINUTES}
    options = dict(resources.slurm)
    if "time" in options:
        values["timeout_min"] = _minutes(options.pop("time"))
    if cluster is None and resources.jobs:
        values["slurm_array_parallelism"] = resources.jobs
    for key, value in options.items():
        typed: Any = int(value) if str(value).isdigit() else value
        common = key in ("cpus_per_task", "gpus_per_node", "mem_gb", "nodes", "tasks_per_node")
        values[key if common else f"slurm_{key}"] = typed
    return values


def _minutes(text: str) -> int:
    """A time limit as sbatch reads it, begun minutes as whole ones.

    >>> [_minutes(text) for text in ("90", "90:00", "1:30:00", "1-2", "1-2:30", "1-02:30:01")]
    [90, 90, 90, 1560, 1590, 1591]
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if not match:
        raise UserError(f"--slurm time={text}: write minutes, MM:SS, HH:MM:SS or D-HH:MM:SS")
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if "-" not in text and text.count(":") < 2:
        return first + (second > 0)
    return days * 1440 + first * 60 + second + (third > 0)
