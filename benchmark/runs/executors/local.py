"""Worker processes on this machine: one a GPU, or several on the CPU's cores."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pkgutil
import signal
import time
from collections import deque
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import methods
from benchmark.runs.cell import failed, write_failure
from benchmark.runs.interrupt import Brake
from benchmark.runs.job import Job, Outcome, Resources
from benchmark.runs.locks import LOST, Heart, Watch
from benchmark.runs.progress import Progress
from benchmark.utils.signals import deaf, hear

ATTEMPTS = 2
"""How often a cell is tried whose worker died or hung under it."""

ELSEWHERE = "done elsewhere:"


def devices(resources: Resources) -> list[str]:
    """The device of each worker: every GPU `per_gpu` times, else the CPU `jobs` times (default: its cores, at most 4).
    """
    import torch

    if torch.cuda.is_available():
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())] * resources.per_gpu
    return ["cpu"] * (resources.jobs or min(cores(), 4))


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Worker:
    """A worker process, its end of the pipe, the counter of its heartbeats and the cell it is at."""

    process: Any
    pipe: Connection
    pulse: Any
    job: Job | None = None
    killed: str = ""


@dataclass
class Crew:
    """The workers of a sweep and the cells before them."""

    places: list[str]
    progress: Progress
    brake: Brake
    waiting: deque[Job]
    elsewhere: list[Job] = field(default_factory=list)
    """Cells that another runner holds: looked at again until they are done or given up."""
    attempts: dict[str, int] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    watch: Watch = field(default_factory=Watch)
    workers: list[Worker | None] = field(default_factory=list)
    failures: dict[str, tuple[int, str] | None] = field(default_factory=dict)
    """Of each cell, how it had failed when the sweep began."""

    def __post_init__(self) -> None:
        self.failures = {job.spec.identity: failed(job.folder) for job in self.waiting}
        # A server that has imported torch and all methods once hands out workers at no cost, also for dead ones.
        kinds = multiprocessing.get_all_start_methods()
        self.start: Any = multiprocessing.get_context("forkserver" if "forkserver" in kinds else "spawn")
        if "forkserver" in kinds:
            own = [module.name for module in pkgutil.iter_modules(methods.__path__)]
            self.start.set_forkserver_preload(["benchmark.runs.cell", *(f"methods.{name}" for name in own)])
        # no lock around it: a process killed while it holds one would stop all others
        self.stop = self.start.RawValue("b", 0)
        self.threads = max(1, cores() // max(1, len(self.places)))
        self.workers = [None] * len(self.places)

    def work(self) -> Outcome:
        """Until every cell is done, failed or put down."""
        told = False
        while True:
            self.stop.value = self.brake.pressed
            if self.brake.hard:
                return self.outcome
            self._revisit()
            for place in range(len(self.workers)):
                self._employ(place)
            busy = [worker for worker in self.workers if worker is not None and worker.job is not None]
            if not busy and (self.stop.value or self.outcome.ended or not (self.waiting or self.elsewhere)):
                return self.outcome
            if not busy and not self.waiting and not told:
                told = True
                self.progress.say(f"waiting for {len(self.elsewhere)} cells that another runner holds")
            if not busy:
                time.sleep(min(1.0, self.watch.stale / 12))
            for pipe in wait([worker.pipe for worker in busy], timeout=min(1.0, self.watch.stale / 12)) if busy else []:
                self._hear(next(i for i, worker in enumerate(self.workers) if worker and worker.pipe is pipe))
            self._check_pulses()
            self.progress.tick()

    def close(self) -> None:
        """End the workers: idle ones by word, busy ones (after a second Ctrl-C) at once."""
        for worker in self.workers:
            if worker is None:
                continue
            if worker.job is None:
                with contextlib.suppress(OSError):
                    worker.pipe.send(None)
                worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(5)
            worker.pipe.close()

    def _employ(self, place: int) -> None:
        """Give an idle worker the next free cell, starting its process where there is none."""
        worker = self.workers[place]
        if self.stop.value or self.outcome.ended or (worker is not None and worker.job is not None):
            return
        job = self._next()
        if job is None:
            return
        if worker is None:
            worker = self.workers[place] = self._hire(self.places[place])
        worker.job = job
        self.watch.forget(worker.process.pid)
        self.progress.start(job.spec.identity, job.spec.label(), job.spec.protocol.epochs)
        with contextlib.suppress(OSError):  # it died while idle: its end of the pipe tells
            device = self.places[place]
            shared = self.places.count(device) if device.startswith("cuda") else 1
            worker.pipe.send(replace(job, context=replace(job.context, device=device, shared=shared)))

    def _next(self) -> Job | None:
        while self.waiting:
            job = self.waiting.popleft()
            now = failed(job.folder)
            if now not in (None, self.failures[job.spec.identity]):  # another runner tried meanwhile
                self.outcome.failed.append((job.spec, now[1]))
                self.progress.failed(job.spec.label(), f"elsewhere: {now[1]}")
                continue
            after = self.watch.free(job.folder)
            if after is not None:
                return replace(job, after=after)
            self.elsewhere.append(job)
        return None

    def _revisit(self) -> None:
        for job in list(self.elsewhere):
            if job.done:
                self.elsewhere.remove(job)
                self.progress.done(job.spec.label(), ELSEWHERE)
            elif self.watch.free(job.folder) is not None:
                self.elsewhere.remove(job)
                self.waiting.append(job)

    def _hire(self, device: str) -> Worker:
        ours, theirs = self.start.Pipe()
        pulse = self.start.RawValue("Q", 0)
        process = self.start.Process(target=_serve, daemon=True,
                                     args=(theirs, self.threads, self.stop, pulse, self.watch.stale / 12))
        if self.start.get_start_method() == "forkserver":
            _start_server()
        process.start()
        theirs.close()
        return Worker(process, ours, pulse)

    def _hear(self, place: int) -> None:
        worker = self.workers[place]
        assert worker is not None
        job = worker.job
        assert job is not None
        key = job.spec.identity
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, OSError):
            self._lost(place, worker, job)
            return
        if kind == "epoch":
            self.progress.epoch(key, content)
            return
        worker.job = None
        if kind == "done":
            self.outcome.done.append(job.spec)
            self.progress.done(key)
        elif kind == "found":
            self.progress.done(key, ELSEWHERE)
        elif kind == "busy":
            self.elsewhere.append(job)
            self.progress.paused(key, note="")
        elif kind == "failed":
            self.outcome.failed.append((job.spec, content))
            self.progress.failed(key, content)
            if self.places[place].startswith("cuda"):  # after an error a process cannot trust its GPU any more
                self._dismiss(place, worker)
        elif kind == "stopped":
            self.progress.paused(key)
            if not self.stop.value:  # that one worker was told to go, by a signal of its own
                self.waiting.append(job)
                self._dismiss(place, worker)
        elif kind == "full":
            self.progress.paused(key, note="no room")
            self.outcome.ended = f"{content}: free some space (or give another folder with --work), then run again"

    def _lost(self, place: int, worker: Worker, job: Job) -> None:
        """The process is gone: out of memory, a crash in native code, somebody's kill, or ours because it hung."""
        self._dismiss(place, worker)
        key = job.spec.identity
        self.attempts[key] = self.attempts.get(key, 0) + 1
        why = worker.killed or f"the worker process died (exit {worker.process.exitcode})"
        if job.done:
            self.outcome.done.append(job.spec)
            self.progress.done(key)
        elif self.attempts[key] < ATTEMPTS:
            self.progress.paused(key, note=f"{why}; once more:")
            self.waiting.appendleft(job)
        else:
            cause = f"{why}, {self.attempts[key]} times"
            write_failure(job, cause, kind="WorkerDied",
                          remedy="if memory ran out: a smaller batch (--set batch_size=...) or fewer --jobs")
            self.outcome.failed.append((job.spec, cause))
            self.progress.failed(key, cause)

    def _dismiss(self, place: int, worker: Worker) -> None:
        worker.process.kill()
        worker.process.join(10)
        worker.pipe.close()
        self.workers[place] = None

    def _check_pulses(self) -> None:
        for worker in self.workers:
            if worker is None or worker.job is None:
                continue
            if self.watch.still(worker.process.pid, worker.pulse.value):
                worker.killed = f"the worker gave no sign of life for {self.watch.stale:.0f} s"
                worker.process.kill()  # its pipe closes, and `_hear` does the rest


