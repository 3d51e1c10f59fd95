"""What cells will cost, against figures worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmark import cost
from benchmark.cost import Estimate, Measured, Rates
from benchmark.plan import Overrides, RunSpec, load_protocol
from reports import records
from tests.sample_records import make_record

GPU = "NVIDIA H200"


def spec(method: str = "margin", dataset: str = "cub", protocol: str = "oodml", **changes: Any) -> RunSpec:
    found = load_protocol(protocol, dataset, method, Overrides()).identity() | changes
    return RunSpec(dataset, "d", 1, "s", method, {}, {}, found, "w", 0)


def ran(like: RunSpec, **facts: Any) -> Measured:
    given = {"batch": like.protocol["batch_size"], "compile": "yes", "device": GPU, "speed": 6200.0, "pace": 1 / 20_000,
             "rest": 20.0, "memory": 9e9, "disk": 98e6}
    return Measured(**{"network": cost.network(like.protocol), "method": like.method, **given, **facts})


@pytest.mark.parametrize(("dataset", "train", "test", "hours"), [
    # runs x (epochs x whole batches of 112 / 6200 + epochs x test images / 20000 + 20 s) / 3600
    ("cub", 5864, 5924, 360 * (200 * 52 * 112 / 6200 + 200 * 5924 / 20_000 + 20) / 3600),
    ("cars", 8054, 8131, 360 * (200 * 71 * 112 / 6200 + 200 * 8131 / 20_000 + 20) / 3600),
    ("sop", 59551, 60502, 360 * (150 * 531 * 112 / 6200 + 150 * 60502 / 20_000 + 20) / 3600),
])
def test_the_studies_of_oodml_by_one_measured_speed(dataset: str, train: int, test: int, hours: float) -> None:
    one = spec(dataset=dataset)
    found = Rates([ran(spec())], GPU).estimate(one, train, test)
    assert found.seconds is not None
    assert 360 * found.seconds / 3600 == pytest.approx(hours)
    (time, *_) = cost.summary([found] * 360, Rates([ran(one)], GPU), 1)
    assert time.startswith(f"time: {hours:.3g} GPU-hours on NVIDIA H200, ")
    assert time.endswith("with 1 GPU")


def test_the_median_of_runs_counts_for_time_and_the_worst_for_memory() -> None:
    one = spec(epochs=10, steps_per_epoch=4, evaluate_every=4, batch_size=32)
    runs = [ran(one, batch=32, compile="graphs", speed=speed, pace=0.01, rest=1.0, memory=speed)
            for speed in (8, 64, 80)]
    found = Rates(runs, GPU).estimate(one, 1000, 50)
    assert found == Estimate(1.0 + 10 * 4 * 32 / 64 + 0.01 * 3 * 50, 98e6, 80)
    assert Rates(runs, GPU).estimate(one, 64, 50).seconds == pytest.approx(1.0 + 10 * 2 * 32 / 64 + 1.5), "two batches"


def test_the_likest_runs_tell() -> None:
    one = spec()
    other = [ran(one, method="triplet", speed=1.0), ran(one, method="triplet", batch=32, speed=2.0)]
    own = [ran(one, batch=32, compile="no", speed=3.0), ran(one, batch=32, speed=4.0), ran(one, speed=5.0)]

    def speed(runs: list[Measured]) -> float:
        seconds = Rates(runs, GPU).estimate(one, 5 * 112, 0).seconds
        assert seconds is not None
        return 200 * 5 * 112 / (seconds - 20)

    for last, expected in ((None, 5.0), (-1, 4.0), (-2, 3.0)):
        assert speed([*other, *own[:last]]) == pytest.approx(expected)
    assert speed(other) == pytest.approx(1.0)
    assert speed(other[1:]) == pytest.approx(2.0)
    assert Rates(other, GPU).estimate(one, 112, 0).borrowed
    assert not Rates(own, GPU).estimate(one, 112, 0).borrowed
    alien = dataclasses.replace(own[0], network=("resnet18", 224, "auto"))
    assert Rates([alien], GPU).estimate(one, 112, 0) == Estimate()


def test_what_trains_nothing_takes_no_training_and_tells_nothing_of_it() -> None:
    frozen = ran(spec("frozen"), speed=0.0, pace=0.001, rest=0.0)
    assert Rates([frozen], GPU).estimate(spec("frozen"), 5864, 5924).seconds == pytest.approx(5.924)
    assert Rates([frozen], GPU).estimate(spec(), 5864, 5924) == Estimate()
    assert Rates([ran(spec())], GPU).estimate(spec("frozen"), 5864, 20_000).seconds == pytest.approx(20 + 1)


def test_runs_that_shared_a_gpu_took_their_part_of_it() -> None:
    alone, shared = (Rates([ran(spec(), shared=n)], GPU).estimate(spec(), 5864, 5924).seconds for n in (1, 4))
    assert alone is not None
    assert shared == pytest.approx(alone / 4)


def test_another_machines_device_is_named() -> None:
    assert Rates([ran(spec())], "Some CPU").device == GPU
    here = ran(spec(), device="Some CPU")
    assert Rates([ran(spec()), ran(spec()), here], "Some CPU").device == "Some CPU"


def test_what_the_lines_say() -> None:
    rates = Rates([ran(spec())], GPU)
    known = Estimate(3600.0, 1e9, 2e9)
    lines = cost.summary([known, known, Estimate(), dataclasses.replace(known, borrowed=True)], rates, 2, per_gpu=4)
    assert lines == ["time: 3 GPU-hours on NVIDIA H200, 1 h 30 min with 2 GPUs; 1 cells are not in it, nothing like "
                     "them was measured (--calibrate); 1 cells go by the speed of other methods (--calibrate measures "
                     "their own)", "disk: 3 GB for what finished runs keep",
                     "memory: 2 GB at most in one run, 8 GB in 4 on a GPU"]
    assert "unknown" in cost.summary([Estimate()], Rates([], "gpu"), 1)[0]


def record(folder: Path, **changes: Any) -> Path:
    found = make_record("cub")
    found["protocol"] = spec().protocol | {"epochs": 4, "evaluate_every": 2}
    found["split"] |= {"train_images": 1120, "test_images": 100}
    found["cost"] = {"seconds": 30.0, "train_seconds": 16.0, "images_per_second": 280.0, "peak_memory_bytes": 5,
                     "device": GPU} | changes
    return records.write(folder, found).parent


def test_what_a_record_tells(tmp_path: Path) -> None:
    record(tmp_path / "new", evaluate_seconds=4.0, shared=2)
    record(tmp_path / "old")
    by = {run.shared: run for run in cost.measured(tmp_path)}
    new, old = by[2], by[1]
    assert (new.speed, new.pace, new.rest, new.compile) == (280.0, 4.0 / 200, 10.0, "graphs")
    assert (old.speed, old.pace, old.rest) == (280.0, 14.0 / 200, 0.0), "all that is not training counts as evaluation"


def test_a_calibration_is_measured_by_its_last_epoch(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", evaluate_seconds=4.0)
    lines = [{"event": "start", "epoch": 0}, {"event": "epoch", "images_per_second": 10.0, "evaluate_seconds": 9.0},
             {"event": "epoch", "images_per_second": 500.0, "evaluate_seconds": 1.0}, {"event": "end"}]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (whole,), (last,) = cost.measured(tmp_path), cost.measured(tmp_path / "none", tmp_path)
    assert (whole.speed, whole.pace) == (280.0, 0.02)
    assert (last.speed, last.pace) == (500.0, 0.01)
