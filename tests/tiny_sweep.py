"""A working folder with runs of a second: glyphs-mini, a ladder of random features, conv4, two steps an epoch."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import methods
from benchmark import datasets, ladders
from benchmark.config.study import Part, Study
from benchmark.data.store import open_store
from benchmark.runs import cost
from benchmark.runs.job import Job, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.runs.progress import Progress
from benchmark.utils.workspace import Workspace
from methods import registry
from splits.ladder import build_ladder

SMALL = {"backbone": "conv4", "dim": 16, "size": 16, "resize": 16, "batch_size": 24, "epochs": 2, "steps_per_epoch": 2,
         "evaluate_every": 1, "lr": 0.002}
WORDS = ["--dataset", "glyphs-mini", *(word for key, value in SMALL.items() for word in ("--set", f"{key}={value}"))]

PLUGIN = '''
from pathlib import Path
import torch
from methods import Objective, register

HERE = Path(__file__).parent

class Plain(Objective):
    """The mean square of embeddings."""
    normalised = False
    steps = 0
    def forward(self, embeddings, labels):
        self.steps += 1
        self.trouble()
        return embeddings.square().mean()
    def trouble(self):
        pass

@register("fine", family="test")
class Fine(Plain):
    """Nothing happens."""
'''
"""What a plug-in begins with whose methods are in trouble at some step."""


def workspace(root: Path, names: tuple[str, ...] = ("glyphs-mini",)) -> Workspace:
    """The folder with its ladders and decoded images."""
    made = Workspace.at(root)
    for name in names:
        index = datasets.load(name, made.data)
        if index.domains is not None:
            ladders.save(ladders.build(name, made), made)
        else:
            features = np.random.default_rng(0).normal(size=(len(index), 8)) + index.labels[:, None] % 7
            ladders.save(build_ladder(features, index.labels, index.train_classes, index.test_classes, rungs=3,
                                      classes=index.classes, dataset=index.name, dataset_hash=index.hash), made)
        open_store(index, made.cache, progress=False)
    return made


def study(names: str = "margin,arcface", *, after: tuple[dict[str, Any], ...] = (), **fields: Any) -> Study:
    """A study of one part over glyphs-mini."""
    changes = {**SMALL, **fields.pop("set", {})}
    fields = {"datasets": ("glyphs-mini",), "protocol": "demo", "splits": "1", "seeds": 2, **fields}
    return Study("tiny", (Part(methods=names, set=changes, **fields),), after)


def jobs(made: Workspace, names: str = "margin,arcface", **fields: Any) -> list[Job]:
    return gather(study(names, **fields), SweepOptions(made)).jobs


def oodml(made: Workspace, *words: str, stdout: Any = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
    """The command in a session of its own, its output in one pipe or file."""
    return subprocess.Popen([sys.executable, "-c", "from benchmark.cli import main; main()", *words, "--work",
                             str(made.root)], stdout=stdout, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})


def progress(todo: Iterable[Job] = ()) -> Progress:
    """That of a sweep over these runs."""
    return Progress({job.spec.identity: cost.work(job.spec, job.label) for job in todo}, terminal=False)


@contextlib.contextmanager
def registry_as_before() -> Iterator[None]:
    """Takes away what plug-ins registered meanwhile, so that other tests do not meet it."""
    methods.names()
    before = dict(registry._ENTRIES)
    try:
        yield
    finally:
        registry._ENTRIES.clear()
        registry._ENTRIES.update(before)


def results(made: Workspace) -> dict[str, Any]:
    """Every record below the folder without what differs from day to day: cost and provenance."""
    records = {}
    for path in sorted(made.runs.glob("*/*/*/*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        records[str(path.parent.relative_to(made.runs))] = {key: value for key, value in record.items()
                                                          if key not in ("cost", "provenance")}
    return records
