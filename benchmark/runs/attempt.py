"""One attempt at a run, from its lock to its record or its failure, on whatever machine."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmark.runs import gpu_memory, worker
from benchmark.runs.failures import write_failure
from benchmark.runs.job import HEADLINE, Job, RunContext
from benchmark.runs.locks import Heartbeat, Lock, Watch, end_process
from benchmark.runs.trials import validation_score
from benchmark.training.meter import Diverged
from benchmark.training.train import Interrupted
from benchmark.utils.errors import NO_ROOM, is_user_error
from reports import ReportError, records

FULL = "the disk is full"
TAKEN = "the run was taken over by another process, or its folder was removed"


class AttemptResult(NamedTuple):
    """How it ended: done, exists (done by another), busy (another has it), stopped (saved), failed, full (disk),
    crowded (too little memory on a GPU that it shared), lost (taken over by another, or its folder removed).
    """

    kind: str
    text: str = ""


def attempt_run(job: Job, heartbeat: Heartbeat, *, should_stop: Callable[[], bool] = lambda: False,
                report: Callable[[dict[str, Any]], None] = lambda event: None) -> AttemptResult:
    """Take the run's lock, train and record it, and give the lock back; a failure is written down, never raised.

    Args:
        job: the run.
        heartbeat: a started thread, which beats for the lock while it lasts.
        should_stop: asked after every training step; it may raise once the run is lost (`heartbeat.on_lost`).
        report: called with every event of the training (`train.TrainContext`).
    """
    folder = job.folder
    if job.done:
        return AttemptResult("exists")
    try:
        lock = Lock.take(folder, job.after)
    except OSError as error:  # nothing is written down: the folder may be another runner's
        facts = failure_of(error)
        told = f"{folder}: {error.strerror}" + f"; {facts['remedy']}" * bool(facts["remedy"])
        return AttemptResult("full", FULL) if facts["cause"] == FULL else AttemptResult("failed", told)
    if lock is None:
        return AttemptResult("busy")
    heartbeat.lock, heartbeat.busy = lock, True
    result, threads = AttemptResult("stopped"), torch.get_num_threads()
    try:
        if job.done:
            result = AttemptResult("exists")
        else:
            path = worker.run(job.spec, job.context, should_stop=should_stop, report=report)
            result = AttemptResult("done", score_text(path))
    except Interrupted as error:
        result = AttemptResult("stopped", str(error))
    except (Exception, SystemExit) as error:  # a plug-in may end itself
        if lock.beat():
            result = _failure(job, error)
        else:  # nothing is written down: the folder is another's, or meant to be gone
            heartbeat.on_lost()
            result = AttemptResult("lost", TAKEN)
    finally:
        torch.set_num_threads(threads)  # a resumed run has gone on with those that it began with
        heartbeat.lock, heartbeat.busy = None, False
        if result.kind in ("done", "exists"):
            lock.done()
        else:
            lock.release()
    return result


def attempt_alone(job: Job, *, should_stop: Callable[[], bool] = lambda: False,
                  report: Callable[[dict[str, Any]], None] = lambda event: None,
                  on_lost: Callable[[], None] = end_process) -> AttemptResult:
    """The same where no runner watches: with a heartbeat of its own, after waiting whether the lock's owner is dead."""
    watch, heartbeat = Watch(), Heartbeat(on_lost=on_lost)
    heartbeat.start()
    try:
        patience = 2 * watch.stale
        while (after := watch.free(job.folder)) is None and not job.done:
            if patience <= 0:
                return AttemptResult("busy")
            patience -= watch.stale / 12
            time.sleep(watch.stale / 12)
        return attempt_run(replace(job, after=after or 0), heartbeat, should_stop=should_stop, report=report)
    finally:
        heartbeat.stop()


