"""Images a second of whole training loops, against the way that most published code trains."""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import methods
from benchmark.config import protocol
from benchmark.config.protocol import Protocol
from benchmark.data.loader import Loader
from benchmark.data.store import VERSION, ImageStore
from benchmark.data.task import Side
from benchmark.runs.ready import transform_of
from benchmark.training import train
from methods import Method
from methods.backbones import create
from methods.samplers import batches
from tests.bench import Row, seconds
from tests.bench.bench_data import Decoded, photographs

CLASSES = 100
AIM = 6500
"""Images a second of the whole loop with ResNet-50 on an H200."""
HEADS = {"s2sd": 6000, "diva": 5000}
"""The same for methods with several heads or a second network."""


def measure(device: str) -> Iterator[Row]:
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        yield from (_on_cpu if device == "cpu" else _on_gpu)(Path(folder), device)


def _on_cpu(folder: Path, device: str) -> Iterator[Row]:
    torch.set_num_threads(1)
    demo = protocol.load("demo", overrides={"epochs": "4", "steps_per_epoch": "12"})
    store = noise(folder / "store", 1280, 64, 64)
    photos = photographs(folder / "photos", 6 * demo.batch_size, height=64, width=64)
    ours = loop(store, "margin", demo, device, folder)
    yield Row(f"ConvNet, 32 px, batch {demo.batch_size}, margin, whole loop, one core", ours,
              reference(DataLoader(Decoded(photos, demo.size), demo.batch_size), "margin", demo, device, 6),
              "PIL loader, one loop of plain torch", 1, "images/s")
    images = torch.randn(56, 3, 64, 64).to(memory_format=torch.channels_last)
    own, plain = (seconds(partial(_pass, network.to(memory_format=torch.channels_last), images)) for network in
                  (create("efficientnet_lite0"), timm.create_model("tf_efficientnet_lite0", num_classes=0)))
    yield Row("EfficientNet-Lite0, 64 px, 56 images, forward and backward, one core", own, plain, "timm's network", 1)


def _pass(network: nn.Module, images: Tensor) -> None:
    network(images).square().mean().backward()


def _on_gpu(folder: Path, device: str) -> Iterator[Row]:
    store = noise(folder / "store", 6000, 256, 341)
    photos = photographs(folder / "photos", 4096)
    oodml = protocol.load("oodml", overrides={"epochs": "8", "compile": "yes"})
    peers = DataLoader(Decoded(photos, 224), oodml.batch_size, shuffle=True, num_workers=8, pin_memory=True,
                       drop_last=True)
    peer = reference(peers, "margin", oodml, device, 30)
    yield Row("ResNet-50, 224 px, batch 112, margin, whole loop", loop(store, "margin", oodml, device, folder), peer,
              "fp32, eager, PIL loader of 8 workers", AIM / peer, "images/s")
    for placement in ("host", "disk"):
        yield Row(f"the same, images on {placement}", loop(store, "margin", oodml, device, folder, placement), peer,
                  "fp32, eager, PIL loader of 8 workers", None, "images/s")
    exact = protocol.load("oodml", overrides={"epochs": "3", "compile": "no", "precision": "fp32"})
    yield Row("the same with --precision fp32 --no-compile", loop(store, "margin", exact, device, folder), peer,
              "fp32, eager, PIL loader of 8 workers", None, "images/s")
    for name, aim in HEADS.items():
        yield Row(f"{name} on ResNet-50, 224 px, batch 112, whole loop", loop(store, name, oodml, device, folder), aim,
                  "the aim", 1, "images/s")
    for name in ("curricularface", "puma"):
        tags = methods.get(name).tags
        uml = protocol.load("uml", tags=tags, overrides={"epochs": "10", "compile": "yes", "evaluate_every": "1"})
        yield Row(f"ViT-S/16, 224 px, batch 720, {name}, whole loop", loop(store, name, uml, device, folder),
                  unit="images/s")


def loop(store: ImageStore, name: str, own: Protocol, device: str, folder: Path, placement: str | None = None) -> float:
    """Images a second of `train.train`, with mining, logging and checkpoints but no evaluation: the median epoch."""
    torch.manual_seed(0)
    method = _built(name, own)
    labels = np.arange(len(store)) % CLASSES
    sampler = batches.create(own.batches or methods.get(name).batches, torch.from_numpy(labels), own.batch_size)
    place = Path(tempfile.mkdtemp(dir=folder))
    marks: list[float] = []

    def report(event: dict[str, Any]) -> None:
        if "test" in event:
            marks.append(_clock(device))

    history = train.train(method, train.TrainContext(
        Side(np.arange(len(store)), labels, tuple(map(str, range(CLASSES)))),
        Loader(store, transform_of(own, method), device, placement=placement), sampler, own, seed=0, device=device,
        folder=place, evaluate=lambda: {"test": {}}, report=report))
    start = json.loads((place / "log.jsonl").read_text().splitlines()[0])
    logging.getLogger(__name__).info("%s: %s", name, start)
    return history.images / len(marks) / statistics.median(np.diff(marks))


def reference(loader: DataLoader, name: str, own: Protocol, device: str, steps: int) -> float:
    """Images a second of the usual loop: decoded by Pillow, float32, nothing compiled, a plain optimiser."""
    torch.manual_seed(0)
    method = _built(name, own).to(device).train()
    optimiser = torch.optim.Adam(method.groups(own.lr, own.weight_decay), lr=own.lr)
    labels = torch.arange(own.batch_size, device=device) // 2
    seen, start = 0, 0.0
    for step, images in enumerate(loader):
        if step == 2:
            start = _clock(device)
        if step == steps:
            break
        loss = method.step(images.to(device, non_blocking=True), labels[:len(images)]).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss.item()
        seen += len(images) if step >= 2 else 0
    return seen / (_clock(device) - start)


def noise(folder: Path, count: int, height: int, width: int) -> ImageStore:
    """A store of random pixels, written without decoding anything."""
    folder.mkdir(parents=True)
    block = np.random.default_rng(0).integers(0, 256, (min(count, 256), height, width, 3), np.uint8).tobytes()
    size = height * width * 3
    with (folder / "pixels.bin").open("wb") as file:
        for start in range(0, count, 256):
            file.write(block[:min(256, count - start) * size])
    np.save(folder / "geometry.npy", np.tile(np.array([height, width] * 2, np.int32), (count, 1)))
    (folder / "store.json").write_text(json.dumps(
        {"version": VERSION, "nbytes": count * size, "hash": folder.name, "images": count, "chunk": 64, "pieces": []}))
    return ImageStore(folder)


def _built(name: str, own: Protocol) -> Method:
    return methods.get(name).build(create(own.backbone, frozen_norm=own.frozen_norm), CLASSES, own.dim)


def _clock(device: str) -> float:
    """CPU seconds of this process on the CPU; on a GPU wall time, once it has done everything."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()
