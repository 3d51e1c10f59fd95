"""Batches beyond memory (`micro_batch`), beside small ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmark.config import protocol
from tests.bench import Row
from tests.bench.bench_train import loop, noise

LARGE = 4096


def measure(device: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from (_on_cpu if device == "cpu" else _on_gpu)(Path(folder), device)


def _on_cpu(folder: Path, device: str) -> Iterator[Row]:
    torch.set_num_threads(1)
    store = noise(folder / "store", 512, 64, 64)
    shape = {"backbone": "resnet18", "size": "64", "resize": "64", "epochs": "4", "evaluate_every": "1",
             "steps_per_epoch": "2"}
    small = protocol.load("oodml", overrides={**shape, "batch_size": "32"})
    large = protocol.load("oodml", overrides={**shape, "batch_size": "128", "micro_batch": "32"})
    yield Row("ResNet-18, 64 px, batch 128 in pieces of 32", loop(store, "multisimilarity", large, device, folder),
              loop(store, "multisimilarity", small, device, folder), "batch 32", 0.7, "images/s")


def _on_gpu(folder: Path, device: str) -> Iterator[Row]:
    store = noise(folder / "store", 2 * LARGE, 256, 341)
    many = {"epochs": "6", "compile": "yes", "evaluate_every": "1"}
    plain = loop(store, "multisimilarity", protocol.load("oodml", overrides=many), device, folder)
    yield Row("ResNet-50, 224 px, batch 112, multisimilarity", plain, unit="images/s")
    for size in (128, 256, 512):
        large = protocol.load("oodml", overrides={**many, "batch_size": str(LARGE), "micro_batch": str(size),
                                                  "batches": "random"})
        torch.cuda.reset_peak_memory_stats()
        taken = loop(store, "multisimilarity", large, device, folder)
        yield Row(f"the same, batch {LARGE:,} in pieces of {size}", taken, plain, "batch 112", 0.7, "images/s")
        yield Row("  its peak GPU memory", torch.cuda.max_memory_allocated() / 1e9, against="aim: under 20 GB",
                  unit="GB")
