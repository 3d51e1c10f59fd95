"""One cell from lock to record, wherever it runs."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from benchmark import worker
from benchmark.executors import Job
from benchmark.executors.locks import Heart, Lock, Watch
from benchmark.train import Interrupted
from reports import records

FULL = "the disk is full"


class Verdict(NamedTuple):
    """How a cell ended: done, found (done by another), busy (another has it), stopped (saved), failed, full (disk)."""

    kind: str
    text: str = ""


def do(job: Job, heart: Heart, *, stop: Callable[[], bool] = lambda: False,
       tell: Callable[[dict[str, Any]], None] = lambda event: None) -> Verdict:
    """Take the cell's lock, do it, and give the lock back; a failure is written down, never raised."""
    folder = job.folder
    if job.done:
        return Verdict("found")
    try:
        lock = Lock.take(folder, job.after)
    except OSError as error:
        return Verdict("full", FULL) if _is_full(error) else Verdict("failed", f"{folder}: {error.strerror}")
    if lock is None:
        return Verdict("busy")
    heart.lock, heart.busy = lock, True
    verdict = Verdict("stopped")
    try:
        if job.done:
            verdict = Verdict("found")
        else:
            worker.run(job.spec, job.context, stop=stop, tell=tell)
            verdict = Verdict("done")
    except Interrupted as pause:
        verdict = Verdict("stopped", str(pause))
    except Exception as error:
        verdict = Verdict("full", FULL) if _is_full(error) else Verdict("failed", _note(job, error))
    finally:
        heart.lock, heart.busy = None, False
        if verdict.kind in ("done", "found"):
            lock.done()
        else:
            lock.release()
    return verdict


def do_alone(job: Job, *, stop: Callable[[], bool] = lambda: False,
             tell: Callable[[dict[str, Any]], None] = lambda event: None) -> Verdict:
    """`do` where no runner watches: with a heart of its own, after waiting whether the owner of the lock is dead."""
    watch, heart = Watch(), Heart()
    heart.start()
    try:
        patience = 2 * watch.stale
        while (after := watch.free(job.folder)) is None and not job.done:
            if patience <= 0:
                return Verdict("busy")
            patience -= watch.stale / 12
            time.sleep(watch.stale / 12)
        return do(replace(job, after=after or 0), heart, stop=stop, tell=tell)
    finally:
        heart.stop()


def write_failure(job: Job, cause: str, **facts: Any) -> None:
    """Put `failure.json` with what is known of the cell into its folder, if there is room for it."""
    spec = job.spec
    with contextlib.suppress(OSError):
        records.write_failure(job.folder, {
            "cause": cause, "dataset": spec.dataset, "split": spec.split, "method": spec.method, "seed": spec.seed,
            "protocol": spec.protocol["name"], "backbone": spec.protocol["backbone"], "identity": spec.identity,
            "label": spec.label(), **facts})


def _note(job: Job, error: Exception) -> str:
    facts = dict(worker.failure_of(error))
    cause = str(facts.pop("cause"))
    write_failure(job, cause, **{"traceback": traceback.format_exc(), **facts})
    return cause.splitlines()[0]


def _is_full(error: Exception) -> bool:
    """A full disk is no cell's failure: the sweep ends, and goes on when there is room again."""
    return str(worker.failure_of(error)["cause"]).startswith(FULL)
