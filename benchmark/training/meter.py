"""What a run reports on its way: loss, speed and memory, without making the GPU wait."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmark.utils import processors

EVERY = 50
"""Steps between two lines of the log, and between two looks at whether the loss is still a number."""


class Diverged(Exception):
    """The loss is not a number any more."""


class _Reading(NamedTuple):
    """What is known at a step: the sum of losses, which may still be on its way, and the facts that go with it."""

    total: Tensor
    event: Any
    """After which `total` can be looked at; None: at once."""
    steps: int
    images: int
    time: float
    lr: float
    memory: int


class Meter:
    """Adds up the losses of an epoch where they are made, and reads them out every `EVERY` steps.

    On CUDA a reading is copied in the background and looked at when the next one is due, or the epoch over; learning
    rate, time and memory of its line are those of its step all the same.
    """

    def __init__(self, folder: Path | None, device: str, epoch: int, first: int,
                 report: Callable[[dict[str, Any]], None]) -> None:
        self.folder, self.device, self.epoch, self.first, self.report = folder, device, epoch, first, report
        self.total = torch.zeros((), device=device)
        self.steps = self.images = 0
        self.began = self._since = time.perf_counter()
        self._before = (0, 0, 0.0)
        self._pending: _Reading | None = None

    def add(self, loss: Tensor, images: int, lr: float) -> None:
        """One step."""
        self.total += loss.detach()
        self.steps += 1
        self.images += images
        if self.steps % EVERY == 0:
            self._read()
            self._pending = _Reading(*self._copy(), self.steps, self.images, time.perf_counter(), lr,
                                     peak_memory(self.device))
            if self._pending.event is None:
                self._read()

    def _copy(self) -> tuple[Tensor, Any]:
        """The sum of losses so far, and the event after which it can be looked at, if it is still on its way."""
        copied = self.total.detach().clone()
        if not self.device.startswith("cuda"):
            return copied, None
        copied = torch.empty((), pin_memory=True).copy_(copied, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return copied, event

    def _read(self) -> None:
        """Writes the line of the last reading, if that was not done."""
        if self._pending is None:
            return
        copied, event, steps, images, now, lr, memory = self._pending
        self._pending = None
        if event is not None:
            event.synchronize()
        total = float(copied)
        before, earlier, sum_before = self._before
        loss, rate = (total - sum_before) / (steps - before), (images - earlier) / max(now - self._since, 1e-9)
        self._before, self._since = (steps, images, total), now
        self._check(loss, steps)
        entry = {"epoch": self.epoch - 1, "step": self.first + steps, "loss": loss, "lr": lr, "images_per_second": rate,
                 "memory": memory}
        write_line(self.folder, {"event": "steps", **entry})
        self.report({**entry, "images": images - earlier, "memory": held_memory(self.device)})

    @property
    def unreported(self) -> int:
        """Images of the epoch that no report has told of."""
        return self.images - self._before[1]

    def left(self, steps: int) -> float:
        """Seconds to the end of an epoch of so many steps, at the speed so far."""
        return (time.perf_counter() - self.began) / max(self.steps, 1) * (steps - self.steps)

    def end(self) -> float:
        """The mean loss of the epoch, once everything is done."""
        self._read()
        mean = float(self.total) / max(self.steps, 1)
        self._check(mean, self.steps)
        return mean

    def _check(self, loss: float, steps: int) -> None:
        if not math.isfinite(loss):
            raise Diverged(f"the loss is {loss} in epoch {self.epoch}, at step {self.first + steps} or up to {EVERY} "
                           "steps before")


def write_line(folder: Path | None, entry: dict[str, Any]) -> None:
    """One more line of `log.jsonl`; without a folder none."""
    if folder is None:
        return
    with (folder / "log.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")


def peak_memory(device: str) -> int:
    """The most bytes in use so far: by tensors on the GPU, or by this process on a CPU."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    return processors.peak_memory()


def held_memory(device: str) -> int:
    """The most bytes taken from others so far: torch keeps what tensors leave, and CUDA graphs have pools of theirs."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved(device)
    return processors.peak_memory()
