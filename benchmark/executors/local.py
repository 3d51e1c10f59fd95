"""Worker processes on this machine: one a GPU, or several on the CPU's cores."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from benchmark.executors import Outcome
from benchmark.plan import RunSpec
from benchmark.progress import Progress
from benchmark.worker import Context
from reports import records

ATTEMPTS = 2
"""How often a cell is tried whose worker died under it."""


def devices(jobs: int | None = None) -> list[str]:
    """The device of each worker: every GPU there is, else `jobs` times the CPU (default: one a core, at most 4)."""
    import torch

    if torch.cuda.is_available():
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())] * (jobs or 1)
    return ["cpu"] * (jobs or min(os.cpu_count() or 1, 4))


@dataclass
class Worker:
    """A worker process, its end of the pipe and the cell it is at."""

    process: Any
    pipe: Connection
    spec: RunSpec | None = None


def execute(specs: list[RunSpec], context: Context, places: list[str], progress: Progress) -> Outcome:
    """Do the cells on the given devices; Ctrl-C once ends after the current epochs, twice at once."""
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    waiting = deque(specs)
    attempts: dict[str, int] = {}
    outcome = Outcome()
    threads = max(1, (os.cpu_count() or 1) // max(1, len(places)))

    def start(device: str) -> Worker:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, replace(context, device=device), threads, stop), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours)

    places = places[:max(1, len(specs))]
    workers = {i: start(device) for i, device in enumerate(places)}
    with _first_interrupt_sets(stop, outcome):
        for worker in workers.values():
            _give(worker, waiting)
        while any(worker.spec for worker in workers.values()):
            ready = wait([worker.pipe for worker in workers.values() if worker.spec], timeout=1)
            for i, worker in list(workers.items()):
                if worker.pipe not in ready or worker.spec is None:
                    continue
                spec = worker.spec
                try:
                    kind, content = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    # the process is gone: out of memory, a crash in native code, somebody's kill
                    attempts[spec.identity] = attempts.get(spec.identity, 0) + 1
                    worker.process.join(5)
                    if attempts[spec.identity] < ATTEMPTS and not stop.is_set():
                        waiting.appendleft(spec)
                    else:
                        cause = f"the worker process died {attempts[spec.identity]} times (exit {worker.process.exitcode})"
                        records.write_failure(spec.folder(context.workspace), {"cause": cause, "label": spec.label()})
                        outcome.failed[spec.label()] = cause
                        progress.failed(spec.label(), cause)
                    workers[i] = worker = start(places[i])
                    _give(worker, deque() if stop.is_set() else waiting)
                    continue
                if kind == "epoch":
                    progress.epoch(spec.label(), content)
                    continue
                if kind == "done":
                    outcome.done.append(spec)
                    progress.done(spec.label())
                elif kind == "failed":
                    outcome.failed[spec.label()] = content
                    progress.failed(spec.label(), content)
                _give(worker, deque() if stop.is_set() else waiting)
    for worker in workers.values():
        with contextlib.suppress(OSError):
            worker.pipe.send(None)
        worker.process.join(5)
    return outcome


def _give(worker: Worker, waiting: deque[RunSpec]) -> None:
    worker.spec = waiting.popleft() if waiting else None
    if worker.spec is not None:
        worker.pipe.send(worker.spec)


@contextlib.contextmanager
def _first_interrupt_sets(stop: Any, outcome: Outcome) -> Iterator[None]:
    """Ctrl-C (or a cluster's SIGTERM) asks the workers to save and end; a second one stops at once."""

    def ask(number: int, frame: Any) -> None:
        outcome.interrupted = True
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _serve(pipe: Connection, context: Context, threads: int, stop: Any) -> None:
    """The life of a worker process: cells come through the pipe until None does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides what Ctrl-C means
    import torch

    from benchmark import worker
    from benchmark.train import Diverged, Interrupted

    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while (spec := pipe.recv()) is not None:
            try:
                worker.run(spec, context, stop=stop.is_set, tell=lambda entry: pipe.send(("epoch", entry)))
                pipe.send(("done", None))
            except Interrupted as pause:
                pipe.send(("stopped", str(pause)))
            except Exception as error:
                cause, remedy = str(error) or type(error).__name__, ""
                if isinstance(error, Diverged):
                    remedy = "lower the learning rate: --set lr=..."
                elif isinstance(error, torch.cuda.OutOfMemoryError):
                    cause, remedy = "the GPU ran out of memory", "a smaller batch (--set batch_size=...) or fewer runs a GPU"
                elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    cause, remedy = "the disk is full", "free some space, then run again"
                with contextlib.suppress(OSError):
                    records.write_failure(spec.folder(context.workspace), {
                        "cause": cause, "remedy": remedy, "label": spec.label(), "kind": type(error).__name__,
                        "traceback": traceback.format_exc()})
                pipe.send(("failed", cause.splitlines()[0]))