def score_text(path: Path) -> str:
    """The headline score of a record, for the line that says a run is done.

    Of a run that holds out training classes, as those of `oodml tune` do, it is the score on these: whoever compares
    settings must not see test scores meanwhile.

    >>> score_text(Path("nowhere"))
    ''
    """
    try:
        record = records.read(path)
        if record["protocol"].get("validation"):
            score = validation_score(path.parent)
            return "" if score is None else f"validation {HEADLINE} {100 * score:.1f} %"
        return f"{HEADLINE} {100 * record['scores']['last'][HEADLINE]:.1f} %"
    except (ReportError, AttributeError, KeyError, TypeError, ValueError, OSError):
        return ""


def failure_of(error: BaseException) -> dict[str, Any]:
    """What `failure.json` says of an error that ended a run: cause, what to try, the error's kind, and the step.

    >>> failure_of(OSError(28, "No space left on device"))["cause"]
    'the disk is full'
    >>> failure_of(RuntimeError("I/O error: Disk quota exceeded (os error 122)"))["cause"]
    'the disk is full'
    """
    text = str(error).strip()
    cause, remedy = text or type(error).__name__, ""
    if isinstance(error, Diverged):
        remedy = "lower the learning rate (--set lr=...) or clip gradients (--set clip_norm=1)"
    elif gpu_memory.ran_out(error):
        cause = gpu_memory.OUT
        remedy = ("a smaller batch (--set batch_size=...), pieces of it (--set micro_batch=...), or nothing compiled "
                  "(--no-compile)")
    elif isinstance(error, MemoryError) or "can't allocate memory" in text:
        cause = "main memory ran out"
        remedy = "a smaller batch (--set batch_size=...), or fewer runs at once (--jobs 1)"
    elif (isinstance(error, OSError) and error.errno in NO_ROOM) or "No space left" in text or any(
            f"(os error {number})" in text for number in NO_ROOM):  # so safetensors says it
        cause, remedy = FULL, "free some space or give another folder (--work DIR), then run again"
    elif isinstance(error, PermissionError) and (error.filename or error.errno == errno.EACCES):
        cause = f"no permission for {error.filename}" if error.filename else cause
        remedy = ("who owns it may let you read and write it (umask 002 and a common group where several share a "
                  "folder); other folders are given by --work DIR and --data DIR")
    elif "CUDA error" in text:
        cause, remedy = f"the GPU failed: {text.splitlines()[0]}", "run again; if it stays, try --no-compile"
    elif not is_user_error(error):
        cause = f"{type(error).__name__}: {cause}" if text else cause
    return {"cause": cause, "remedy": remedy, "kind": type(error).__name__, "step": getattr(error, "step", None)}


def _failure(job: Job, error: BaseException) -> AttemptResult:
    """The result of a run that failed, after writing down why.

    A full disk is no run's fault, nor is a GPU that others have filled: it is marked as passing, so that the next sweep
    does the run without --retry-failed.
    """
    facts = failure_of(error)
    crowd = _crowd(error, job.context) if gpu_memory.ran_out(error) else ""
    if crowd:
        facts |= {"cause": f"{gpu_memory.OUT}: {crowd}", "remedy": "end what else runs on it, or run again afterwards"}
    cause = str(facts.pop("cause"))
    kind = "crowded" if crowd else "full" if cause.startswith(FULL) else "failed"
    where = _line_of_plugin(error, job.context.plugins) if kind == "failed" else ""
    if where:
        first, *rest = cause.splitlines()
        cause = "\n".join([f"{first} ({where})", *rest])
    write_failure(job, cause, **facts, passing=kind != "failed", traceback=traceback.format_exc())
    return AttemptResult(kind, FULL if kind == "full" else cause.splitlines()[0])


def _crowd(error: BaseException, context: RunContext) -> str:
    """Who may have left too little memory to the run; '' where it had its GPUs to itself."""
    held = gpu_memory.held_by_others(context.devices or (context.device,))
    return held or ("other runs shared it" if context.shared or getattr(error, "shared", False) else "")


def _line_of_plugin(error: BaseException, plugins: tuple[str, ...]) -> str:
    """File and line of a plug-in at which it stopped; empty where it was not its own code."""
    homes = {Path(plugin).resolve().parent for plugin in plugins}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if Path(frame.filename).resolve().parent in homes]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
