"""Finished runs whose rung has another number now: a ladder that was built anew may number its rungs otherwise."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from benchmark.runs.job import Job
from benchmark.utils import leftovers
from benchmark.utils.files import write_json
from benchmark.utils.workspace import SPEC
from reports import ReportError, records


def take_over(job: Job) -> bool:
    """Whether a finished run of the same identity was found on a rung with another number, and is here now, too.

    The classes of a rung make the run, not its number.
    """
    other = renumbered(job)
    if other is None:
        return False
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    leftovers.remove([job.folder.parent], job.folder.name)
    part = leftovers.unfinished(job.folder)
    shutil.copytree(other, part, copy_function=_linked, ignore=shutil.ignore_patterns("lock*", "inspect"))
    if (part / SPEC).exists():
        write_json(part / SPEC, job.spec.facts())
    try:
        part.rename(job.folder)  # not where another runner was faster
    except OSError:
        shutil.rmtree(part)
        return False
    return True


def renumbered(job: Job) -> Path | None:
    """The folder of a finished run of the same identity on a rung with another number, if there is one."""
    folders = job.folder.parents[2].glob(f"*/{job.folder.parent.name}/{job.folder.name}")
    return next((other for other in folders if _identity(other) == job.spec.identity), None)


def _identity(folder: Path) -> str:
    try:
        return str(records.read(folder)["identity"])
    except (ReportError, OSError):
        return ""


def _linked(source: str, target: str) -> None:
    """Weights need no second place on the disk; what is written later is written as a new file, but for the log."""
    if Path(source).name != "log.jsonl":  # a run that is done anew adds to it
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)
