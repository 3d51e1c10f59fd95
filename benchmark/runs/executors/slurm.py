"""Runs as a job array of a Slurm cluster, through submitit: submitted here, done there, shown by `oodml status`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import methods
from benchmark.runs import cost
from benchmark.runs.executors import local
from benchmark.runs.failures import last_failure
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Job, Resources, SweepResult
from benchmark.runs.locks import STALE
from benchmark.runs.progress import Progress
from benchmark.utils.errors import UserError
from reports.wording import counted

MINUTES = 24 * 60
"""Time limit of a job where `--slurm time=...` gives none; a job at its limit is saved and queued again."""

TIMEOUTS = 100
"""How often a job that reached its time limit is queued again."""


class Task:
    """One element of the array: a sweep of its own over its runs, on what Slurm gave it.

    Preempted or at its time limit it saves them and is queued again; what is done is left, the rest resumes.
    """

    def __init__(self, jobs: Sequence[Job], per_gpu: int = 1) -> None:
        self.jobs, self.per_gpu = list(jobs), per_gpu
        self.failures: dict[str, Any] = {}
        """Of each run, how it had failed before this job."""

    def __call__(self) -> str:
        self.failures = {job.spec.identity: last_failure(job.folder) for job in self.jobs}
        for plugin in dict.fromkeys(plugin for job in self.jobs for plugin in job.context.plugins):
            methods.load_plugin(plugin)  # this process knows none of its methods yet
        os.environ.setdefault("SLURM_CPUS_PER_TASK", "1")  # what Slurm gives where nothing is asked for
        progress = Progress({job.spec.identity: cost.work(job.spec, job.label) for job in self.jobs}, terminal=False)
        # signals are submitit's: it queues the job again and raises a SystemExit here
        result = local.work(self.jobs, Resources(jobs=1, per_gpu=self.per_gpu), progress, StopRequest(),
                            patience=2 * STALE)
        return f"{len(result.done)} done, {len(result.failed)} failed"

    def checkpoint(self) -> Any:
        """What submitit calls before a job is preempted: the runs that are left; a checkpoint lies in their folders."""
        from submitit.helpers import DelayedSubmission

        left = [job for job in self.jobs
                if not job.done and last_failure(job.folder) == self.failures.get(job.spec.identity)]
        return DelayedSubmission(Task(left, self.per_gpu))


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
        return [executor.submit(Task(part, resources.per_gpu)) for part in parts(jobs, resources.runs_per_job)]


def parts(jobs: Sequence[Job], most: int) -> list[list[Job]]:
    """The runs in parts of so many at most, in their order; those of a part have dataset and backbone in common.

    So images and compiled network, which take the time that a short run does, mostly serve all of it.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for number, job in enumerate(jobs):
        alike.setdefault((job.context.dataset, job.spec.protocol.backbone), []).append(number)
    found = [group[first:first + most] for group in alike.values() for first in range(0, len(group), most)]
    return [[jobs[number] for number in part] for part in sorted(found)]


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
