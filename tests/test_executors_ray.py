"""Runs on a real Ray cluster of several nodes, all on this machine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark.runs import locks, sweep
from benchmark.runs.executors import ray as ray_executor
from benchmark.runs.job import Job, Resources, SweepOptions, SweepResult
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

pytest.importorskip("ray")
from ray import exceptions
from ray.cluster_utils import Cluster

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

@register("dies", family="test")
class Dies(Objective):
    """Kills its process every time."""
    normalised = False
    def forward(self, embeddings, labels):
        os.kill(os.getpid(), signal.SIGKILL)

def note(name):
    with open(HERE / "processes", "a") as file:
        file.write(f"{name} {os.getpid()}\\n")

@register("notes", family="test")
class Notes(Objective):
    """Notes in which process it runs."""
    normalised = False
    def forward(self, embeddings, labels):
        note("notes")
        return embeddings.square().mean()

@register("fails", family="test")
class Fails(Objective):
    """Raises."""
    def forward(self, embeddings, labels):
        note("fails")
        raise ValueError("made to fail, with " + os.environ.get("OODML_WEIGHTS", "no weights"))
'''


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of three nodes: one that only leads, and two with room for one run each."""
    root = str(Path(__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made
        made.shutdown()


@pytest.fixture
def made(tiny: Workspace, plugins_forgotten: None) -> Workspace:
    (tiny.root / "plugin.py").write_text(PLUGIN)
    return tiny


def run(made: Workspace, cluster: Cluster, methods: str, jobs: int | None = None,
        **fields: object) -> sweep.SweepResult:
    options = SweepOptions(made, plugins=(str(made.root / "plugin.py"),), executor="ray",
                           resources=Resources(jobs=jobs, ray_address=cluster.address))
    return sweep.run(tiny_sweep.study(methods, **fields), options, lambda line: None)


def once_saved(job: Job, then: Callable[[], object]) -> threading.Thread:
    """Do something in a thread as soon as the run has a checkpoint."""
    def watch() -> None:
        deadline = time.monotonic() + 120
        while not list(job.folder.glob("checkpoint-*")):
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)
        then()

    watcher = threading.Thread(target=watch)
    watcher.start()
    return watcher


def starts(job: Job) -> list[int]:
    """The epochs after which a run was begun, or taken up again."""
    lines = map(json.loads, (job.folder / "log.jsonl").read_text().splitlines())
    return [line["epoch"] for line in lines if line["event"] == "start"]


def test_runs_are_done_lost_ones_again_and_failures_reported(
        made: Workspace, cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODML_WEIGHTS", "weights")
    result = run(made, cluster, "margin,dies-once,dies,fails", seeds=1)
    assert {spec.method for spec in result.done} == {"margin", "dies-once"}
    failed = {spec.method: cause for spec, cause in result.failed}
    assert failed.keys() == {"dies", "fails"}
    assert failed["dies"] == "the cluster lost the run 4 times (ActorDiedError)"
    assert failed["fails"].startswith(
        f"ValueError: made to fail, with {Path.cwd() / 'weights'} ({made.root / 'plugin.py'}")
    assert {path.parts[-3] for path in made.runs.rglob("record.json")} == {"margin", "dies-once"}
    assert not list(made.runs.rglob("*margin/*/lock.*"))
    assert "[4/4]" in capsys.readouterr().out
    assert not run(made, cluster, "margin,dies-once", seeds=1).done


def test_a_process_does_one_run_after_the_other_until_one_fails(made: Workspace, cluster: Cluster) -> None:
    result = run(made, cluster, "notes,fails", jobs=1, seeds=3, set={"epochs": 1})
    assert (len(result.done), len(result.failed)) == (3, 3)
    noted = list(dict.fromkeys(tuple(line.split()) for line in (made.root / "processes").read_text().splitlines()))
    assert [name for name, _ in noted].count("fails") == 3
    for (name, process), (_, following) in pairwise(noted):
        assert (process == following) == (name == "notes"), noted
    assert len({process for _, process in noted}) < 6, noted


def test_ctrl_c_saves(made: Workspace, cluster: Cluster) -> None:
    (job,) = tiny_sweep.jobs(made, "margin", seeds=1, set={"epochs": 400})
    finger = once_saved(job, lambda: os.kill(os.getpid(), signal.SIGINT))
    result = run(made, cluster, "margin", seeds=1, set={"epochs": 400})
    finger.join()
    assert result.interrupted
    assert not result.failed
    assert list(made.runs.rglob("checkpoint-*"))
    assert not list(made.runs.rglob("record.json"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds the node of a process in /proc")
def test_an_error_of_the_process_itself_is_not_tried_again(made: Workspace) -> None:
    """What cannot be unpacked, say: it would be so on every node."""
    [job, *_] = tiny_sweep.jobs(made)

    def get(_: object) -> None:
        raise exceptions.RayTaskError("attempt", "Traceback ...\nModuleNotFoundError: No module named 'mine'",
                                      ModuleNotFoundError("No module named 'mine'"))

    result = SweepResult()
    kind = ray_executor._settle(SimpleNamespace(get=get, exceptions=exceptions), None, job, result,
                                tiny_sweep.progress([job]), Counter())
    assert kind == "failed"
    assert result.failed[0][1] == "RayTaskError: ModuleNotFoundError: No module named 'mine'"


def test_the_cell_of_a_lost_node_goes_on_elsewhere(made: Workspace, cluster: Cluster) -> None:
    long = {"epochs": 100, "evaluate_every": 100}
    (job,) = tiny_sweep.jobs(made, "margin", seeds=1, set=long)

    def lose() -> None:
        parent = Path(f"/proc/{locks.newest(job.folder).facts['pid']}/stat").read_text().rpartition(")")[2].split()[1]
        node = next(node for node in cluster.worker_nodes
                    if node.all_processes["raylet"][0].process.pid == int(parent))
        cluster.remove_node(node, allow_graceful=False)

    axe = once_saved(job, lose)
    result = run(made, cluster, "margin", seeds=1, set=long)
    axe.join()
    assert len(cluster.worker_nodes) == 1
    assert not result.failed
    assert [spec.identity for spec in result.done] == [job.spec.identity]
    first, second = starts(job)
    assert first == 0
    assert second > 0


def test_no_cluster_is_one_line(made: Workspace) -> None:
    options = SweepOptions(made, executor="ray", resources=Resources(ray_address="127.0.0.1:1"))
    with pytest.raises(UserError, match=r"no Ray cluster at 127\.0\.0\.1:1: "):
        sweep.run(tiny_sweep.study("margin", seeds=1), options, lambda line: None)


def test_the_last_node_lost_is_said_and_ctrl_c_ends(made: Workspace, cluster: Cluster,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    import ray

    (job,) = tiny_sweep.jobs(made, "margin", seeds=1, set={"epochs": 400})

    def lose() -> None:
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node, allow_graceful=False)
        while ray.cluster_resources().get("CPU"):
            time.sleep(0.5)
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGINT)

    axe = once_saved(job, lose)
    result = run(made, cluster, "margin", seeds=1, set={"epochs": 400})
    axe.join()
    assert result.interrupted
    assert not result.failed
    assert "no node with room for a run is left" in capsys.readouterr().out
    assert list(made.runs.rglob("checkpoint-*"))
