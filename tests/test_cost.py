"""What cells will cost, against figures worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.plan import Overrides, load_protocol
from benchmark.config.spec import RunSpec
from benchmark.data import weights
from benchmark.runs import cost, executors, forecast, worker
from benchmark.runs.cost import Estimate, Measured, Rates
from benchmark.runs.job import Job, Resources, SweepOptions, SweepResult
from benchmark.runs.matrix import gather
from benchmark.utils.workspace import Workspace
from reports import packing, records
from tests import tiny_sweep
from tests.sample_records import make_record

GPU = "NVIDIA H200"


def spec(method: str = "margin", dataset: str = "cub", protocol: str = "oodml", **changes: Any) -> RunSpec:
    found = load_protocol(protocol, dataset, method, Overrides())
    return RunSpec(dataset, "d", 1, "s", method, {}, {}, dataclasses.replace(found, **changes), "w", 0)


def ran(like: RunSpec, **facts: Any) -> Measured:
    given = {"batch": like.protocol.batch_size, "compile": "yes", "device": GPU, "speed": 6200.0, "pace": 1 / 20_000,
             "rest": 20.0, "memory": 9e9, "disk": 98e6}
    own = {"network": cost.network(like.protocol), "dataset": like.dataset, "method": like.method}
    return Measured(**{**own, **given, **facts})


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


def test_a_batch_has_no_more_images_than_the_training_set() -> None:
    one = spec(epochs=10, steps_per_epoch=0, batch_size=5000)
    found = Rates([ran(one, speed=100.0, pace=0.0, rest=0.0, compile="no")], GPU).estimate(one, 200, 0)
    assert found.seconds == pytest.approx(10 * 200 / 100)


def test_classes_that_are_held_out_are_not_trained_on() -> None:
    one = spec(epochs=4, steps_per_epoch=0, batch_size=224, validation=True)
    found = Rates([ran(one, speed=224.0, pace=0.0, rest=0.0)], GPU).estimate(one, 272 * 24, 0)
    assert found.seconds == pytest.approx(4 * 21), "of 272 characters 204 are trained on: 4896 images, 21 whole batches"


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


def test_of_like_runs_those_on_the_same_dataset_tell() -> None:
    cub, sop = spec(), spec(dataset="sop")
    own = [ran(cub, rest=0.0, pace=0.0, speed=1.0, memory=8e9), ran(sop, rest=0.0, pace=0.0, speed=2.0, memory=40e9)]
    other = [dataclasses.replace(run, method="triplet", speed=run.speed / 4) for run in own]

    def found(one: RunSpec, runs: list[Measured]) -> tuple[float, float | None]:
        estimate = Rates(runs, GPU).estimate(one, 20 * 112, 0)
        assert estimate.seconds is not None
        return one.protocol.epochs * 20 * 112 / estimate.seconds, estimate.memory

    for order in (1, -1):
        assert found(cub, (other + own)[::order]) == pytest.approx((1.0, 8e9))
        assert found(sop, (other + own)[::order]) == pytest.approx((2.0, 40e9))
    assert found(sop, [own[0], *other]) == pytest.approx((1.0, 8e9)), "the same method elsewhere comes before"
    assert found(sop, other) == pytest.approx((0.5, 40e9))


def test_compiling_in_one_run_is_not_charged_to_every_cell() -> None:
    # two runs as they were on an H200, ResNet-50, 208 steps: of 36.6 s in all 31.1 beside training, and of 7.8 s 2.5
    cold, warm = (ran(spec(), rest=rest, speed=speed, pace=0.432 / 5919) for rest, speed in ((31.1, 6332), (2.5, 6503)))
    expected = 2.5 + 200 * 52 * 112 / 6503 + 200 * 0.432
    for runs in ([cold, warm], [warm, cold], [warm, cold, warm]):
        assert Rates(runs, GPU).estimate(spec(), 5864, 5919).seconds == pytest.approx(expected)


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


def test_disk_is_unknown_where_only_records_are_left() -> None:
    rates = Rates([ran(spec(), disk=None), ran(spec("arcface"), disk=None), ran(spec("arcface"), disk=3e9)], GPU)
    packed, kept = (rates.estimate(spec(name), 5864, 5924) for name in ("margin", "arcface"))
    assert packed.seconds == kept.seconds
    assert (packed.disk, kept.disk) == (None, 3e9)
    some, none = (cost.summary(estimates, rates, 1)[1] for estimates in ([packed, kept, kept], [packed]))
    assert "6 GB" in some
    assert "GB" not in none
    assert all("unknown for 1 run," in line for line in (some, none))


def test_what_the_lines_say() -> None:
    rates = Rates([ran(spec())], GPU)
    known = Estimate(3600.0, 1e9, 2e9)
    lines = cost.summary([known, known, Estimate(), dataclasses.replace(known, borrowed=True)], rates, 2, per_gpu=4)
    time, disk, memory = lines
    for fact in (f"3 GPU-hours on {GPU}", "1.5 h with 2 GPUs", "1 run is not in it", "1 run goes by the speed"):
        assert fact in time
    assert "3 GB" in disk
    assert "2 GB at most in one run, 8 GB in 4 on a GPU" in memory
    assert "unknown" in cost.summary([Estimate()], Rates([], "gpu"), 1)[0]


def record(folder: Path, method: str = "margin", **changes: Any) -> Path:
    found = make_record("cub", method=method)
    found["protocol"] = spec().protocol.identity() | {"epochs": 4, "evaluate_every": 2}
    found["split"] |= {"train_images": 1120, "test_images": 100}
    found["cost"] = {"seconds": 30.0, "train_seconds": 16.0, "images_per_second": 280.0, "peak_memory_bytes": 5,
                     "device": GPU} | changes
    return records.write(folder, found).parent


def test_what_a_record_tells(tmp_path: Path) -> None:
    record(tmp_path / "new", evaluate_seconds=4.0, shared=2, held_memory_bytes=7)
    record(tmp_path / "old")
    by = {run.shared: run for run in cost.measured(tmp_path)}
    new, old = by[2], by[1]
    assert (new.speed, new.pace, new.rest, new.compile) == (280.0, 4.0 / 200, 10.0, "graphs")
    assert (new.memory, old.memory) == (7, 5), "what tensors left is not free for others"
    assert (old.speed, old.pace, old.rest) == (280.0, 14.0 / 200, 0.0), "all that is not training counts as evaluation"


def test_a_calibration_is_measured_by_its_last_epoch(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", evaluate_seconds=4.0)
    lines = [{"event": "start", "epoch": 0}, {"event": "epoch", "images_per_second": 10.0, "evaluate_seconds": 9.0},
             {"event": "epoch", "images_per_second": 500.0, "evaluate_seconds": 1.0}, {"event": "end"}]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (whole,), (last,) = cost.measured(tmp_path), cost.measured(tmp_path / "none", tmp_path)
    assert (whole.speed, whole.pace) == (280.0, 0.02)
    assert (last.speed, last.pace) == (500.0, 0.01)


def test_the_start_of_what_trains_nothing_does_not_grow_with_the_test_set(tmp_path: Path) -> None:
    still: dict[str, Any] = {"train_seconds": 0.0, "images_per_second": 0.0, "seconds": 20.0}
    record(tmp_path / "new" / "run", "frozen", **still, evaluate_seconds=0.1)
    record(tmp_path / "old" / "run", "frozen", **still, evaluate_seconds=0.0)
    (new,), (old,) = cost.measured(tmp_path / "new"), cost.measured(tmp_path / "old")
    assert (new.pace, new.rest) == pytest.approx((0.1 / 100, 19.9))
    assert (old.pace, old.rest) == (20.0 / 100, 0.0), "a time of 0 was not measured"
    frozen = spec("frozen", dataset="sop")
    assert Rates([new], GPU).estimate(frozen, 59_551, 1000).seconds == pytest.approx(19.9 + 10 * 0.1)


def test_the_evaluation_of_what_trains_nothing_is_measured(tiny: Workspace) -> None:
    (job,) = tiny_sweep.jobs(tiny, "frozen", seeds=1)
    found = records.read(worker.run(job.spec, job.context))["cost"]
    assert (found["train_seconds"], found["steps"]) == (0.0, 0)
    assert 0 < found["evaluate_seconds"] < found["seconds"]


def test_packed_and_unpacked_records_tell_time_but_not_disk(tmp_path: Path) -> None:
    loose, packed, back = (tmp_path / name for name in ("loose", "packed", "back"))
    folder = record(loose / "run", evaluate_seconds=4.0)
    (folder / weights.RUN).write_bytes(b"." * 1000)
    packing.pack([loose], packed)
    packing.unpack(packed, back)
    (kept,), (inside,), (again,) = map(cost.measured, (loose, packed, back))
    assert kept.disk == 1000 + (folder / records.RECORD).stat().st_size
    assert inside == again == dataclasses.replace(kept, disk=None)


def calibrated(tiny: Workspace, monkeypatch: pytest.MonkeyPatch, device: str, names: str,
               **given: Any) -> tuple[list[RunSpec], list[str]]:
    """The short runs that a calibration would do on a device, and what it says."""
    done: list[Job] = []

    class Engine:
        @staticmethod
        def execute(jobs: list[Job], resources: Resources, progress: Any) -> SweepResult:
            done.extend(jobs)
            return SweepResult()

    monkeypatch.setattr(executors, "get", lambda name: Engine)
    monkeypatch.setattr(forecast, "_devices", lambda resources: [device])
    options, lines = SweepOptions(tiny), list[str]()
    matrix = gather(tiny_sweep.study(names, **given), options)
    forecast._calibrate(matrix.jobs, matrix, options, lines.append)
    return [job.spec for job in done], lines


def test_a_calibration_takes_epochs_of_the_cells_length_up_to_fifty_steps(tiny: Workspace,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    for device, own, expected in (("cpu", 2, 2), ("cpu", 0, 10), ("cuda:0", 20, 20), ("cuda:0", 0, 50),
                                  ("cuda:0", 99, 50)):
        (one, *_), _ = calibrated(tiny, monkeypatch, device, "margin", set={"steps_per_epoch": own})
        assert one.protocol.steps_per_epoch == expected


def test_a_calibration_repeats_the_run_that_compiles(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    names, given = "frozen,arcface,margin", {"splits": "all"}
    found, _ = calibrated(tiny, monkeypatch, "cpu", names, **given)
    assert [(one.method, one.seed) for one in found] == [("frozen", 0), ("arcface", 0), ("margin", 0)]
    found, _ = calibrated(tiny, monkeypatch, "cuda:0", names, **given)
    assert [(one.method, one.seed) for one in found] == [("frozen", 0), ("frozen", 1), ("arcface", 0), ("arcface", 1),
                                                         ("margin", 0)]


def test_a_calibration_says_which_weights_are_missing(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                     tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("OODML_WEIGHTS", str(tmp_path))
    found, lines = calibrated(tiny, monkeypatch, "cpu", "margin", backbones="resnet18,conv4")
    assert [one.protocol.backbone for one in found] == ["conv4"]
    missing, measuring = lines
    assert missing.startswith("resnet18: ")
    assert "no weights" in missing
    assert "in 1 short run" in measuring
    assert len(calibrated(tiny, monkeypatch, "cpu", "margin", backbones="resnet18")[1]) == 1
