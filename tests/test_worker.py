"""One cell: what its record says, by which rules, and how failures are named."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmark import datasets
from benchmark.config import protocol
from benchmark.data.augment import Transform
from benchmark.data.task import Side
from benchmark.datasets.index import DatasetIndex
from benchmark.metrics.clustering import KMEANS
from benchmark.runs import cell, worker
from benchmark.training.meter import Diverged
from benchmark.training.train import History
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from tests import tiny_runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return tiny_runs.workspace(tmp_path_factory.mktemp("work"))


def run(made: Workspace, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    spec = tiny_runs.spec(made, *words)
    worker.run(spec, tiny_runs.context(made))
    folder = spec.folder(made)
    return records.read(folder), [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_all_three_rules_in_one_run(made: Workspace) -> None:
    record, log = run(made, "margin", "validation=true", "evaluate_every=1")
    assert set(record["scores"]) == set(record["chosen_epochs"]) == {"last", "best-test", "validation"}
    curve = {entry["epoch"]: entry["recall@1"] for entry in record["curve"]}
    assert record["chosen_epochs"]["last"] == 4
    assert record["scores"]["best-test"]["recall@1"] == max(curve.values())
    for rule, epoch in record["chosen_epochs"].items():
        assert record["scores"][rule]["recall@1"] == curve[epoch]
    held = {line["epoch"]: line["validation"]["recall@1"] for line in log if line["event"] == "epoch"}
    assert held[record["chosen_epochs"]["validation"]] == max(held.values())
    assert log[-1]["chosen_epochs"] == record["chosen_epochs"]


@pytest.mark.parametrize("when", ["last", "every", "no"])
def test_clusters_are_measured_when_the_protocol_says(made: Workspace, when: str) -> None:
    record, log = run(made, "margin", f"clustering={when}", "evaluate_every=1")
    entries = {line["epoch"]: line["test"] for line in log if line["event"] == "epoch"}
    assert [epoch for epoch, scores in entries.items() if "nmi" in scores] == ([1, 2, 3, 4] if when == "every" else [])
    for rule, epoch in record["chosen_epochs"].items():
        assert ("nmi" in record["scores"][rule]) == (when == "every" or (when == "last" and epoch == 4))
        assert ("f1" in record["scores"][rule]) == ("nmi" in record["scores"][rule])
    assert record["provenance"]["kmeans"] == (None if when == "no" else KMEANS)


def test_by_default_all_classes_train_and_nothing_is_chosen_by_validation(made: Workspace) -> None:
    record, log = run(made, "margin")
    assert set(record["scores"]) == {"last", "best-test"}
    assert record["cost"]["precision"] == "fp32"
    assert record["cost"]["steps"] == 12
    assert [line["event"] for line in log] == ["start", *["epoch"] * 4, "end"]


def test_equal_scores_choose_the_earlier_epoch() -> None:
    history = History([{"epoch": e, "test": {"recall@1": r}} for e, r in ((1, 0.2), (2, 0.6), (3, 0.6), (4, 0.1))])
    scores, chosen = worker.choose(history)
    assert chosen == {"last": 4, "best-test": 2}
    assert scores == {"last": {"recall@1": 0.1}, "best-test": {"recall@1": 0.6}}


def test_few_images_of_every_training_class() -> None:
    index: DatasetIndex = datasets.load(tiny_runs.DATASET, None)
    side = Side.of(index, index.train_classes)
    for shots in (1, 5, 100):
        few = worker.few(side, index, shots)
        counts = np.bincount(few.labels, minlength=len(side.classes))
        assert counts.tolist() == np.minimum(np.bincount(side.labels), shots).tolist()
        assert (index.labels[few.ids] == index.labels[side.ids[np.searchsorted(side.ids, few.ids)]]).all()
        assert few.classes == side.classes
    assert set(worker.few(side, index, 1).ids) <= set(worker.few(side, index, 5).ids)


def test_scale_and_flip_are_the_augmentations_unless_given() -> None:
    method: Any = SimpleNamespace(backbone=SimpleNamespace(mean=(0.5,) * 3, std=(0.5,) * 3))
    base = protocol.load("oodml")
    assert worker.transform_of(base, method).scale == Transform().scale
    assert worker.transform_of(replace(base, augmentation="red"), method).crop == "plain"
    changed = worker.transform_of(replace(base, scale=(0.5, 1.0), flip=0.0, interpolation="bicubic"), method)
    assert (changed.scale, changed.flip, changed.interpolation) == ((0.5, 1.0), 0.0, "bicubic")
    big = worker.transform_of(protocol.load("oodml", overrides={"augmentation": "big"}), method)
    assert (big.size, big.resize) == (256, 256)


def stepped(error: Exception, step: int) -> Exception:
    error.step = step  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(("error", "cause", "remedy"), [
    (Diverged("the loss is nan in epoch 2, at step 9"), "the loss is nan", "lr="),
    (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"), "GPU ran out of memory", "batch_size="),
    (MemoryError(), "main memory ran out", "batch_size="),
    (RuntimeError("[enforce fail] CPUAllocator: can't allocate memory: you tried 9 bytes"), "main memory", "--jobs"),
    (OSError(28, "No space left on device"), "the disk is full", "free some space"),
    (RuntimeError("Error while serializing: No space left on device (os error 28)"), "disk is full", "--work"),
    (RuntimeError("CUDA error: device-side assert\nmore"), "the GPU failed: CUDA error: device-side assert", "again"),
    (UserError("no weights for resnet50: give them"), "no weights for resnet50", ""),
    (KeyError("margin"), "KeyError: 'margin'", ""),
    (ValueError(), "ValueError", ""),
])
def test_a_failure_names_cause_remedy_kind_and_step(error: Exception, cause: str, remedy: str) -> None:
    found = cell.failure_of(stepped(error, 7))
    assert cause in found["cause"]
    assert remedy in found["remedy"]
    assert (found["kind"], found["step"]) == (type(error).__name__, 7)
    assert cell.failure_of(type(error)("x"))["step"] is None
