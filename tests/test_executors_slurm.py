"""Cells as jobs of submitit: with its local executor here, with a real Slurm in tests/slurm/run.sh."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.runs import status
from benchmark.runs.executors import slurm
from benchmark.runs.failures import last_failure, write_failure
from benchmark.runs.job import Job, Resources, SweepOptions
from benchmark.runs.locks import Lock, newest
from benchmark.runs.matrix import gather
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
    result = slurm.execute(jobs, Resources(), tiny_sweep.progress(jobs), cluster="local")
    assert result.submitted == 2
    assert "submitted 2 runs" in capsys.readouterr().out
    deadline = time.monotonic() + 120
    while not all(job.done for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert {status.look(job.folder).kind for job in jobs} == {"done"}
    assert slurm.Task(jobs)() == "0 done, 0 failed"


def test_a_job_does_several_runs(made: Workspace, jobs: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    several = tiny_sweep.jobs(made, "arcface", seeds=3)
    result = slurm.execute(several, Resources(runs_per_job=2), tiny_sweep.progress(several), cluster="local")
    assert result.submitted == 3
    assert "submitted 3 runs in 2 jobs" in capsys.readouterr().out
    deadline = time.monotonic() + 120
    while not all(job.done for job in several) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert all(job.done for job in several)


PLUGIN = """
from methods import Objective, register

@register("mine", family="ranking")
class Mine(Objective):
    \"\"\"Nothing but gradients.\"\"\"

    def forward(self, embeddings, labels):
        return embeddings.square().sum()
"""


def test_a_job_knows_the_methods_of_plug_ins(tiny_base: Path, tmp_path: Path, plugins_forgotten: None) -> None:
    made = Workspace.at(shutil.copytree(tiny_base, tmp_path / "work"))
    (tmp_path / "mine.py").write_text(PLUGIN)
    options = SweepOptions(made, plugins=(str(tmp_path / "mine.py"),))
    (job,) = gather(tiny_sweep.study("mine", seeds=1), options).jobs
    words = [sys.executable, "-c", TASK, str(tmp_path / "task.pkl")]
    (tmp_path / "task.pkl").write_bytes(pickle.dumps(slurm.Task([job])))
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}, check=True,
                          capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "1 done, 0 failed"


TASK = """
import pickle, sys
if __name__ == "__main__":
    print(pickle.load(open(sys.argv[1], "rb"))())
"""
KINDS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")))


@given(KINDS, st.integers(1, 5))
def test_each_part_is_of_one_dataset_and_backbone_and_no_run_is_lost(kinds: list[tuple[str, str]], most: int) -> None:
    jobs: Any = [SimpleNamespace(context=SimpleNamespace(dataset=dataset), number=number,
                                 spec=SimpleNamespace(protocol=SimpleNamespace(backbone=backbone)))
                 for number, (dataset, backbone) in enumerate(kinds)]
    parts = [[job.number for job in part] for part in slurm.parts(jobs, most)]
    assert sorted(number for part in parts for number in part) == list(range(len(jobs)))
    assert parts == sorted(parts), "a seed of everything comes first, as without parts"
    for part in parts:
        assert 1 <= len(part) <= most
        assert len({kinds[number] for number in part}) == 1
        assert part == sorted(part)
    assert len(parts) == sum(-(-count // most) for count in Counter(kinds).values())


PREEMPTED = """
import signal, sys
from pathlib import Path
from benchmark.runs.executors import slurm
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

def leave(number, frame):  # as submitit does
    again = task.checkpoint().function
    assert again.jobs == jobs, "nothing of it is done"
    sys.exit(7)

if __name__ == "__main__":
    jobs = tiny_sweep.jobs(Workspace.at(Path(sys.argv[1])), "margin", seeds=2, set={"epochs": 400})
    task = slurm.Task(jobs)
    signal.signal(signal.SIGUSR2, leave)
    task()
"""


def test_a_preempted_job_saves_its_run_and_leaves_the_rest(tiny_base: Path, tmp_path: Path) -> None:
    """The warning goes to all processes of a job; the run at work is saved, has not failed, and is free at once."""
    made = Workspace.at(shutil.copytree(tiny_base, tmp_path / "work"))
    first, second = tiny_sweep.jobs(made, "margin", seeds=2, set={"epochs": 400})
    (tmp_path / "task.py").write_text(PREEMPTED)
    words = [sys.executable, str(tmp_path / "task.py"), str(made.root)]
    process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
                               start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(first.folder.glob("checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGUSR2)
    assert process.wait(60) == 7
    for job in (first, second):
        assert status.look(job.folder).kind == "missing"
        assert not (job.folder / "failure.json").exists()
    assert newest(first.folder).released
    assert list(first.folder.glob("checkpoint-*"))
    assert not second.folder.exists()


def test_what_is_done_or_has_failed_does_not_come_back(tiny_base: Path, tmp_path: Path) -> None:
    made = Workspace.at(shutil.copytree(tiny_base, tmp_path / "work"))
    failed_before, failed_now, left = tiny_sweep.jobs(made, "margin", seeds=3)
    write_failure(failed_before, "long ago")
    task = slurm.Task([failed_before, failed_now, left])
    task.failures = {job.spec.identity: last_failure(job.folder) for job in task.jobs}
    write_failure(failed_now, "in this job")
    assert task.checkpoint().function.jobs == [failed_before, left]


def test_a_job_waits_for_runs_of_others_no_longer_than_it_takes_to_know_whether_they_live(
        tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Workspace.at(shutil.copytree(tiny_base, tmp_path / "work"))
    held, free = tiny_sweep.jobs(made, "margin", seeds=2)
    held.folder.mkdir(parents=True)
    lock = Lock.take(held.folder, 0)
    monkeypatch.setattr(slurm, "STALE", 0.5)
    assert slurm.Task([held, free])() == "1 done, 0 failed"
    assert free.done
    assert not held.done
    lock.release()


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
        slurm.execute(jobs, Resources(seconds=60), tiny_sweep.progress(jobs), cluster="local")


@pytest.mark.parametrize(("options", "match"), [({"partiton": "gpu"}, "'partiton'.*partition"),
                                              ({"cpus_per_task": "two"}, "cpus_per_task.*two")])
def test_what_slurm_does_not_know_is_refused(made: Workspace, options: dict[str, str], match: str) -> None:
    with pytest.raises(UserError, match=f"--slurm: .*{match}"):
        slurm.submit(tiny_sweep.jobs(made), Resources(slurm=options), cluster="local")
