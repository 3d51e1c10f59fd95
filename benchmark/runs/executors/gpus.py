"""Which GPUs a worker has, and how many runs share one: under `--per-gpu auto` more are let in while that pays."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass, field
from typing import Any

from benchmark.runs.job import Resources
from benchmark.utils.errors import UserError
from benchmark.utils.processors import cores, may_have_gpu

MOST = 8
"""Runs at a time on one GPU."""
FIRST = 4
"""Runs at a time before their speeds are compared: two, then four would each take the start of a process first."""
GAIN = 1.1
"""How much faster all runs together must become for twice as many to be worth their memory and their later ends."""
SECONDS = 3.0
"""Between reports of a worker, at least, before its speed counts."""
LONG = 20.0
"""Seconds after which it counts though no run of the worker has ended: what lies between long runs hardly matters."""
ROOM = 0.9
"""Share of a GPU's memory that runs may take: another one may need more than those that have reported."""
PROCESS = 1e9
"""Bytes of GPU memory that a process takes beside what torch holds for its tensors."""


def gpus() -> int:
    """How many GPUs torch can use; where the system has none of their device files, it is not imported to ask."""
    if "torch" not in sys.modules and not may_have_gpu():
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def devices(resources: Resources) -> list[str]:
    """The device of each worker: every GPU `per_gpu` times, else the CPU `jobs` times (default: cores, at most 4).

    Under `--per-gpu auto` these are the most that there may be (`Sharing` lets them in).
    Where a run has several GPUs, the first of each of its groups.
    """
    count, each = gpus(), resources.gpus_per_run
    if each > 1 and resources.per_gpu != 1:
        raise UserError("--gpus-per-run and --per-gpu exclude each other: a run has several GPUs or a GPU several runs")
    if each > 1 and each > count:
        raise UserError(f"--gpus-per-run {each}: this machine has {count or 'no'} GPU{'s' * (count != 1)}")
    if count:
        return [f"cuda:{i}" for i in range(0, count // each * each, each)] * (resources.per_gpu or MOST)
    return ["cpu"] * (resources.jobs or min(cores(), 4))


def group(device: str, size: int) -> tuple[str, ...]:
    """The devices of a run on several GPUs, from its first one on.

    >>> group("cuda:2", 2), group("cuda:2", 1)
    (('cuda:2', 'cuda:3'), ())
    """
    first = int(device.partition(":")[2] or 0)
    return tuple(f"cuda:{first + i}" for i in range(size)) if size > 1 else ()


@dataclass
class Sharing:
    """Watches the speed and memory of the runs on the GPUs, and says how many each GPU may have at a time.

    A worker counts by the images that it trains on between its reports: evaluation is in it, and so is what lies
    between two runs, where one is over within `LONG` seconds, since several runs are there to fill that too. What the
    first run of a process needs before its first report, such as compiling, comes once and does not count.

    >>> sharing = Sharing(gpus=1, memory=100e9)
    >>> sharing.note(0, {"images": 0, "memory": 2e9}, now=0.0)
    >>> sharing.allowed
    4
    >>> for now, total in (0.0, 2900), (60.0, 3000):
    ...     for slot in range(sharing.allowed):
    ...         sharing.note(slot, {"images": 0, "memory": 2e9}, now)
    ...     for slot in range(sharing.allowed):
    ...         sharing.note(slot, {"images": total / sharing.allowed * LONG, "memory": 2e9}, now + LONG)
    ...     sharing.allowed
    8
    4
    """

    gpus: int
    memory: float
    """Bytes that one of them has."""
    allowed: int = 1
    """One until its memory is known, then `FIRST` if they fit: some train while others are evaluated or begin."""
    settled: bool = False
    _best: float = 0.0
    _largest: float = 0.0
    _reported: dict[int, float] = field(default_factory=dict)
    """When each worker last reported."""
    _seen: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Images and seconds of each worker since the last decision."""
    _between: set[int] = field(default_factory=set)
    """Workers whose run is over and whose next one has not reported yet."""
    _whole: set[int] = field(default_factory=set)
    """Workers whose seconds hold the time between two runs."""

    @classmethod
    def of(cls, devices: list[str]) -> Sharing:
        """That of workers on these GPUs."""
        import torch

        gpus = sorted(set(devices))
        return cls(len(gpus), min(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus))

    def note(self, slot: int, event: dict[str, Any], now: float) -> None:
        """What the run of a worker reports on its way, at so many seconds of a clock."""
        if self.settled or "images" not in event:
            return
        self._largest = max(self._largest, float(event["memory"]))
        if self.allowed == 1:
            self._let_in(FIRST)
            if self.settled:
                self._let_in(2)
        if slot in self._reported:
            images, seconds = self._seen.get(slot, (0.0, 0.0))
            self._seen[slot] = images + event["images"], seconds + now - self._reported[slot]
        self._reported[slot] = now
        if slot in self._between:
            self._between.remove(slot)
            self._whole.add(slot)
        enough = [images / seconds for slot, (images, seconds) in self._seen.items()
                  if seconds >= (SECONDS if slot in self._whole else LONG)]
        if len(enough) >= self.allowed * self.gpus:
            self._decide(len(enough) * statistics.median(enough))  # one of them may have compiled meanwhile

    def ended(self, slot: int) -> None:
        """The worker's run is over."""
        self._between.add(slot)

    def _decide(self, total: float) -> None:
        self._seen.clear()
        self._whole.clear()
        if total < GAIN * self._best:
            self.allowed, self.settled = self.allowed // 2, True
            return
        self._best = total
        self._let_in(2 * self.allowed)

    def _let_in(self, runs: int) -> None:
        """So many from now on, if that is not too many and their memory lasts; else it stays as it is."""
        self.settled = runs > MOST or runs * (self._largest + PROCESS) > ROOM * self.memory
        if not self.settled:
            self.allowed = runs
