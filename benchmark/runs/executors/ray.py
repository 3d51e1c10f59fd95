"""Cells as tasks of a Ray cluster, an existing one (`--ray-address`) or one started on this machine."""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import replace
from typing import Any

from benchmark.runs.cell import Verdict, do_alone, write_failure
from benchmark.runs.interrupt import Brake
from benchmark.runs.job import Job, Outcome, Resources
from benchmark.runs.progress import Progress
from benchmark.utils.errors import UserError

RETRIES = 3
"""How often Ray starts a task anew whose node or process was lost."""
ASKED = 1.0
"""Seconds between two questions of a task whether it should stop: an answer takes as long as a small step."""


class Board:
    """The actor through which tasks tell of epochs and learn that they should stop."""

    def __init__(self) -> None:
        self.stop = False
        self.entries: list[tuple[str, dict[str, Any]]] = []

    def tell(self, key: str, entry: dict[str, Any]) -> None:
        self.entries.append((key, entry))

    def news(self) -> list[tuple[str, dict[str, Any]]]:
        entries, self.entries = self.entries, []
        return entries

    def press(self) -> None:
        self.stop = True

    def stopping(self) -> bool:
        return self.stop


def task(job: Job, board: Any, threads: int, shared: int) -> Verdict:
    """One cell in a process of the cluster; it starts where an earlier try of the same task was lost."""
    import ray
    import torch

    torch.set_num_threads(threads)
    if ray.get_gpu_ids():
        job = replace(job, context=replace(job.context, device="cuda:0", shared=shared))
    heard, last = False, float("-inf")

    def stop() -> bool:
        nonlocal heard, last
        if not heard and time.monotonic() - last >= ASKED:
            heard, last = ray.get(board.stopping.remote()), time.monotonic()
        return heard

    return do_alone(job, stop=stop, tell=lambda entry: board.tell.remote(job.spec.identity, entry))


def execute(jobs: list[Job], resources: Resources, progress: Progress) -> Outcome:
    """Do the cells on a Ray cluster; Ctrl-C once puts them down to go on later, twice ends at once (`Brake`)."""
    ray = _imported()
    started = not ray.is_initialized()
    if started:
        _answers(resources.ray_address)
        try:
            ray.init(address=resources.ray_address, log_to_driver=False, include_dashboard=False if not
                     resources.ray_address else None, num_cpus=None if resources.ray_address else resources.jobs)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"no Ray cluster at {resources.ray_address or 'this machine'}: "
                            f"{str(error).splitlines()[0]}") from None
    try:
        with Brake(resources.seconds) as brake:
            return _drive(ray, jobs, resources, progress, brake)
    finally:
        if started:
            ray.shutdown()


def _drive(ray: Any, jobs: list[Job], resources: Resources, progress: Progress, brake: Brake) -> Outcome:
    outcome = Outcome()
    board = _board(ray)
    gpus = 1 / resources.per_gpu if ray.cluster_resources().get("GPU") else 0
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, runtime_env={"env_vars": _variables()})(task)
    waiting = list(reversed(jobs))
    running: dict[Any, Job] = {}
    pressed = False
    while waiting or running:
        if brake.pressed and not pressed:
            pressed = True
            ray.get(board.press.remote())
        if brake.hard:
            for reference in running:
                ray.cancel(reference, force=True)
            break
        room = resources.jobs or _room(ray, gpus)
        while waiting and len(running) < room and not (pressed or outcome.ended):
            job = waiting.pop()
            running[remote.remote(job, board, 1, resources.per_gpu)] = job
            progress.start(job.spec.identity, job.spec.label(), job.spec.protocol.epochs)
        if not running:
            break
        ready, _ = ray.wait(list(running), timeout=0.5)
        for key, entry in ray.get(board.news.remote()):
            progress.epoch(key, entry)
        for reference in ready:
            job = running.pop(reference)
            if _settle(ray, reference, job, outcome, progress) == "busy":
                waiting.insert(0, job)
        progress.tick()
    outcome.interrupted = brake.exit_code
    if brake.out_of_time and not outcome.interrupted and outcome.open(jobs):
        outcome.ended = outcome.ended or "the time of --budget is over"
    return outcome


def _variables() -> dict[str, str]:
    """What of this environment the tasks need and the cluster, which may be older, does not know."""
    folder = os.environ.get("OODML_WEIGHTS")
    return {"OODML_WEIGHTS": os.path.abspath(folder)} if folder else {}


def _board(ray: Any) -> Any:
    """A board beside the driver: on any other node it would be lost with that node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Board).remote()


def _room(ray: Any, gpus: float) -> int:
    """Cells that the nodes which are alive can do at a time."""
    found = ray.cluster_resources()
    return max(1, int(found.get("GPU", 0) / gpus if gpus else found.get("CPU", 0)))


def _settle(ray: Any, reference: Any, job: Job, outcome: Outcome, progress: Progress) -> str:
    """Note how a task ended; what became of its cell comes back."""
    key = job.spec.identity
    try:
        verdict = Verdict(*ray.get(reference))
    except ray.exceptions.RayError as error:
        cause = f"the cluster lost the run {1 + RETRIES} times ({type(error).__name__})"
        write_failure(job, cause, kind=type(error).__name__)
        verdict = Verdict("failed", cause)
    if verdict.kind == "done":
        outcome.done.append(job.spec)
        progress.done(key)
    elif verdict.kind == "found":
        progress.done(key, "done elsewhere:")
    elif verdict.kind == "failed":
        outcome.failed.append((job.spec, verdict.text))
        progress.failed(key, verdict.text)
    else:
        progress.paused(key, note={"busy": "", "full": "no room"}.get(verdict.kind, "saved"))
        if verdict.kind == "full":
            outcome.ended = f"{verdict.text}: free some space (or give another folder with --work), then run again"
    return verdict.kind


def _answers(address: str | None) -> None:
    """Ray itself tries for minutes to reach a cluster that is not there."""
    found = re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address or "")
    if found is None:  # none, or `auto`: Ray knows by itself
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()
    except OSError as error:
        raise UserError(f"no Ray cluster at {address}: {error.strerror or error}; `ray start --head` starts one and "
                        "tells its address") from None


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("the executor ray needs Ray: `pip install 'oodml[ray]'`") from None
    return ray