def execute(jobs: list[Job], resources: Resources, progress: Progress) -> Outcome:
    """Do the cells on this machine; Ctrl-C once puts them down to go on later, twice ends at once (`Brake`)."""
    with Brake(resources.seconds) as brake:
        crew = Crew(devices(resources)[:max(1, len(jobs))], progress, brake, deque(jobs))
        try:
            outcome = crew.work()
        finally:
            crew.close()
        outcome.interrupted = brake.exit_code
        if brake.out_of_time and not outcome.interrupted and outcome.open(jobs):
            outcome.ended = outcome.ended or "the time of --budget is over"
        return outcome


def _start_server() -> None:
    """Start the server that workers are forked from, deaf to Ctrl-C and SIGTERM from its first moment.

    Either may go to all processes at once, and workers, which end when the server does, have an epoch to save.

    It looks for modules where it stands, so it must stand at our own packages: in the user's folder a `splits` or
    `methods` may mean something else. Workers go back to that folder by themselves.
    """
    from multiprocessing import forkserver  # not on every system

    here = os.getcwd()
    with deaf(signal.SIGINT, signal.SIGTERM):
        try:
            os.chdir(Path(methods.__file__).parents[1])
            forkserver.ensure_running()
        finally:
            os.chdir(here)


def _serve(pipe: Connection, threads: int, stop: Any, pulse: Any, beat: float) -> None:
    """The life of a worker process: cells come through the pipe until None does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides what Ctrl-C means
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))
    hear(signal.SIGTERM)
    heart = Heart(pulse, orphan=True, beat=beat)
    heart.start()
    import torch

    from benchmark.runs import cell

    def tell(entry: dict[str, Any]) -> None:
        try:
            pipe.send(("epoch", entry))
        except OSError:  # the runner is dead: that is no failure of this cell
            os._exit(LOST)

    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, OSError):
        while not leaving and (job := pipe.recv()) is not None:
            pipe.send(tuple(cell.do(job, heart, stop=lambda: bool(stop.value or leaving), tell=tell)))
