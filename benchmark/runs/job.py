"""A run to do, the options of a sweep, and how a sweep ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmark.config.spec import RunSpec
from benchmark.utils.workspace import Workspace
from reports import records

HEADLINE = "recall@1"
"""The measure by which the rules other than `last` choose an epoch, and `oodml tune` a configuration."""


@dataclass(frozen=True)
class RunContext:
    """What a worker must know beside the spec: folders and devices, none of which changes a result.

    All paths are absolute: a worker may run on another machine or in another folder.
    """

    dataset: str
    work: Path
    data: Path
    device: str = "cpu"
    weights_file: str | None = None
    plugins: tuple[str, ...] = ()
    command: str = ""
    """What the user typed: on a cluster a worker has another command line."""
    devices: tuple[str, ...] = ()
    """Those that share every batch of the run, `device` the first of them; none: it has `device` alone."""
    shared: bool = False
    """Whether other runs of its sweep may be on its device."""

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.work, self.data)


@dataclass(frozen=True)
class Job:
    """A run to do: its spec, its context, the generation of its lock that may be followed, and its label."""

    spec: RunSpec
    context: RunContext
    after: int = 0
    told: str = ""
    """Its label among the runs of its sweep, as `spec.told_apart` gives it."""

    @cached_property
    def folder(self) -> Path:
        """Where the run keeps its lock, checkpoint and record."""
        return self.spec.folder(self.context.workspace)

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.told or self.spec.label()

    @property
    def done(self) -> bool:
        """Whether there is a record."""
        return (self.folder / records.RECORD).exists()


@dataclass(frozen=True)
class Resources:
    """What a sweep may use: processes, GPUs, a cluster, time."""

    jobs: int | None = None
    """Processes on a CPU, or runs at the same time on a cluster; None: as many as there is room for."""
    per_gpu: int = 1
    """Runs at a time on one GPU; 0: as many as make all of them faster together."""
    gpus_per_run: int = 1
    """GPUs that share every batch of a run."""
    seconds: float | None = None
    """Time after which runs under way save and no new one starts."""
    ray_address: str | None = None
    runs_per_job: int = 1
    """Runs that a job of Slurm does, `per_gpu` at a time."""
    slurm: dict[str, Any] = field(default_factory=dict)
    """Parameters of the job array, as submitit calls them."""


@dataclass(frozen=True)
class SweepOptions:
    """Everything about a sweep but the study itself: where it reads and writes, what it may use, what it does."""

    workspace: Workspace
    weights_file: str | None = None
    """Weights of the backbone, where they are not the pretrained ones."""
    plugins: tuple[str, ...] = ()
    """Python files that register methods."""
    executor: str = "local"
    resources: Resources = field(default_factory=Resources)
    retry_failed: bool = False
    redo: bool = False
    """Whether finished and failed runs are done anew; their records are kept aside."""
    calibrate: bool = False
    """Whether `forecast.show` measures a few steps of each kind of run."""
    command: str = ""
    """What the user typed, for the records."""
    study: str = ""
    """The name of the study that the user named, for `oodml status`; '' where none was."""


@dataclass
class SweepResult:
    """How a sweep ended: what was done, what failed and why, and whether it was stopped."""

    done: list[RunSpec] = field(default_factory=list)
    failed: list[tuple[RunSpec, str]] = field(default_factory=list)
    """Each with its cause, in words."""
    interrupted: int = 0
    """The exit code of a sweep that a signal stopped, else 0."""
    ended: str = ""
    """Why the sweep ended before its runs, if it was not interrupted."""
    lacking: int = 0
    """Runs that were not begun, since their backbone has no weights here."""
    submitted: int = 0
    """Runs handed to a cluster that works on after this process."""
    jobs: list[Job] = field(default_factory=list)
    """Every run of the sweep, those done earlier too."""

    def unfinished(self, jobs: Iterable[Job]) -> bool:
        """Whether any of these runs was neither done nor failed."""
        failed = {spec.identity for spec, _ in self.failed}
        return any(not job.done and job.spec.identity not in failed for job in jobs)
