"""From run records to the site: ten thousand of them, and the thirty of the demonstration."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from reports import records, site
from reports.results import Results
from tests.bench import Row
from tests.sample_records import LADDERS, STRENGTH, make_record, write_outcomes, write_sample


def measure(device: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        demo = {name: STRENGTH[name] for name in ("frozen", "margin", "multisimilarity", "arcface", "proxyanchor")}
        write_sample(Path(folder) / "small", demo, ("glyphs",), seeds=1, queries=True)
        yield Row("site of 30 records, wall", _built(Path(folder) / "small"))
        write_many(Path(folder) / "many")
        yield Row("site of 9,900 records with outcomes, wall (aim: 60 s)", _built(Path(folder) / "many"))
        yield Row("its home page", (Path(folder) / "many-site" / "index.html").stat().st_size / 1e6, unit="MB")


def _built(runs: Path) -> float:
    start = time.perf_counter()
    frame, lost = records.scan(runs)
    site.build(Results(frame), lost, runs.with_name(f"{runs.name}-site"))
    return time.perf_counter() - start


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
                    write_outcomes(path, labels, rng.random(len(labels)) < score)
