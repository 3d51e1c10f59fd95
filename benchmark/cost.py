"""What cells will cost: time, memory and disk, from what earlier runs of the same kind were measured to take."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.plan import RunSpec
from benchmark.progress import duration
from reports import records

CALIBRATION = "calibration"
"""Folder in the cache that holds the short runs of `--calibrate`."""


@dataclass(frozen=True)
class Estimate:
    """What one cell takes; None where nothing like it was measured."""

    seconds: float | None = None
    disk: float | None = None
    memory: float | None = None


@dataclass(frozen=True)
class Measured:
    """What a finished run took."""

    kind: tuple[Any, ...]
    """Backbone, image size, precision and compilation: what decides the speed of a step beside the method."""
    method: str
    device: str
    speed: float
    """Training images a second; 0 where nothing was trained."""
    pause: float
    """Seconds outside of training for each image that was embedded."""
    memory: float
    disk: float


class Rates:
    """Speeds of earlier runs on one device."""

    def __init__(self, runs: Iterable[Measured], device: str) -> None:
        found = list(runs)
        here = [run for run in found if run.device == device]
        if not here and found:
            device = statistics.mode(run.device for run in found)
            here = [run for run in found if run.device == device]
        self.device = device
        self._by: dict[Any, list[Measured]] = defaultdict(list)
        for run in here:
            self._by[run.method, run.kind].append(run)
            self._by[run.kind].append(run)

    def estimate(self, spec: RunSpec, train_images: int, test_images: int) -> Estimate:
        """From runs of the same method on the same backbone, else of any method on it.

            seconds = epochs * steps * b / speed + pause * (evaluations * test images + train images)
        """
        kind = _kind(spec.protocol)
        runs = self._by.get((spec.method, kind)) or self._by.get(kind)
        if not runs:
            return Estimate()
        protocol = spec.protocol
        steps = protocol["steps_per_epoch"] or max(1, train_images // protocol["batch_size"])
        speeds = [run.speed for run in runs if run.speed]
        # what trains nothing was measured as such: its speed is no speed
        training = protocol["epochs"] * steps * protocol["batch_size"] / statistics.median(speeds) if speeds else 0.0
        pause = statistics.median(run.pause for run in runs) * _embedded(protocol, train_images, test_images)
        return Estimate(training + pause, statistics.median(run.disk for run in runs), max(run.memory for run in runs))


def measured(runs: Path, calibration: Path | None = None) -> list[Measured]:
    """What the finished runs below a folder took; of the short ones of a calibration only their last epoch counts."""
    found = [_measure(row, None) for row in _rows(runs) if row["source"] == "run"]
    if calibration is not None and calibration.is_dir():
        found += [_measure(row, _last_speed(row)) for row in _rows(calibration)]
    return found


def _rows(folder: Path) -> list[dict[str, Any]]:
    frame = records.scan(folder)[0]
    needed = ["cost:seconds", "cost:train_seconds", "cost:images_per_second", "cost:peak_memory_bytes"]
    if frame.empty or not set(needed) <= set(frame.columns):
        return []
    return [{str(key): value for key, value in row.items()} for row in frame.dropna(subset=needed).to_dict("records")]


def _measure(row: dict[str, Any], speed: float | None) -> Measured:
    protocol = row["protocol_settings"]
    outside = max(0.0, float(row["cost:seconds"]) - float(row["cost:train_seconds"]))
    images = _embedded(protocol, int(row["train_images"]), int(row["test_images"]))
    return Measured(_kind(protocol), row["method"], str(row["device"]),
                    float(row["cost:images_per_second"]) if speed is None else speed, outside / max(1, images),
                    float(row["cost:peak_memory_bytes"]), float(size(Path(row["path"]))))


def _last_speed(row: dict[str, Any]) -> float | None:
    """Images a second in the last epoch of a run: the first one also pays for warming up and compiling."""
    try:
        lines = map(json.loads, (Path(row["path"]) / "log.jsonl").read_text(encoding="utf-8").splitlines())
        return [line["images_per_second"] for line in lines if line["event"] == "epoch"][-1]
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _kind(protocol: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(protocol.get(key) for key in ("backbone", "size", "precision", "compile"))


def _embedded(protocol: dict[str, Any], train_images: int, test_images: int) -> int:
    evaluations = -(-protocol["epochs"] // protocol["evaluate_every"]) or 1
    return evaluations * test_images + train_images


def size(folder: Path) -> int:
    """Bytes of the files in a run's folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def summary(estimates: list[Estimate], rates: Rates, workers: int) -> list[str]:
    """The estimates of the cells still to do, in a few lines."""
    known = [e.seconds for e in estimates if e.seconds is not None]
    if not known:
        return ["cost: unknown, no run of this kind was measured yet; --calibrate measures a few steps of each"]
    unit = "CPU" if not _is_gpu(rates.device) else "GPU"
    total = sum(known)
    lines = [f"time: {total / 3600:.3g} {unit}-hours on {rates.device}, {duration(total / max(1, workers))} with "
             f"{workers} at a time"]
    if len(known) < len(estimates):
        lines[0] += f"; {len(estimates) - len(known)} cells are not in it, nothing like them was measured (--calibrate)"
    disk = sum(e.disk for e in estimates if e.disk is not None)
    memory = max(e.memory for e in estimates if e.memory is not None)
    return [*lines, f"disk: {disk / 1e9:.3g} GB for what finished runs keep",
            f"memory: {memory / 1e9:.3g} GB at most in one run"]


def _is_gpu(device: str) -> bool:
    return any(name in device for name in ("NVIDIA", "GeForce", "Tesla", "Quadro", "AMD Instinct", "Radeon"))
