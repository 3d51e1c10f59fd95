"""The time that a sweep says is left, held against the end of simulated sweeps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from benchmark.runs import cost
from benchmark.runs.time_left import TimeLeft, Work
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

Told = list[tuple[float, float, float | None]]


@dataclass
class Simulated:
    """A run: pieces of work of so many seconds each at full speed, the first before its first epoch."""

    work: Work
    pieces: list[float]


def run(work: Work, pace: float, start: float, end: float) -> Simulated:
    """Of a run whose images take so many seconds each; evaluations are a third of that, at the end of their epoch."""
    pieces = [start]
    for epoch in range(1, work.epochs + 1):
        evaluated = epoch % work.every == 0 or epoch == work.epochs
        pieces.append(pace * (work.train + evaluated * work.test / 3))
    return Simulated(work, [*pieces, end])


def simulate(runs: list[Simulated], lanes: int, at_full_speed: float, compiling: float,
             shared: int = 0) -> Told:
    """(share of all epochs' work that is done, time, seconds left as told) after each piece of a run.

    Up to `at_full_speed` runs are as fast together as one alone; the first of each lane compiles.
    """
    left = TimeLeft({str(i): one.work for i, one in enumerate(runs)}, shared=shared)
    now, told, queue = 0.0, [], list(enumerate(runs))
    at_work: dict[str, list[float]] = {}
    begun, done = 0, 0.0
    whole = sum(sum(one.pieces[1:-1]) for one in runs)
    while queue or at_work:
        while queue and len(at_work) < lanes:
            i, one = queue.pop(0)
            at_work[str(i)] = [one.pieces[0] + compiling * (begun < lanes), *one.pieces[1:]]
            begun += 1
            left.start(str(i), now)
        speed = min(1.0, at_full_speed / len(at_work))
        key = min(at_work, key=lambda one: at_work[one][0])
        step = at_work[key][0]
        now += step / speed
        for pieces in at_work.values():
            pieces[0] -= step
        at_work[key].pop(0)
        place = len(runs[int(key)].pieces) - len(at_work[key]) - 1
        done += runs[int(key)].pieces[place] if 0 < place <= runs[int(key)].work.epochs else 0.0
        epochs = runs[int(key)].work.epochs
        if not at_work[key]:
            del at_work[key]
            left.done(key, now)
        elif epochs:
            left.epoch(key, place, fresh=place > 0, now=now)
        told.append((done / whole, now, left.seconds(now)))
    return told


def uneven(count: int, seed: int, epochs: int = 40, seeds: int = 1) -> list[Simulated]:
    """Runs of methods of which some take twice as long as others, on two datasets, one twice as large."""
    draw = random.Random(seed)
    paces = {method: draw.uniform(1.0, 2.0) / 1000 for method in range(count)}
    runs = []
    for _ in range(seeds):
        for method in range(count):
            size = draw.choice((6000.0, 12000.0))
            work = Work(f"{method}", epochs, size, size, every=draw.choice((1, 4)), kind=(size, method))
            runs.append(run(work, paces[method] * draw.uniform(0.9, 1.1), start=5.0, end=15.0))
    draw.shuffle(runs)
    return runs


SWEEPS: dict[str, Callable[[int], Told]] = {
    "one after the other": lambda seed: simulate(uneven(30, seed), 1, 1.0, compiling=60.0),
    "two processes": lambda seed: simulate(uneven(47, seed), 2, 2.0, compiling=60.0),
    "several seeds": lambda seed: simulate(uneven(12, seed, seeds=5), 4, 4.0, compiling=60.0),
    "short runs": lambda seed: simulate(uneven(60, seed, epochs=3), 4, 4.0, compiling=60.0),
    "runs of an epoch": lambda seed: simulate(uneven(120, seed, epochs=1), 4, 4.0, compiling=60.0),
    "ten at once on a GPU": lambda seed: simulate(uneven(10, seed), 10, 2.5, compiling=300.0, shared=1),
    "ten at once on a GPU that one makes busy": lambda seed: simulate(uneven(10, seed), 10, 1.2, 300.0, shared=1),
    "forty on a GPU, five at a time": lambda seed: simulate(uneven(40, seed), 5, 2.5, compiling=60.0, shared=1),
}


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("seed", range(5))
def test_estimates_come_near_the_end_once_a_tenth_is_done(name: str, seed: int) -> None:
    """Within 30 % of what is left, or 5 % of the whole where little is left; before, nothing wild is said."""
    told = SWEEPS[name](seed)
    end = told[-1][1]
    for done, now, seconds in told:
        if seconds is not None:
            assert abs(seconds - (end - now)) <= max((0.3 if done >= 0.1 else 0.6) * (end - now), 0.05 * end), done
        assert seconds is not None or done < 0.1
    assert told[0][2] is None
    assert told[-1][2] == 0.0


def test_runs_of_other_runners_are_shared_work() -> None:
    """Three commands at the same runs: each sees all of them ahead, and does a third."""
    left = TimeLeft({str(i): Work("", 10) for i in range(31)})
    left.start("0", 0.0)
    for epoch in range(1, 6):
        left.epoch("0", epoch, fresh=True, now=2.0 * epoch)
    alone = left.seconds(10.0)
    left.elsewhere = 2
    assert (alone, left.seconds(10.0)) == (610.0, 210.0)
    left.drop("1", 10.0)
    assert left.seconds(10.0) == 210.0 - 10.0


def test_what_tells_nothing_is_not_counted() -> None:
    """Epochs of before, a run that was found done, one that failed; a frozen one says nothing of those that train."""
    left = TimeLeft({"resumed": Work("", 100), "found": Work("", 100), "failed": Work("", 100), "frozen": Work("")})
    for key in ("resumed", "found", "failed", "frozen"):
        left.start(key, 0.0)
    left.epoch("resumed", 80, fresh=False, now=1.0)
    left.epoch("failed", 1, fresh=True, now=50.0)
    left.epoch("failed", 90, fresh=True, now=51.0)
    left.drop("found", 60.0)
    left.drop("failed", 60.0)
    left.done("frozen", 60.0)
    assert left.seconds(60.0) is None
    for epoch in (81, 82, 83):
        left.epoch("resumed", epoch, fresh=True, now=100.0 + 10.0 * (epoch - 81))
    assert left.seconds(125.0) == 17 * 10.0 - 5.0
    left.put_back("resumed", 125.0)
    assert left.seconds(125.0) is None, "of the one that trains nothing is known now"


def test_the_work_of_a_run_is_read_off_its_protocol(tiny: Workspace) -> None:
    (job, *_) = tiny_sweep.jobs(tiny, "margin", seeds=1, set={"epochs": 3, "evaluate_every": 2})
    (frozen,) = tiny_sweep.jobs(tiny, "frozen", seeds=1)
    (split, *_) = [split for split in tiny_sweep.ladders.load(tiny, "glyphs-mini").splits if split.id == job.spec.split]
    work = cost.work(job.spec, "margin", split)
    assert (work.epochs, work.train, work.test) == (3, 2 * 24, split.test_images)
    assert work.images(0, 3) == pytest.approx(3 * 48 + 2 * split.test_images / 3)
    assert cost.work(frozen.spec, "frozen", split).images(0, 0) == 0
    assert cost.work(job.spec, "margin").epochs == 3
