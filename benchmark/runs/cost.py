"""What runs will cost: time, memory and disk, from what earlier runs of the same kind were measured to take."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import methods
from benchmark.config.protocol import FIELDS, Protocol
from benchmark.config.spec import RunSpec
from benchmark.data import weights
from benchmark.runs.time_left import Work
from benchmark.training import compile_when
from reports import records
from reports.storage.row import is_gpu
from reports.wording import byte_size, counted, duration
from splits.manifest import HELD_OUT, Split

CALIBRATION = "calibration"
"""Folder in the cache that holds the short runs of `--calibrate`."""


@dataclass(frozen=True)
class Estimate:
    """What one run takes; None where nothing like it was measured."""

    seconds: float | None = None
    """Of the device: runs that share a GPU each take their part of it."""
    disk: float | None = None
    memory: float | None = None
    borrowed: bool = False
    """Whether this is taken from other methods, since this one was not measured on the network."""


@dataclass(frozen=True)
class Measured:
    """What a finished run took."""

    network: tuple[Any, ...]
    """Backbone, image size and precision: runs that differ in them are not compared."""
    dataset: str
    method: str
    batch: int
    compile: str
    device: str
    speed: float
    """Training images a second; 0 where nothing was trained."""
    pace: float
    """Seconds of evaluation for each image of the test set."""
    rest: float
    """Seconds beside training and evaluation: to open the data, to build the network, to measure it in the end. In the
    first run of a process also to compile, which those after it need not, whatever their method."""
    memory: float
    """Bytes that its process held; of older records those of its tensors alone."""
    disk: float | None
    """None where the record alone is left."""
    shared: float = 1.0
    """Runs on the device meanwhile, this one and those of any sweep beside it, on average."""


SIMILARITY = (("method", "batch", "compile"), ("method", "compile"), ("method",), ("batch", "compile"), ("compile",),
              ())
"""What a run shares, beside the network, with those from which its cost is estimated; the first entry that any run
meets is used."""


class Rates:
    """Speeds of earlier runs on one device."""

    def __init__(self, runs: Iterable[Measured], device: str) -> None:
        runs = list(runs)
        here = [run for run in runs if run.device == device]
        if not here and runs:
            device = statistics.mode(run.device for run in runs)
            here = [run for run in runs if run.device == device]
        self.device = device
        self._by: dict[tuple[Any, ...], list[Measured]] = defaultdict(list)
        for run in here:
            for same in SIMILARITY:
                self._by[(run.speed > 0, run.network, same, *(getattr(run, key) for key in same))].append(run)

    def estimate(self, spec: RunSpec, train_images: int, test_images: int) -> Estimate:
        """From runs of the same method, batch size and compilation on the same network, else from the most similar; of
        these from the ones on the same dataset, if there are any.

            seconds = (rest + epochs * steps * b / speed + pace * evaluations * test images) / runs that shared the GPU

        The lower median of the runs counts, since one in a sweep compiles for all: of two it is the one that did not.
        """
        protocol, trained = spec.protocol, trains(spec)
        own = {"method": spec.method, "batch": protocol.batch_size, "compile": compile_of(protocol, train_images)}
        runs = self._alike(own, spec, trained) or ([] if trained else self._alike(own, spec, True))
        if not runs:
            return Estimate()
        # what trains nothing has no speed, and another's says nothing of it
        batch = min(protocol.batch_size, train_images)
        training = protocol.epochs * steps_an_epoch(protocol, train_images) * batch if trained else 0

        def seconds(run: Measured) -> float:
            evaluating = run.pace * _evaluations(protocol, trained) * test_images
            return (run.rest + (training / run.speed if training else 0.0) + evaluating) / run.shared

        disks = [run.disk for run in runs if run.disk is not None]
        return Estimate(statistics.median_low(map(seconds, runs)), statistics.median(disks) if disks else None,
                        max(run.memory for run in runs), runs[0].method != spec.method)

    def _alike(self, own: dict[str, Any], spec: RunSpec, trained: bool) -> list[Measured]:
        for same in SIMILARITY:
            alike = self._by.get((trained, network(spec.protocol), same, *(own[key] for key in same)))
            if alike:
                return [run for run in alike if run.dataset == spec.dataset] or alike
        return []


def trains(spec: RunSpec) -> bool:
    """Whether a run trains anything."""
    return methods.get(spec.method).trains != "nothing" and spec.protocol.epochs > 0


def epochs(spec: RunSpec) -> int:
    """The epochs that a run trains; none where it only embeds and measures."""
    return spec.protocol.epochs if trains(spec) else 0


def work(spec: RunSpec, label: str, split: Split | None = None) -> Work:
    """What a run has to do, as far as it tells how long it takes; without its split in epochs alone."""
    protocol = spec.protocol
    kind = (spec.dataset, spec.method, protocol.batch_size, *network(protocol))
    if split is None or not trains(spec):
        return Work(label, epochs(spec), kind=kind)
    images = images_used(protocol, split.train_images, len(split.train))
    return Work(label, protocol.epochs, steps_an_epoch(protocol, images) * min(protocol.batch_size, images),
                split.test_images, protocol.evaluate_every, kind)


def measured(runs: Path, calibration: Path | None = None) -> list[Measured]:
    """What the finished runs below a folder took; of the short ones of a calibration only their last epoch counts."""
    measurements = [_measure(row) for row in _rows(runs) if row["source"] == "run"]
    if calibration is not None and calibration.is_dir():
        measurements += [_measure(row, _last_epoch(row)) for row in _rows(calibration)]
    return [one for one in measurements if one is not None]


def _rows(folder: Path) -> list[dict[str, Any]]:
    needed = ("cost:seconds", "cost:train_seconds", "cost:images_per_second", "cost:peak_memory_bytes")
    return [row for row in records.rows(folder)[0] if all(row.get(key) is not None for key in needed)]


def _measure(row: dict[str, Any], last: dict[str, float] | None = None) -> Measured | None:
    """The measurements in a record; those of the `last` epoch alone, if that is given."""
    try:  # a record of another version may have keys that are unknown now, or lack some
        protocol = Protocol(**{key: value for key, value in row["protocol_settings"].items() if key in FIELDS})
    except TypeError:
        return None
    tests = max(1, int(row["test_images"]))
    speed = float(row["cost:images_per_second"])
    outside = max(0.0, float(row["cost:seconds"]) - float(row["cost:train_seconds"]))
    # earlier versions did not separate evaluation from the rest, or left 0 where nothing was trained
    evaluating = min(outside, _number(row.get("cost:evaluate_seconds"), 0.0) or outside)
    pace = evaluating / _evaluations(protocol, speed > 0) / tests
    if last is not None:
        speed, pace = last["images_per_second"], last["evaluate_seconds"] / tests
    return Measured(network(protocol), row["dataset"], row["method"], protocol.batch_size,
                    compile_of(protocol, images_used(protocol, int(row["train_images"]), int(row["train_classes"]))),
                    row["device"], speed, pace, outside - evaluating,
                    _number(row.get("cost:held_memory_bytes"), row["cost:peak_memory_bytes"]),
                    _disk(Path(row["path"]), speed > 0), _number(row.get("cost:shared"), 1.0))


def _number(value: Any, instead: float) -> float:
    """The value of a column that a table of other records may lack."""
    return instead if value is None or math.isnan(value) else float(value)


def _last_epoch(row: dict[str, Any]) -> dict[str, float] | None:
    """The last epoch of a run in its log: the first one also pays for warming up and compiling."""
    try:
        lines = map(json.loads, (Path(row["path"]) / "log.jsonl").read_text(encoding="utf-8").splitlines())
        last = [line for line in lines if line["event"] == "epoch"][-1]
        return {key: float(last[key]) for key in ("images_per_second", "evaluate_seconds")}
    except (OSError, ValueError, KeyError, IndexError):
        return None


def network(protocol: Protocol) -> tuple[Any, ...]:
    """What decides the speed of a step beside method, batch size and compilation."""
    return protocol.backbone, protocol.size, protocol.precision


def compile_of(protocol: Protocol, train_images: int) -> str:
    """How a run makes its network fast on a GPU, where `auto` goes by its length."""
    steps = (protocol.epochs - protocol.warmup) * steps_an_epoch(protocol, train_images)
    return compile_when.wanted(protocol, steps)


def images_used(protocol: Protocol, train_images: int, train_classes: int) -> int:
    """How many images a run trains on, of those on the training side of its split.

    >>> from benchmark.config.protocol import load
    >>> images_used(load("oodml"), 5864, 100), images_used(load("oodml", overrides={"train_shots": 2}), 5864, 100)
    (5864, 200)
    """
    shots = protocol.train_shots
    return min(train_images, shots * train_classes) if shots else train_images


def steps_an_epoch(protocol: Protocol, train_images: int) -> int:
    """Of an epoch: whole batches; a ladder's validation classes, where they are held out, have their part of images."""
    left = int(train_images * (1 - HELD_OUT)) if protocol.validation else train_images
    whole = max(1, left // protocol.batch_size)
    return min(whole, protocol.steps_per_epoch) or whole


def _evaluations(protocol: Protocol, trains: bool) -> int:
    return -(-protocol.epochs // protocol.evaluate_every) if trains else 1


def _disk(folder: Path, trained: bool) -> int | None:
    """Bytes of the files in a run's folder; None where it was packed, or unpacked without its weights."""
    if not folder.is_dir() or (trained and not (folder / weights.RUN).is_file()):
        return None
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def summary(estimates: list[Estimate], rates: Rates, devices: int, per_gpu: int = 1) -> list[str]:
    """The estimates of the runs still to do, in a few lines; `devices` are GPUs, or processes on a CPU."""
    known = [e.seconds for e in estimates if e.seconds is not None]
    if not known:
        return ["cost: unknown, no run of this kind was measured yet; --calibrate measures a few steps of each"]
    gpu = is_gpu(rates.device)
    total, devices = sum(known), max(1, devices)
    lines = [f"time: {total / 3600:.3g} {'GPU' if gpu else 'CPU'}-hours on {rates.device}, {duration(total / devices)} "
             f"with {counted(devices, 'GPU' if gpu else 'process')}"]
    if len(known) < len(estimates):
        lines[0] += (f"; {counted(len(estimates) - len(known), 'run is', 'runs are')} not in it, nothing alike was "
                     "measured (--calibrate)")
    borrowed = sum(e.borrowed for e in estimates)
    if borrowed:
        lines[0] += (f"; {counted(borrowed, 'run goes', 'runs go')} by the speed of other methods (--calibrate "
                     "measures their own)")
    disks = [e.disk for e in estimates if e.disk is not None]
    disk = [f"{byte_size(sum(disks))} for what finished runs keep"] if disks else []
    if len(disks) < len(known):
        disk.append(f"unknown for {counted(len(known) - len(disks), 'run')}, only records are left of runs alike")
    memory = max(e.memory for e in estimates if e.memory is not None)
    return [*lines, f"disk: {'; '.join(disk)}",
            f"memory: {byte_size(memory)} at most in one run" + (
                f", {byte_size(per_gpu * memory)} in {per_gpu} on a GPU" if gpu and per_gpu > 1 else "")]
