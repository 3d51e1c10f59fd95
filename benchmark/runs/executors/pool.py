"""The worker processes of a sweep on this machine: each does one run after the other, and is replaced where it dies."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import time
from collections import deque
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from benchmark.runs.executors import mps, server
from benchmark.runs.executors.crowded import Crowded
from benchmark.runs.executors.gpus import Sharing, group
from benchmark.runs.executors.outcomes import ELSEWHERE, settle
from benchmark.runs.executors.worker_process import serve
from benchmark.runs.failures import last_failure, write_failure
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Job, SweepResult
from benchmark.runs.locks import LOST, Watch, newest
from benchmark.runs.progress import Progress
from benchmark.utils import processors
from benchmark.utils.errors import UserError
from reports.records import FAILURE
from reports.wording import counted, duration

ATTEMPTS = 2
"""How often a run is tried whose worker died or hung under it."""

ENDING = 5.0
"""Seconds that an idle worker may take to end, and its server to tell of it."""

STOPPING = "stopping: epochs that are nearly over are finished first; Ctrl-C again ends at once"


@dataclass
class Worker:
    """A worker process, its end of the pipe, the counter of its heartbeats and the run it is at."""

    process: Any
    pipe: Connection
    heartbeats: Any
    job: Job | None = None
    alone: bool = False
    """Whether its run has the device to itself, as far as the pool goes."""
    killed: str = ""
    """Why the pool ended the process, if it did."""


@dataclass
class WorkerPool:
    """The worker processes of a sweep, one for each entry of `devices`, and the runs they have yet to do."""

    devices: list[str]
    progress: Progress
    stop: StopRequest
    waiting: deque[Job]
    held_elsewhere: list[Job] = field(default_factory=list)
    """Runs whose lock another runner holds: looked at again until they are done or released."""
    attempts: dict[str, int] = field(default_factory=dict)
    crowded: Crowded = field(default_factory=Crowded)
    """Runs that found too little memory: they come last, each with its device to itself."""
    result: SweepResult = field(default_factory=SweepResult)
    watch: Watch = field(default_factory=Watch)
    workers: list[Worker | None] = field(default_factory=list)
    failures: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    """Of each run, how it had failed when the sweep began."""
    gpus_per_run: int = 1
    sharing: Sharing | None = None
    """Under `--per-gpu auto`: how many of the workers may work."""
    patience: float = math.inf
    """Seconds for which runs that another runner holds are waited for once all others are done."""

    def __post_init__(self) -> None:
        self.failures = {job.spec.identity: last_failure(job.folder) for job in self.waiting}
        # A server that has imported torch and all methods once forks workers at no cost, also to replace dead ones.
        self.processes: Any = multiprocessing.get_context("forkserver" if server.AVAILABLE else "spawn")
        # no lock around it: a process killed while it holds one would stop all others
        self.stopping = self.processes.RawValue("b", 0)
        self.threads = processors.threads(len(self.devices))
        self.workers = [None] * len(self.devices)

    def run(self) -> SweepResult:
        """Work until every run is done, failed, or saved after a request to stop."""
        announced, stopping = None, False
        while True:
            self.stopping.value = self.stop.requested
            if self.stop.forced:
                return self.result
            if self.stop.count and not stopping:
                stopping = True
                self.progress.write(STOPPING)
            self._revisit()
            self.progress.ahead.elsewhere = len(self.held_elsewhere)
            for slot in range(len(self.workers)):
                self._assign(slot)
            busy = [worker for worker in self.workers if worker is not None and worker.job is not None]
            if not busy and (self.stopping.value or self.result.ended or not (self.waiting or self.held_elsewhere)):
                return self.result
            if not busy and not self.waiting:
                if announced is None:
                    announced = time.monotonic()
                    others = counted(len(self.held_elsewhere), "run")
                    self.progress.write(f"waiting for {others} that another runner holds")
                if time.monotonic() - announced > self.patience:
                    return self.result
            if not busy:
                time.sleep(min(1.0, self.watch.stale / 12))
            for pipe in wait([worker.pipe for worker in busy], timeout=min(1.0, self.watch.stale / 12)) if busy else []:
                self._receive(next(i for i, worker in enumerate(self.workers) if worker and worker.pipe is pipe))
            self._check_heartbeats()
            self.progress.tick()

    def save(self, seconds: float) -> None:
        """Ask the runs under way to stop, and wait for at most so long until they are saved.

        For a process that something else ends: their locks tell, since what came through the pipes may be cut.
        """
        self.stopping.value = True
        busy = [worker.job.folder for worker in self.workers if worker is not None and worker.job is not None]
        until = time.monotonic() + seconds
        while time.monotonic() < until and any((held := newest(folder)) and not held.released for folder in busy):
            time.sleep(0.1)

    def close(self) -> None:
        """End the workers: idle ones by a message, busy ones (after a second Ctrl-C) at once."""
        for worker in self.workers:
            self._end(worker)

    def _assign(self, slot: int) -> None:
        """Give an idle worker the next free run, starting its process where there is none."""
        worker = self.workers[slot]
        if self.stopping.value or self.result.ended or (worker is not None and worker.job is not None):
            return
        if self.sharing is not None and slot >= self.sharing.allowed * self.sharing.gpus:
            return
        device = self.devices[slot]
        there = [place for place, other in enumerate(self.devices) if other == device]
        busy = [other for place in there if (other := self.workers[place]) is not None and other.job is not None]
        if any(other.alone for other in busy):
            return
        job, alone = self._next(), len(there) == 1
        if job is None and not busy and (job := self._next(crowded=True)) is not None:
            alone, worker = True, None
            for place in there:
                self._end(self.workers[place])  # an idle process keeps memory, too
                self.workers[place] = None
        if job is None:
            return
        if worker is None:
            worker = self.workers[slot] = self._spawn()
        worker.job, worker.alone = job, alone
        self.watch.forget(worker.process.pid)
        self.progress.start(job.spec.identity)
        with contextlib.suppress(OSError):  # it died while idle: its end of the pipe is closed
            worker.pipe.send(replace(job, context=replace(job.context, device=device, shared=not alone,
                                                          devices=group(device, self.gpus_per_run))))

    def _next(self, crowded: bool = False) -> Job | None:
        """The next free run: one that is to have its device to itself, or one of the others."""
        for job in list(self.waiting):
            key = job.spec.identity
            if (key in self.crowded) != crowded or (crowded and not self.crowded.due(key)):
                continue
            self.waiting.remove(job)
            failure = last_failure(job.folder)
            if failure not in (None, self.failures[key]):  # another runner tried meanwhile
                self.result.failed.append((job.spec, failure[1]))
                self.progress.failed(key, f"elsewhere: {failure[1]}")
                continue
            after = self.watch.free(job.folder)
            if after is not None:
                return replace(job, after=after)
            self.held_elsewhere.append(job)
        return None

    def _revisit(self) -> None:
        for job in list(self.held_elsewhere):
            if job.done:
                self.held_elsewhere.remove(job)
                self.progress.done(job.spec.identity, ELSEWHERE)
            elif self.watch.free(job.folder) is not None:
                self.held_elsewhere.remove(job)
                self.waiting.append(job)

    def _spawn(self) -> Worker:
        ours, theirs = self.processes.Pipe()
        heartbeats = self.processes.RawValue("Q", 0)
        for attempt in range(ATTEMPTS):
            process = self.processes.Process(
                target=serve, daemon=True,
                args=(theirs, self.threads, self.stopping, heartbeats, self.watch.stale / 12,
                      os.environ.get(mps.PIPES)))
            try:
                server.start(process)
                break
            except (EOFError, ConnectionError) as error:  # the server was killed, or stopped, before it had forked
                server.end()  # waits for its last moment, in which it would still be taken for alive
                if attempt == ATTEMPTS - 1:
                    raise UserError(f"no worker process could be started ({type(error).__name__}): the process that "
                                    "starts them was killed; is there memory left?") from None
        theirs.close()
        return Worker(process, ours, heartbeats)

    def _receive(self, slot: int) -> None:
        worker = self.workers[slot]
        assert worker is not None
        job = worker.job
        assert job is not None
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            self._lost(slot, worker, job)
            return
        if kind == "epoch":
            self.progress.epoch(job.spec.identity, content)
            if self.sharing is not None:
                self.sharing.note(slot, content, time.monotonic())
            return
        if self.sharing is not None:
            self.sharing.ended(slot)
        worker.job = None
        if kind == "crowded":
            self._put_back(slot, worker, job, content)
            return
        settle(job, kind, content, self.result, self.progress)
        if kind == "busy":
            self.held_elsewhere.append(job)
        elif kind == "failed" and self.devices[slot].startswith("cuda"):
            self._stop(slot, worker)  # after an error a process cannot trust its GPU any more
        elif kind == "stopped" and not self.stopping.value:  # a signal went to this worker alone
            self.waiting.append(job)
            self._stop(slot, worker)

    def _put_back(self, slot: int, worker: Worker, job: Job, cause: str) -> None:
        """The run found too little memory beside others: it is tried again, alone, so often as that is of use."""
        self._stop(slot, worker)  # and its memory is free
        key = job.spec.identity
        seconds = self.crowded.put_back(key, worker.alone)
        if seconds is None:
            settle(job, "failed", cause, self.result, self.progress)
            return
        self.progress.paused(key, note=f"{cause}; once more in {duration(seconds)}:" if worker.alone else
                             "the GPU's memory was shared; once more alone:")
        self.waiting.append(job)

    def _lost(self, slot: int, worker: Worker, job: Job) -> None:
        """The process is gone: out of memory, a crash in native code, a kill from outside, or ours because it hung."""
        self._stop(slot, worker)
        key = job.spec.identity
        holder = newest(job.folder) if worker.process.exitcode == LOST else None
        if holder is not None and holder.facts.get("pid") != worker.process.pid:
            self.progress.paused(key, note="taken over by another runner:")
            self.waiting.append(job)  # to be looked at until it is done there, or released
            return
        self.attempts[key] = self.attempts.get(key, 0) + 1
        why = worker.killed or f"the worker process died (exit {worker.process.exitcode})"
        if job.done:
            self.result.done.append(job.spec)
            self.progress.done(key)
        elif self.attempts[key] < ATTEMPTS:
            self.progress.paused(key, note=f"{why}; once more:")
            self.waiting.appendleft(job)
        else:
            cause = f"{why}, {self.attempts[key]} times"
            write_failure(job, cause, kind="WorkerDied",
                          remedy="if memory ran out: a smaller batch (--set batch_size=...) or fewer --jobs")
            self.result.failed.append((job.spec, cause))
            self.progress.failed(key, cause, job.folder / FAILURE)

    def _end(self, worker: Worker | None) -> None:
        """End the process of a worker: an idle one by a message, a busy one at once."""
        if worker is None:
            return
        if worker.job is None:
            with contextlib.suppress(OSError):
                worker.pipe.send(None)
            worker.process.join(ENDING)
        if worker.process.is_alive():
            server.kill(worker.process, ENDING)
        worker.pipe.close()

    def _stop(self, slot: int, worker: Worker) -> None:
        server.kill(worker.process, 10)
        worker.pipe.close()
        self.workers[slot] = None

    def _check_heartbeats(self) -> None:
        for worker in self.workers:
            if worker is None or worker.job is None:
                continue
            if self.watch.still(worker.process.pid, worker.heartbeats.value):
                worker.killed = f"the worker gave no heartbeat for {self.watch.stale:.0f} s"
                server.strike(worker.process)  # its pipe closes, and `_receive` does the rest
