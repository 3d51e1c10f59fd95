"""A frozen network on every rung of a ladder: one embedding pass for all of them, against one for each.

Runs on glyphs-mini, or on the dataset that OODML_BENCH_DATASET names, whose ladder must be in the folder OODML_WORK.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmark import datasets, ladders
from benchmark.data import features, weights
from benchmark.data.loader import Loader
from benchmark.data.store import open_store
from benchmark.data.task import Task
from benchmark.data.transform import Transform
from benchmark.metrics.operating_points import survey
from benchmark.runs.scoring import score
from benchmark.utils.workspace import Workspace
from tests import bench, tiny_runs

PAIRS, DIM = 60_502, 512


def measure(device: str) -> Iterator[bench.Row]:
    """The ladder both ways, and all pairs of a test set as large as SOP's (on a CPU a tenth of it)."""
    yield _ladder(device)
    count = PAIRS if device != "cpu" else PAIRS // 10
    x = torch.nn.functional.normalize(torch.randn(count, DIM, device=device), dim=1)
    labels = np.arange(count) // 5
    took = bench.seconds(lambda: survey(x, labels), repeats=2, device=device)
    again = bench.seconds(lambda: score(_side(labels), x), repeats=2, device=device)
    yield bench.Row(f"what records keep of all pairs, {count:,} x {DIM}", took, again, "all measures of retrieval")


def _side(labels: np.ndarray) -> object:
    from benchmark.data.task import Side

    return Side(np.arange(len(labels)), labels, tuple(map(str, range(int(labels.max()) + 1))))


def _ladder(device: str) -> bench.Row:
    dataset, backbone = os.environ.get("OODML_BENCH_DATASET", "glyphs-mini"), "efficientnet_lite0"
    scratch = Path(tempfile.mkdtemp())
    try:
        mini = dataset == "glyphs-mini"
        made = tiny_runs.workspace(scratch) if mini else Workspace.at(Path(os.environ["OODML_WORK"]))
        index = datasets.load(dataset, made.data)
        ladder, store = ladders.load(made, dataset, index), open_store(index, made.cache)
        network = weights.pretrained(backbone)
        size, resize = (64, 64) if mini else (224, 256)
        transform = Transform(size=size, resize=resize, mean=network.mean, std=network.std)  # type: ignore[arg-type]
        tasks = [Task.of(index, split) for split in ladder.splits]

        def scored(task: Task, vectors: torch.Tensor) -> None:
            score(task.test, torch.nn.functional.normalize(vectors, dim=1).to(device), task.domain_names)

        warm = Loader(store, transform, device, placement="disk")
        with features._frozen(network, warm.device) as forward:
            forward(warm.evaluate(torch.arange(8)))
        began = time.perf_counter()
        kept = features.extract(index, store, network, name=backbone, weights_hash="bench", transform=transform,
                                folder=scratch, device=device, progress=False)
        for task in tasks:
            scored(task, torch.from_numpy(kept[task.test.ids]))
        once = time.perf_counter() - began
        began = time.perf_counter()
        loader = Loader(store, transform, device, placement="disk")
        with features._frozen(network, loader.device) as forward:
            for task in tasks:
                for side in (task.train, task.test):  # a record has the structure of both
                    batches = torch.from_numpy(side.ids).split(512 if device != "cpu" else 256)
                    vectors = torch.cat([forward(images).cpu() for _, images in loader.prefetch(batches)])
                scored(task, vectors)
        each = time.perf_counter() - began
        return bench.Row(f"frozen {backbone} on {len(tasks)} rungs of {dataset}", once, each,
                         "both sides embedded for each rung")
    finally:
        shutil.rmtree(scratch)
