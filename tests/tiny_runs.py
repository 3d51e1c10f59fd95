"""Whole runs of a few small steps on glyphs-mini, in this process or in another that may be killed."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import methods
from benchmark import datasets, ladders
from benchmark.config.plan import Overrides, plan
from benchmark.config.spec import RunSpec
from benchmark.data import weights
from benchmark.data.store import open_store
from benchmark.runs import worker
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import RunContext
from benchmark.training.train import Interrupted
from benchmark.utils.workspace import Workspace
from splits.ladder import build_ladder

DATASET = "glyphs-mini"
SMALL = ("epochs=4", "steps_per_epoch=3", "evaluate_every=2", "dim=16", "size=16", "resize=16", "batch_size=24")
TINY = {"crt": ("crt.prototypes=8", "crt.wide_prototypes=4", "crt.wide_dim=16", "crt.hidden=8"),
        "mlp3-emb": ("mlp3-emb.hidden=16",)}
"""Settings that make large methods small."""

# so that a process forked from one that has imported this file need not do it again
methods.names()
datasets.load(DATASET, Path())
for late in ("torch._dynamo", "cv2", "faiss", "pandas"):
    with contextlib.suppress(ImportError):
        importlib.import_module(late)


def workspace(folder: Path, dataset: str = DATASET) -> Workspace:
    """Pixels of glyphs and a ladder of random features."""
    made = Workspace.at(folder)
    index = datasets.load(dataset, made.data)
    features = np.random.default_rng(0).normal(size=(len(index), 8)) + index.labels[:, None] % 7
    ladder = build_ladder(features, index.labels, index.train_classes, index.test_classes, classes=index.classes,
                          dataset=index.name, dataset_hash=index.hash)
    ladders.save(ladder, made)
    open_store(index, made.cache, progress=False)
    return made


def spec(made: Workspace, method: str, *changes: str, seed: int = 0, split: int = 1) -> RunSpec:
    """The run of a method on one rung."""
    index = datasets.load(DATASET, made.data)
    ladder = ladders.load(made, DATASET, index)
    (run,) = plan(ladder, index.hash, [method], protocol="demo", seeds=[seed], splits=[split],
                    overrides=Overrides.of(dict(text.split("=") for text in (*SMALL, *changes))))
    return run


def finished(folder: Path, wanted: dict[str, tuple[int, ...]]) -> Workspace:
    """A folder with finished runs of two steps: methods, each with its places on the ladder (0: the first rung)."""
    made = workspace(folder)
    rungs = ladders.load(made, DATASET).splits
    for method, places in wanted.items():
        changes = ("backbone=conv4", "epochs=1", "steps_per_epoch=2", "size=32", "resize=32", *TINY.get(method, ()))
        for place in places:
            worker.run(spec(made, method, *changes, split=rungs[place].id), context(made))
    return made


def context(made: Workspace) -> RunContext:
    return RunContext(DATASET, made.root, made.data)


def attempt(run: RunSpec, made: Workspace, die_at: int | None = None, terminate_at: int | None = None,
            threads: int = 1, saved: bool = False) -> None:
    """What another process does: the run, with SIGKILL or SIGTERM to itself at a step; exits as a worker does.

    `saved`: it dies once a checkpoint lies there, which a thread writes.
    """
    import torch

    torch.set_num_threads(threads)
    steps = iter(range(1, 10**9))

    with StopRequest() as request:
        def should_stop() -> bool:
            step = next(steps)
            if step == die_at:
                while saved and not list(run.folder(made).glob("checkpoint-*")):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            if step == terminate_at:
                os.kill(os.getpid(), signal.SIGTERM)
            return request.requested

        try:
            worker.run(run, context(made), should_stop=should_stop)
        except Interrupted:
            sys.exit(request.exit_code)


def process(*arguments: Any, **named: Any) -> Any:
    """`attempt` in a process of its own, forked from a server that has done the imports and nothing else."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["tests.tiny_runs"])
    child = server.Process(target=attempt, args=arguments, kwargs=named)
    child.start()
    return child


def results(folder: Path) -> Iterator[tuple[str, Any]]:
    """What must be the same to the bit, by name: weights, query outcomes, and the record less clock and machine."""
    record = json.loads((folder / "record.json").read_text())
    del record["cost"], record["provenance"]
    yield "record", record
    yield "weights", (folder / weights.RUN).read_bytes()
    with np.load(folder / "queries.npz") as queries:
        yield "queries", {name: queries[name].tolist() for name in queries.files}
