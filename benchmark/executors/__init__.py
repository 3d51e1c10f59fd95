"""Ways to run many cells: each module here takes jobs and does every cell that is not done yet.

`execute(jobs, resources, progress) -> Outcome` is the whole interface; `cell.do` is what all of them run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.errors import UserError, near
from benchmark.plan import RunSpec
from benchmark.worker import Context

NAMES = ("local", "ray", "slurm")


@dataclass(frozen=True)
class Job:
    """A cell to do: its spec, where things are, and the generation of its lock that may be followed."""

    spec: RunSpec
    context: Context
    after: int = 0

    @property
    def folder(self) -> Path:
        return self.spec.folder(self.context.workspace)

    @property
    def done(self) -> bool:
        return (self.folder / "record.json").exists()


@dataclass(frozen=True)
class Resources:
    """What a sweep may use: processes, places on a GPU, a cluster, time."""

    jobs: int | None = None
    """Processes on a CPU, or cells at the same time on a cluster; None: as many as there is room for."""
    per_gpu: int = 1
    seconds: float | None = None
    """Time after which running cells save and no new one starts."""
    ray_address: str | None = None
    slurm: dict[str, Any] = field(default_factory=dict)
    """Parameters of the job array, as submitit calls them."""


@dataclass
class Outcome:
    """How a sweep ended: what was done, what failed and why, and whether somebody stopped it."""

    done: list[RunSpec] = field(default_factory=list)
    failed: list[tuple[RunSpec, str]] = field(default_factory=list)
    """Each with its cause, in words."""
    interrupted: int = 0
    """The exit code of a sweep that a signal stopped, else 0."""
    ended: str = ""
    """Why the sweep ended before its cells, if it was not interrupted."""
    lacking: int = 0
    """Cells that were not begun, since their backbone has no weights here."""
    submitted: int = 0
    """Cells handed to a cluster that works on after this process."""

    def open(self, jobs: Iterable[Job]) -> bool:
        """Whether any of these cells was neither done nor failed."""
        failed = {spec.identity for spec, _ in self.failed}
        return any(not job.done and job.spec.identity not in failed for job in jobs)


def get(name: str) -> Any:
    """The executor of this name."""
    if name not in NAMES:
        raise UserError(f"unknown executor '{name}'{near(name, NAMES)}; there are {', '.join(NAMES)}")
    return importlib.import_module(f"benchmark.executors.{name}")
