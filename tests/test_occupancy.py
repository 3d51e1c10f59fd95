"""How many runs share a GPU is counted over all processes of a machine; the GPUs are names here, the processes real."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.runs import occupancy, worker
from benchmark.runs.occupancy import Occupancy
from benchmark.utils import provenance
from reports import records
from tests import tiny_runs

OTHER = """
import sys, time
from pathlib import Path
from benchmark.runs import occupancy
from benchmark.utils import provenance
occupancy.folder = lambda: Path(sys.argv[1])
provenance.gpu_id = lambda device: f"GPU-{device}"
with occupancy.Occupancy(sys.argv[2:]):
    print("at work", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(occupancy, "folder", lambda: tmp_path / "marks")
    monkeypatch.setattr(occupancy, "EVERY", 0.02)
    monkeypatch.setattr(provenance, "gpu_id", lambda device: f"GPU-{device}")
    return tmp_path / "marks"


@pytest.fixture
def other(marks: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of another sweep, on the second and third GPU."""
    process = subprocess.Popen([sys.executable, "-c", OTHER, str(marks), "cuda:1", "cuda:2"], stdout=subprocess.PIPE,
                               text=True, cwd=Path(__file__).parents[1])
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def during(run: Occupancy, seconds: float = 0.4) -> float:
    """Seconds of the wall for each one of the device, over a short while from now."""
    began, part = time.perf_counter(), run.so_far()
    time.sleep(seconds)
    return (time.perf_counter() - began) / (run.so_far() - part)


def test_runs_of_all_sweeps_count_and_killed_ones_do_not(marks: Path, other: subprocess.Popen[str]) -> None:
    with Occupancy(["cuda:0"]) as apart, Occupancy(["cuda:1"]) as beside:
        assert during(apart) == pytest.approx(1, abs=0.05)
        assert during(beside) == pytest.approx(2, abs=0.05)
        with Occupancy(["cuda:0", "cuda:1"]) as both:
            time.sleep(0.1)
            assert during(both) == pytest.approx(3, abs=0.1), "that of its fullest GPU"
            assert during(apart) == pytest.approx(2, abs=0.1)
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        time.sleep(0.1)
        assert during(beside) == pytest.approx(1, abs=0.05)
    assert [path.name for path in marks.glob("GPU-cuda:[01].*")] == [], "nothing is left, not even of the killed one"


@pytest.mark.parametrize("beside", [True, False])
def test_an_error_tells_whether_another_run_was_there_though_it_has_gone(marks: Path, beside: bool) -> None:
    """That run may have found too little memory at the same moment."""
    error = ValueError()
    with contextlib.suppress(ValueError), Occupancy(["cuda:0"]) as run:
        with Occupancy(["cuda:0" if beside else "cuda:2"]):
            run._look()
        run._look()
        raise error
    assert error.shared is beside  # type: ignore[attr-defined]


def test_without_a_place_for_marks_a_run_counts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(provenance, "gpu_id", lambda device: None)
    monkeypatch.setattr(occupancy, "folder", lambda: tmp_path / "file" / "marks")
    with Occupancy(["cuda:0"]) as run:
        assert during(run, 0.05) == pytest.approx(1, abs=0.05)
    with Occupancy(["cpu"]) as run:
        assert during(run, 0.05) == pytest.approx(1, abs=0.05)


def test_a_record_has_the_number_of_runs_beside_it(tmp_path: Path, marks: Path, other: subprocess.Popen[str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """The run trains on the CPU, and marks what another process marks as its GPU."""
    made = tiny_runs.workspace(tmp_path / "work")
    changes = ("backbone=conv4", "epochs=1", "steps_per_epoch=2")
    monkeypatch.setattr(worker, "Occupancy", lambda devices: Occupancy([{"cpu": "cuda:1"}[one] for one in devices]))
    path = worker.run(tiny_runs.spec(made, "margin", *changes), tiny_runs.context(made))
    assert records.read(path)["cost"]["shared"] == pytest.approx(2, abs=0.05)
    other.kill()
    other.wait()
    path = worker.run(tiny_runs.spec(made, "margin", *changes, seed=1), tiny_runs.context(made))
    assert records.read(path)["cost"]["shared"] == 1
