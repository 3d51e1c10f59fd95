"""Runs on this machine: one worker process a GPU or several, or several on the CPU's cores."""

from __future__ import annotations

import math
from collections import deque

from benchmark.runs.executors import mps
from benchmark.runs.executors.gpus import Sharing, devices
from benchmark.runs.executors.outcomes import stopped
from benchmark.runs.executors.pool import WorkerPool
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Job, Resources, SweepResult
from benchmark.runs.progress import Progress

SAVING = 20.0
"""Seconds that runs may take to be saved when this process is made to end: twice `train.GRACE`."""


def execute(jobs: list[Job], resources: Resources, progress: Progress) -> SweepResult:
    """Do the runs on this machine; Ctrl-C once saves them to be resumed, twice ends at once (`StopRequest`)."""
    with StopRequest(resources.seconds) as stop:
        return work(jobs, resources, progress, stop)


def work(jobs: list[Job], resources: Resources, progress: Progress, stop: StopRequest,
         patience: float = math.inf) -> SweepResult:
    """The same until `stop` is requested; runs that others hold are waited for with `patience`, in seconds."""
    places = devices(resources)[:max(1, len(jobs))]
    several = places.count(places[0]) > 1 and places[0].startswith("cuda")
    progress.ahead.shared = len(set(places)) if several else 0
    with mps.running(several):
        pool = WorkerPool(places, progress, stop, deque(jobs), gpus_per_run=resources.gpus_per_run,
                          sharing=Sharing.of(places) if several and not resources.per_gpu else None, patience=patience)
        try:
            result = pool.run()
        except BaseException:  # such as the SystemExit by which a cluster takes its machine back
            pool.save(SAVING)
            raise
        finally:
            pool.close()
        return stopped(result, stop, jobs)
