"""From run records to the site: ten thousand of them, loose and packed, and the thirty of the demonstration."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmark.board import leaderboard
from benchmark.utils.workspace import Workspace
from reports import packing, records
from tests.bench import Row
from tests.sample_records import LADDERS, STRENGTH, make_record, write_queries, write_sample


def measure(device: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        demo = {name: STRENGTH[name] for name in ("frozen", "margin", "multisimilarity", "arcface", "proxyanchor")}
        write_sample(home / "small", demo, ("glyphs",), seeds=1, queries=True)
        yield from _built(home / "small", "site of 30 records")
        write_many(home / "many")
        yield from _built(home / "many", "site of 9,900 records with outcomes")
        yield Row("its home page", (home / "many-site" / "index.html").stat().st_size / 1e6, unit="MB")
        began = time.process_time()
        written, _ = packing.pack([home / "many"], home / "pack")
        yield Row("packing 9,900 records, CPU", time.process_time() - began)
        yield Row("the packed records", sum(path.stat().st_size for path in written) / 1e6, unit="MB")
        yield from _built(home / "pack", "site of 9,900 packed records")


def _built(runs: Path, name: str) -> Iterator[Row]:
    """Wall time, CPU time of all processes (which repeats on a shared machine), and the most memory so far."""
    start, before = time.perf_counter(), _cpu()
    leaderboard.collect(Workspace.at(runs.with_name("work")), [runs]).build(runs.with_name(f"{runs.name}-site"))
    yield Row(f"{name}, wall (aim: 60 s)", time.perf_counter() - start)
    yield Row(f"{name}, CPU", _cpu() - before)
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    yield Row("peak memory of the largest two processes", peak / 1024**2, unit="GB")


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def write_many(folder: Path, methods: int = 44, datasets: int = 5, rungs: int = 9, seeds: int = 5) -> None:
    """Records of a full study: 100 test classes, 5,900 queries a run."""
    rng = np.random.default_rng(0)
    labels = np.sort(np.arange(5900) % 100)
    for name in (f"set{i}" for i in range(datasets)):
        LADDERS[name] = [[k, 10.0 * k] for k in range(1, rungs + 1)]
        for number in range(methods):
            method = f"method{number:02d}" if number else "frozen"
            for split in range(1, rungs + 1):
                for seed in range(seeds):
                    score = 0.7 - 0.003 * number - 0.02 * split + rng.normal(0, 0.004)
                    path = folder / name / str(split) / method / f"s{seed}"
                    records.write(path, make_record(name, split, method, seed, float(score)))
                    write_queries(path, labels, rng.random(len(labels)) < score)
