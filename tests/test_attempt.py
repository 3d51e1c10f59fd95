"""One run from lock to record: how its failures are named, kept and taken away."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.runs import attempt, failures, status, worker
from benchmark.runs.job import SweepResult
from benchmark.training.meter import Diverged
from benchmark.training.train import Interrupted
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import MethodError
from reports import ReportError, records
from splits import SplitError
from tests import tiny_sweep


@pytest.mark.parametrize("kind", [UserError, SplitError, MethodError, ReportError])
def test_the_cause_of_a_users_mistake_is_its_text_alone(kind: type[Exception]) -> None:
    assert attempt.failure_of(kind("unknown thing 'x'"))["cause"] == "unknown thing 'x'"


def test_a_new_attempt_takes_the_failure_of_the_last_one_away(tiny: Workspace) -> None:
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    failures.write_failure(job, "the disk is full", passing=True)
    with pytest.raises(Interrupted):
        worker.run(job.spec, job.context, should_stop=lambda: True)
    assert status.look(job.folder) == status.RunState("missing", begun=True)


@pytest.mark.parametrize(("number", "tries"), [(errno.ENOSPC, failures.PATIENCE), (errno.EROFS, 1)])
def test_a_failure_waits_for_room_and_for_nothing_else(tiny: Workspace, monkeypatch: pytest.MonkeyPatch, number: int,
                                                      tries: int) -> None:
    """What fills the disk may be the checkpoint of another run, which takes it away; a lock on it stays."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    write, missing, tried = records.write_failure, failures.PATIENCE - 1, []

    def full(folder: Path, content: dict[str, Any]) -> None:
        tried.append(content["cause"])
        if len(tried) <= missing:
            raise OSError(number, "no")
        write(folder, content)

    monkeypatch.setattr(records, "write_failure", full)
    monkeypatch.setattr(failures.time, "sleep", lambda seconds: None)
    failures.write_failure(job, "the disk is full")
    assert tried == ["the disk is full"] * tries
    assert (job.folder / records.FAILURE).exists() == (tries > 1)


def test_nothing_is_written_of_an_error_in_a_run_that_is_lost(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was removed is not made again: the error is met before the heart beats for the next time."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)

    def removed(*given: Any, **named: Any) -> Path:
        shutil.rmtree(job.folder)
        raise FileNotFoundError(errno.ENOENT, "no such file", "log.jsonl")

    monkeypatch.setattr(worker, "run", removed)
    lost: list[str] = []
    result = attempt.attempt_alone(job, on_lost=lambda: lost.append("lost"))
    assert result == ("lost", attempt.TAKEN)
    assert lost == ["lost"]
    assert not job.folder.exists()


def test_a_folder_of_another_user_fails_with_what_mends_it(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written there that `oodml status` could show."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)

    def forbidden(*given: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(attempt.Lock, "take", forbidden)
    result = attempt.attempt_alone(job)
    assert result.kind == "failed"
    assert f"{job.folder}: Permission denied; who owns it may" in result.text


def test_the_threads_of_a_resumed_run_are_its_own(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook, or the next run of the process, goes on with those that it had before."""
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1)
    before = torch.get_num_threads()

    def resumed(*given: Any, **named: Any) -> Path:
        torch.set_num_threads(before + 1)
        raise Interrupted("stopped")

    monkeypatch.setattr(worker, "run", resumed)
    try:
        assert attempt.attempt_alone(job).kind == "stopped"
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


def test_a_failed_cell_is_not_unfinished(tiny: Workspace) -> None:
    """So that the end of a budget does not hide it."""
    first, second = tiny_sweep.jobs(tiny, "margin", seeds=2)
    assert SweepResult(failed=[(first.spec, "it broke")]).unfinished([first, second])
    assert not SweepResult(failed=[(first.spec, "it broke"), (second.spec, "too")]).unfinished([first, second])


def stepped(error: Exception, step: int) -> Exception:
    error.step = step  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(("error", "cause", "remedy"), [
    (Diverged("the loss is nan in epoch 2, at step 9"), "the loss is nan", "lr="),
    (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"), "GPU ran out of memory", "batch_size="),
    (RuntimeError("CUDA error: out of memory\nmore"), "GPU ran out of memory", "--no-compile"),
    (MemoryError(), "main memory ran out", "batch_size="),
    (RuntimeError("[enforce fail] CPUAllocator: can't allocate memory: you tried 9 bytes"), "main memory", "--jobs"),
    (OSError(28, "No space left on device"), "the disk is full", "free some space"),
    (RuntimeError("Error while serializing: No space left on device (os error 28)"), "disk is full", "--work"),
    (RuntimeError("CUDA error: device-side assert\nmore"), "the GPU failed: CUDA error: device-side assert", "again"),
    (PermissionError(13, "Permission denied", "runs/x/log.jsonl"), "no permission for runs/x/log.jsonl", "umask"),
    (UserError("no weights for resnet50: give them"), "no weights for resnet50", ""),
    (KeyError("margin"), "KeyError: 'margin'", ""),
    (ValueError(), "ValueError", ""),
])
def test_a_failure_names_cause_remedy_kind_and_step(error: Exception, cause: str, remedy: str) -> None:
    failure = attempt.failure_of(stepped(error, 7))
    assert cause in failure["cause"]
    assert remedy in failure["remedy"]
    assert (failure["kind"], failure["step"]) == (type(error).__name__, 7)
    assert attempt.failure_of(type(error)("x"))["step"] is None
