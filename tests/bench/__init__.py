"""Measurements of speed, as ratios in one run against what a user would use instead."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison: our figure, the other's, and the ratio that is aimed at (ours better by at least that)."""

    name: str
    ours: float
    other: float | None = None
    against: str = ""
    target: float | None = None
    unit: str = "s"
    """'s' for seconds, less is better; anything else is a rate, more is better."""

    @property
    def ratio(self) -> float | None:
        if self.other is None:
            return None
        return self.other / self.ours if self.unit == "s" else self.ours / self.other


def seconds(work: Callable[[], object], repeats: int = 3, device: str = "cpu") -> float:
    """The best of several timings: CPU seconds of this process on the CPU, wall time on a GPU."""
    import torch

    clock = time.process_time if device == "cpu" else time.perf_counter
    work()
    best = float("inf")
    for _ in range(repeats):
        if device != "cpu":
            torch.cuda.synchronize()
        start = clock()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        best = min(best, clock() - start)
    return best


def cpu_of_children() -> float:
    """CPU seconds of the processes that this one started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
