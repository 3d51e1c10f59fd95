"""Cells on a real Ray cluster of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark import sweep
from benchmark.executors import Resources
from benchmark.matrix import Places
from benchmark.workspace import Workspace
from tests import tiny_sweep

ray = pytest.importorskip("ray")

PLUGIN = '''
import os, signal
from pathlib import Path
from methods import Objective, register

HERE = Path(__file__).parent

@register("dies-once", family="test")
class DiesOnce(Objective):
    """Kills its process the first time."""
    normalised = False
    def forward(self, embeddings, labels):
        if not (HERE / "died").exists():
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return embeddings.square().mean()

@register("fails", family="test")
class Fails(Objective):
    """Raises."""
    def forward(self, embeddings, labels):
        raise ValueError("made to fail")
'''


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    root = str(Path(__file__).parents[1])
    environment = {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": environment})
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def _registry_as_before() -> Iterator[None]:
    with tiny_sweep.registry_as_before():
        yield


@pytest.fixture
def made(tmp_path: Path) -> Workspace:
    made = tiny_sweep.workspace(tmp_path)
    (made.root / "plugin.py").write_text(PLUGIN)
    return made


def run(made: Workspace, methods: str, **given: object) -> sweep.Outcome:
    return sweep.run(tiny_sweep.study(methods, **given), Places(made, plugins=(str(made.root / "plugin.py"),)),
                     executor="ray", resources=Resources(jobs=2), say=lambda line: None)


def test_cells_are_done_lost_ones_again_and_failures_told(made: Workspace,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(made, "margin,dies-once,fails", seeds=1)
    assert {spec.method for spec in outcome.done} == {"margin", "dies-once"}
    assert list(outcome.failed.values()) == ["ValueError: made to fail"]
    assert {path.parts[-3] for path in made.runs.rglob("record.json")} == {"margin", "dies-once"}
    assert not list(made.runs.rglob("*margin/*/lock.*"))
    assert "[3/3]" in capsys.readouterr().out
    assert not run(made, "margin,dies-once", seeds=1).done


def test_ctrl_c_saves(made: Workspace) -> None:
    (job,) = tiny_sweep.jobs(made, "margin", seeds=1, set={"epochs": 400})

    def press() -> None:
        deadline = time.monotonic() + 60
        while not list(job.folder.glob("checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        if time.monotonic() < deadline:
            os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press)
    finger.start()
    outcome = run(made, "margin", seeds=1, set={"epochs": 400})
    finger.join()
    assert outcome.interrupted
    assert not outcome.failed
    assert list(made.runs.rglob("checkpoint-*"))
    assert not list(made.runs.rglob("record.json"))
