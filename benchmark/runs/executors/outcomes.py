"""How attempts at runs end, noted in the result of a sweep and on its progress: the same for every executor."""

from __future__ import annotations

from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Job, SweepResult
from benchmark.runs.progress import Progress
from reports.records import FAILURE

ELSEWHERE = "done elsewhere:"


def settle(job: Job, kind: str, text: str, result: SweepResult, progress: Progress) -> None:
    """Note how an attempt ended; `kind` and `text` are those of an `attempt.AttemptResult`."""
    key = job.spec.identity
    if kind == "done":
        result.done.append(job.spec)
        progress.done(key, score=text)
    elif kind == "exists":
        progress.done(key, ELSEWHERE)
    elif kind in ("failed", "crowded"):
        result.failed.append((job.spec, text))
        progress.failed(key, text, job.folder / FAILURE)
    elif kind == "full":
        progress.paused(key, note="no room")
        result.ended = f"{text}: free some space (or give another folder with --work), then run again"
    else:
        progress.paused(key, note="" if kind == "busy" else "saved")


def stopped(result: SweepResult, stop: StopRequest, jobs: list[Job]) -> SweepResult:
    """The result of a sweep over these runs, with what stopped it early if something did."""
    result.interrupted = stop.exit_code
    if stop.out_of_time and not result.interrupted and result.unfinished(jobs):
        result.ended = result.ended or "the time of --budget is over"
    return result
