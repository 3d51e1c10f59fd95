"""How long the rest of a sweep takes, from how fast its runs have gone so far."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

SEEN = 0.05
"""Share of the images of all runs begun whose time must be known before an estimate is worth saying."""
BUSY = 2
"""Runs that make a GPU busy: of more, each gets faster as others end."""
EMBEDDING = 1 / 3
"""An image that is embedded beside one that is trained on, which has a backward pass of about two forward ones."""


@dataclass(frozen=True)
class Work:
    """What a run has to do."""

    label: str
    epochs: int = 0
    train: float = 1.0
    """Images of an epoch; 1 where they are not known."""
    test: float = 0.0
    """Images of an evaluation."""
    every: int = 1
    """Epochs from one evaluation to the next."""
    kind: tuple[Any, ...] = ()
    """What else decides the speed, such as dataset and method: runs of a kind need as long for each image."""

    def images(self, first: int, last: int) -> float:
        """Those that pass through the network from the end of one epoch to that of another, as if trained on.

        >>> Work("run", 10, train=100, test=30, every=4).images(3, 10)
        730.0
        """
        evaluations = last // self.every - first // self.every + (first < last == self.epochs and last % self.every > 0)
        return (last - first) * self.train + evaluations * self.test * EMBEDDING


@dataclass
class _Run:
    """A run that was begun here. The end of its first epoch starts the clock: before it lie imports and compiling."""

    work: Work
    began: float
    cold: bool
    """Whether it is the first one of its process, which also imports and compiles."""
    resumed: int = 0
    epoch: int = 0
    ends: list[tuple[int, float]] = field(default_factory=list)
    """Number and end of each whole epoch here."""
    ended: float | None = None

    @property
    def timed(self) -> tuple[float, float]:
        """Images and seconds by which its speed is known."""
        if len(self.ends) == 1 and self.ended is not None and not self.cold:  # a run of one epoch: all of it
            return self.work.images(self.resumed, self.epoch), self.ended - self.began
        if len(self.ends) < 2:
            return 0.0, 0.0
        epoch, end = self.ends[0]
        return self.work.images(epoch, self.epoch), self.last - end

    @property
    def last(self) -> float:
        """The end of its last epoch, or its start."""
        return self.ends[-1][1] if self.ends else self.began

    def before(self, pace: float) -> float:
        """Seconds before its first epoch, which took so many an image."""
        epoch, end = self.ends[0]
        return end - self.began - pace * self.work.images(self.resumed, epoch)


@dataclass
class TimeLeft:
    """The runs of a sweep, those at work and their speeds.

    A run at work goes on as fast as it has. One that waits will be as fast, for each image, as those of its kind, else
    as an average kind; what lies before the first epoch and behind the last is counted apart.

    >>> ahead = TimeLeft({"a": Work("a", 40), "b": Work("b", 20)})
    >>> ahead.start("a", now=0.0)
    >>> for epoch in range(1, 11):
    ...     ahead.epoch("a", epoch, fresh=True, now=300.0 + 2.0 * epoch)
    >>> ahead.seconds(now=320.0)
    100.0
    """

    waiting: dict[str, Work]
    shared: int = 0
    """GPUs that have several runs each. There a run has its part of the seconds: it gets faster as others end."""
    elsewhere: int = 0
    """Runs that other runners are at."""
    lanes: int = 0
    """The most runs at a time so far."""
    clock: float = 0.0
    """Seconds so far, of which a run on a shared GPU has its part alone: all times of runs are of this clock."""
    _running: dict[str, _Run] = field(default_factory=dict)
    _done: list[_Run] = field(default_factory=list)
    _then: float = 0.0

    def start(self, key: str, now: float) -> None:
        """A run begins, for the first time or again."""
        self._go_on(now)
        cold = len(self._running) >= self.lanes
        self.lanes += cold
        self._running[key] = _Run(self.waiting.pop(key), self.clock, cold)

    def epoch(self, key: str, epoch: int, fresh: bool, now: float) -> None:
        """So many epochs of a run are whole; those that are not `fresh` were before it began here."""
        self._go_on(now)
        run = self._running[key]
        if not fresh:
            run.resumed = run.epoch = max(run.epoch, epoch)
        elif epoch > run.epoch:
            run.epoch = epoch
            run.ends.append((epoch, self.clock))

    def done(self, key: str, now: float) -> None:
        """A run has ended here, well."""
        self._go_on(now)
        run = self._running.pop(key)
        run.ended = self.clock
        self._done.append(run)

    def drop(self, key: str, now: float) -> None:
        """A run is done elsewhere, or failed: that tells nothing of how long it takes."""
        self._go_on(now)
        self._running.pop(key, None)
        self.waiting.pop(key, None)

    def put_back(self, key: str, now: float) -> None:
        """A run is left unfinished and begins again later."""
        self._go_on(now)
        if key in self._running:
            self.waiting[key] = self._running.pop(key).work

    def seconds(self, now: float) -> float | None:
        """To the end of the sweep; None while too little is known."""
        self._go_on(now)
        speeds = _Speeds.of([*self._running.values(), *self._done])
        if speeds is None or (not speeds.kinds and any(work.epochs for work in self._unfinished)):
            return None
        at_work = [speeds.rest(run, self.clock) for run in self._running.values()]
        waiting = [speeds.whole(work) for work in self.waiting.values()]
        ends = at_work + [0.0] * max(not at_work, self.lanes + self.elsewhere - len(at_work))
        heapq.heapify(ends)
        for seconds in waiting:  # whoever is free takes the next
            heapq.heapreplace(ends, ends[0] + seconds)
        return sum((end - before) * self._sharing(len(ends) - i)
                   for i, (before, end) in enumerate(itertools.pairwise([0.0, *sorted(ends)])))

    def _go_on(self, now: float) -> None:
        passed = max(0.0, now - self._then) / self._sharing(len(self._running) + self.elsewhere)
        self.clock, self._then = self.clock + passed, now

    def _sharing(self, runs: int) -> int:
        """Among how many a second is divided while so many runs are at work."""
        return max(runs, BUSY * self.shared) if self.shared else 1

    @property
    def _unfinished(self) -> list[Work]:
        return [*self.waiting.values(), *(run.work for run in self._running.values())]


@dataclass(frozen=True)
class _Speeds:
    """What is known of the time that runs take."""

    kinds: dict[tuple[Any, ...], float]
    """Seconds for each image, by the kind of run."""
    starts: dict[bool, float]
    """Seconds before the first epoch, with imports and compiling (True) and without."""
    end: float
    """Seconds behind the last epoch."""
    untrained: float
    """Seconds of a run that only embeds."""

    @classmethod
    def of(cls, begun: list[_Run]) -> _Speeds | None:
        """Those of runs that have begun; None if too little of them is known."""
        sums: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
        for run in begun:
            if run.timed[0]:
                sums[run.work.kind].append(run.timed)
        whole = sum(run.work.images(run.resumed, run.work.epochs) for run in begun)
        untrained = [run.ended - run.began for run in begun if run.ended is not None and not run.work.epochs]
        if sum(images for known in sums.values() for images, _ in known) < SEEN * whole or not (sums or untrained):
            return None
        kinds = {kind: sum(seconds for _, seconds in known) / sum(images for images, _ in known)
                 for kind, known in sums.items()}
        speeds = cls(kinds, {}, 0.0, _mean(untrained))
        starts = {cold: _mean(run.before(speeds.pace(run.work)) for run in begun if run.ends and run.cold == cold)
                  for cold in (True, False)}
        # all of a run of one epoch is in its speed
        ends = _mean(run.ended - run.last for run in begun if run.ended is not None and len(run.ends) > 1)
        return cls(kinds, starts, ends, speeds.untrained)

    def pace(self, work: Work) -> float:
        """Seconds for each image."""
        return self.kinds.get(work.kind) or _mean(self.kinds.values())

    def whole(self, work: Work) -> float:
        """Seconds of a run that has not begun."""
        if not work.epochs:
            return self.untrained
        return self.starts[False] + self.pace(work) * work.images(0, work.epochs) + self.end

    def rest(self, run: _Run, now: float) -> float:
        """Seconds to the end of a run at work, less those since it was last heard of, so long as that is due later."""
        work, (images, seconds) = run.work, run.timed
        if not work.epochs:
            return max(0.0, self.untrained - (now - run.began))
        pace = seconds / images if images else self.pace(work)
        before = 0.0 if run.ends else self.starts[run.cold]
        piece = before + pace * work.images(run.epoch, run.epoch + 1) if run.epoch < work.epochs else self.end
        return before + pace * work.images(run.epoch, work.epochs) + self.end - min(now - run.last, piece)


def _mean(values: Iterable[float]) -> float:
    """The mean of times, none of which is less than nothing; 0 of none."""
    found = [max(0.0, value) for value in values]
    return fmean(found) if found else 0.0
