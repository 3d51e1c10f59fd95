"""Cells as jobs of submitit: with its local executor here, with a real Slurm in tests/slurm/run.sh."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.config.spec import RunSpec
from benchmark.runs import status, worker
from benchmark.runs.attempt import AttemptResult
from benchmark.runs.executors import slurm
from benchmark.runs.job import Job, Resources, RunContext
from benchmark.runs.progress import Progress
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

submitit = pytest.importorskip("submitit")


@pytest.fixture(scope="module")
def made(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.at(shutil.copytree(tiny_base, tmp_path_factory.mktemp("slurm") / "work"))


@pytest.fixture
def jobs(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    root = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    return tiny_sweep.jobs(made, "margin")


def test_submitted_cells_are_done_by_themselves(jobs: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    result = slurm.execute(jobs, Resources(), Progress(len(jobs), 1, terminal=False), cluster="local")
    assert result.submitted == 2
    assert "submitted 2 runs" in capsys.readouterr().out
    deadline = time.monotonic() + 120
    while not all(job.done for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert {status.look(job.folder).kind for job in jobs} == {"done"}
    assert slurm.Task(jobs)() == ["exists", "exists"]


def test_a_preempted_job_comes_back_with_the_same_runs(jobs: list[Job]) -> None:
    again = slurm.Task(jobs).checkpoint()
    assert isinstance(again.function, slurm.Task)
    assert list(again.function.jobs) == jobs


def test_a_job_does_several_runs_and_says_so(jobs: list[Job], made: Workspace,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    more = [*jobs, *tiny_sweep.jobs(made, "margin", seeds=3)[2:]]
    result = slurm.execute(more, Resources(runs_per_job=2), Progress(3, 1, terminal=False), cluster="debug")
    assert result.submitted == 3
    assert "submitted 3 runs in 2 jobs" in capsys.readouterr().out


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"))), st.integers(1, 5))
def test_each_part_is_of_one_dataset_and_backbone_and_no_run_is_lost(kinds: list[tuple[str, str]], most: int) -> None:
    jobs: Any = [SimpleNamespace(context=SimpleNamespace(dataset=dataset), number=number,
                                 spec=SimpleNamespace(protocol=SimpleNamespace(backbone=backbone)))
                 for number, (dataset, backbone) in enumerate(kinds)]
    parts = slurm.parts(jobs, most)
    assert sorted(job.number for part in parts for job in part) == list(range(len(jobs)))
    for part in parts:
        assert 1 <= len(part) <= most
        assert len({kinds[job.number] for job in part}) == 1
        assert [job.number for job in part] == sorted(job.number for job in part)
    assert len(parts) == sum(-(-count // most) for count in Counter(kinds).values())


def test_a_preempted_run_has_not_failed_and_those_after_it_wait(made: Workspace,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = tiny_sweep.jobs(made, "arcface")
    task, begun = slurm.Task(jobs), []

    def preempted(spec: RunSpec, context: RunContext, **_: Any) -> None:
        begun.append(spec)
        task.checkpoint()
        sys.exit(-1)  # as submitit does once the job is in the queue again

    monkeypatch.setattr(worker, "run", preempted)
    with pytest.raises(SystemExit):
        task()
    assert begun == [jobs[0].spec]
    assert not (jobs[0].folder / "failure.json").exists()
    assert {status.look(job.folder).kind for job in jobs} == {"missing"}


@pytest.mark.parametrize(("ended", "done"), [
    (AttemptResult("failed", "the GPU failed: CUDA error: device-side assert"), 1),
    (AttemptResult("full", "the disk is full"), 1), (AttemptResult("failed", "the loss is not finite"), 2)])
def test_what_would_meet_the_same_end_is_left_for_another_job(
        jobs: list[Job], monkeypatch: pytest.MonkeyPatch, ended: AttemptResult, done: int) -> None:
    tried: list[Job] = []
    monkeypatch.setattr(slurm, "attempt_alone", lambda job, **_: tried.append(job) or ended)
    slurm.Task(jobs)()
    assert len(tried) == done


def test_parameters_by_sbatchs_names() -> None:
    found = slurm.parameters(Resources(jobs=8, slurm={"account": "me", "gpus_per_node": "1", "time": "1-02:00:30"}))
    assert found == {"name": "oodml", "timeout_min": 1440 + 120 + 1, "slurm_array_parallelism": 8,
                     "slurm_account": "me", "gpus_per_node": 1}
    assert slurm.parameters(Resources(slurm={"time": "90"}))["timeout_min"] == 90
    assert slurm.parameters(Resources(slurm={"time": "30:00"}))["timeout_min"] == 30, "minutes and seconds, as sbatch"
    with pytest.raises(UserError, match="HH:MM:SS"):
        slurm.parameters(Resources(slurm={"time": "soon"}))


def test_without_slurm_or_submitit_there_is_one_line(jobs: list[Job], monkeypatch: pytest.MonkeyPatch,
                                                    tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sbatch"):
        slurm.submit(jobs, Resources())
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match="oodml\\[slurm\\]"):
        slurm.submit(jobs, Resources())


def test_a_budget_is_slurms_own_affair(jobs: list[Job]) -> None:
    with pytest.raises(UserError, match="--slurm time"):
        slurm.execute(jobs, Resources(seconds=60), Progress(len(jobs), 1, terminal=False), cluster="local")


@pytest.mark.parametrize(("options", "match"), [({"partiton": "gpu"}, "'partiton'.*partition"),
                                              ({"cpus_per_task": "two"}, "cpus_per_task.*two")])
def test_what_slurm_does_not_know_is_refused(made: Workspace, options: dict[str, str], match: str) -> None:
    with pytest.raises(UserError, match=f"--slurm: .*{match}"):
        slurm.submit(tiny_sweep.jobs(made), Resources(slurm=options), cluster="local")
