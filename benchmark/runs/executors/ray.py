"""Runs on a Ray cluster, an existing one (`--ray-address`) or one started on this machine.

The processes are actors, which do one run after the other: a task that needs a GPU has a process of its own each time,
and importing torch and setting up a GPU take longer than a short run. An actor also keeps the GPU that it has begun
with, which a process cannot change.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from benchmark.runs.attempt import AttemptResult, attempt_alone
from benchmark.runs.executors.outcomes import settle, stopped
from benchmark.runs.failures import write_failure
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Job, Resources, SweepResult
from benchmark.runs.progress import Progress
from benchmark.utils.errors import UserError

RETRIES = 3
"""How often a run is begun again whose node or process was lost."""
POLL = 1.0
"""Seconds after which a run asks again whether it should stop: an answer takes as long as a small step."""


class Channel:
    """The actor to which runs report epochs and which they ask whether they should stop."""

    def __init__(self) -> None:
        self.stopping = False
        self.events: list[tuple[str, dict[str, Any]]] = []

    def report(self, key: str, event: dict[str, Any]) -> None:
        """Take an event of the run of this identity."""
        self.events.append((key, event))

    def take_events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events since the last call."""
        events, self.events = self.events, []
        return events

    def request_stop(self) -> None:
        self.stopping = True

    def should_stop(self) -> bool:
        return self.stopping


class Runner:
    """The actor of a process that does one run after the other."""

    def attempt(self, job: Job, channel: Any, threads: int) -> AttemptResult:
        """One run; it starts where an earlier attempt was lost."""
        import ray
        import torch

        torch.set_num_threads(threads)
        if ray.get_gpu_ids():
            job = replace(job, context=replace(job.context, device="cuda:0"))
        stopping, last = False, float("-inf")

        def should_stop() -> bool:
            nonlocal stopping, last
            if not stopping and time.monotonic() - last >= POLL:
                stopping, last = ray.get(channel.should_stop.remote()), time.monotonic()
            return stopping

        return attempt_alone(job, should_stop=should_stop,
                             report=lambda event: channel.report.remote(job.spec.identity, event))


def execute(jobs: list[Job], resources: Resources, progress: Progress) -> SweepResult:
    """Do the runs on a Ray cluster; Ctrl-C once saves them to be resumed, twice ends at once (`StopRequest`)."""
    ray = _imported()
    started = not ray.is_initialized()
    if started:
        _check_address(resources.ray_address)
        try:
            ray.init(address=resources.ray_address, log_to_driver=False, include_dashboard=False if not
                     resources.ray_address else None, num_cpus=None if resources.ray_address else resources.jobs)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"no Ray cluster at {resources.ray_address or 'this machine'}: "
                            f"{str(error).splitlines()[0]}") from None
    try:
        with StopRequest(resources.seconds) as stop:
            return _drive(ray, jobs, resources, progress, stop)
    finally:
        if started:
            ray.shutdown()


def _drive(ray: Any, jobs: list[Job], resources: Resources, progress: Progress, stop: StopRequest) -> SweepResult:
    result = SweepResult()
    channel = _channel(ray)
    gpus = 1 / resources.per_gpu if ray.cluster_resources().get("GPU") else 0
    runner = ray.remote(num_cpus=1, num_gpus=gpus, runtime_env={"env_vars": _variables()})(Runner)
    waiting, lost = list(reversed(jobs)), Counter[str]()
    running: dict[Any, tuple[Job, Any]] = {}
    idle: list[Any] = []
    stopping = told = False
    while waiting or running:
        room = _room(ray, gpus)
        if told is (room > 0):
            told = not told
            progress.write("no node with room for a run is left in the cluster: waiting for one to join; Ctrl-C ends, "
                           "the same command resumes" if told else "a node has joined the cluster")
        if stop.requested and not stopping:
            stopping = True
            ray.get(channel.request_stop.remote())
        if stop.forced or (stopping and not room):  # runs whose node is gone cannot be asked to stop
            for _, actor in running.values():
                ray.kill(actor)
            break
        while waiting and len(running) < (resources.jobs or max(1, room)) and not (stopping or result.ended):
            job, actor = waiting.pop(), idle.pop() if idle else runner.remote()
            running[actor.attempt.remote(job, channel, 1)] = job, actor
            progress.start(job.spec.identity)
        if not running:
            break
        ready, _ = ray.wait(list(running), timeout=0.5)
        for key, event in ray.get(channel.take_events.remote()):
            progress.epoch(key, event)
        for reference in ready:
            job, actor = running.pop(reference)
            kind = _settle(ray, reference, job, result, progress, lost)
            if kind in ("busy", "again"):
                waiting.insert(0 if kind == "busy" else len(waiting), job)
            if kind in ("failed", "crowded", "again"):
                ray.kill(actor)  # after an error a process cannot trust its GPU any more, and may hold its memory
            else:
                idle.append(actor)
        if not waiting:
            idle.clear()  # Ray ends an actor that nobody holds: others of the cluster may have its GPU
        progress.tick()
    return stopped(result, stop, jobs)


def _variables() -> dict[str, str]:
    """What of this environment the tasks need and the cluster, which may be older, does not know."""
    folder = os.environ.get("OODML_WEIGHTS")
    return {"OODML_WEIGHTS": os.path.abspath(folder)} if folder else {}


def _channel(ray: Any) -> Any:
    """A channel on the node of the driver: on any other node it would be lost with that node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Channel).remote()


def _room(ray: Any, gpus: float) -> int:
    """Runs that the nodes which are alive can do at a time."""
    alive = ray.cluster_resources()
    return int(alive.get("GPU", 0) / gpus if gpus else alive.get("CPU", 0))


def _settle(ray: Any, reference: Any, job: Job, result: SweepResult, progress: Progress, lost: Counter[str]) -> str:
    """Note how an attempt ended; returns the kind of its result, `again` where the run is to be begun anew."""
    try:
        outcome = AttemptResult(*ray.get(reference))
    except ray.exceptions.RayError as error:
        key, why = job.spec.identity, type(error).__name__
        lost[key] += 1
        raised = isinstance(error, ray.exceptions.RayTaskError)  # on another node it would be so again
        if lost[key] <= RETRIES and not raised:
            progress.paused(key, note=f"the cluster lost the run ({why}); once more:")
            return "again"
        cause = f"{why}: {str(error).strip().splitlines()[-1]}" if raised else \
            f"the cluster lost the run {lost[key]} times ({why})"
        write_failure(job, cause, kind=why)
        outcome = AttemptResult("failed", cause)
    settle(job, *outcome, result, progress)
    return outcome.kind


def _check_address(address: str | None) -> None:
    """Ray itself tries for minutes to reach a cluster that is not there."""
    match = re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address or "")
    if match is None:  # none, or `auto`: Ray finds it by itself
        return
    try:
        socket.create_connection((match[1], int(match[2])), timeout=10).close()
    except OSError as error:
        raise UserError(f"no Ray cluster at {address}: {error.strerror or error}; `ray start --head` starts one and "
                        "prints its address") from None


def _imported() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError("the executor ray needs Ray: `pip install 'oodml[ray]'`") from None
    return ray
