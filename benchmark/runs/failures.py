"""Failures of runs as they lie on disk: the runner reads and writes them, so this needs no torch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmark.runs.job import Job
from benchmark.utils.errors import NO_ROOM
from reports import records

PATIENCE = 10
"""How often `failure.json` is tried on a full disk, a fifth of a second apart: what fills it may be the checkpoint of
another run that is about to fail for it too, and takes it away."""


def write_failure(job: Job, cause: str, **facts: Any) -> None:
    """Put `failure.json` with what is known of the run into its folder, if there is room for it."""
    spec = job.spec
    content = {"cause": cause, "dataset": spec.dataset, "split": spec.split, "method": spec.method, "seed": spec.seed,
               "protocol": spec.protocol.name, "backbone": spec.protocol.backbone, "identity": spec.identity,
               "label": spec.label(), **facts}
    for _ in range(PATIENCE):
        try:
            records.write_failure(job.folder, content)
        except OSError as error:
            if error.errno in NO_ROOM:
                time.sleep(0.2)
                continue
        return


def last_failure(folder: Path) -> tuple[int, str] | None:
    """When and why the last attempt at a run failed; None if it did not, or if the cause passes by itself."""
    path = folder / records.FAILURE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        return None if facts.get("passing") else (path.stat().st_mtime_ns, str(facts["cause"]).splitlines()[0])
    except (OSError, ValueError, LookupError, AttributeError):
        return None
