"""Images a second, ready for training, against a DataLoader that decodes with Pillow and crops with torchvision."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmark.data.features import extract
from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, open_store
from benchmark.data.transform import IMAGENET_MEAN, IMAGENET_STD, Transform
from benchmark.datasets.index import DatasetIndex
from tests.bench import Row, seconds

BATCH = 112
DISTINCT = 256
"""Pictures drawn; the rest are copies of their files, which cost as much to decode."""


def measure(device: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from (_on_cpu if device == "cpu" else _on_gpu)(Path(folder), device)


def _on_cpu(folder: Path, device: str) -> Iterator[Row]:
    photos = photographs(folder / "photos", 336)
    store = open_store(photos, folder, jobs=1, progress=False)
    peer = _rate(lambda: _drain(DataLoader(Decoded(photos, 224), BATCH)), len(photos))
    yield Row("training batches at 224 px, one core", _training(store, Transform(), device), peer,
              "PIL + torchvision DataLoader", 5, "images/s")
    yield Row("evaluation batches at 224 px, one core", _evaluation(store, Transform(), device), peer,
              "PIL + torchvision DataLoader (training)", 5, "images/s")
    small = photographs(folder / "small", 1120, height=64, width=64)
    tiny = Transform(size=32, resize=36)
    peer = _rate(lambda: _drain(DataLoader(Decoded(small, 32), BATCH)), len(small))
    kept = open_store(small, folder, jobs=1, progress=False)
    yield Row("training batches, 64 to 32 px, one core", _training(kept, tiny, device), peer,
              "PIL + torchvision DataLoader", 5, "images/s")
    yield Row("evaluation batches, 64 to 32 px, one core", _evaluation(kept, tiny, device), peer,
              "PIL + torchvision DataLoader (training)", None, "images/s")


def _on_gpu(folder: Path, device: str) -> Iterator[Row]:
    import timm

    photos = photographs(folder / "photos", 8192)
    start = time.perf_counter()
    store = open_store(photos, folder, progress=False)
    yield Row("decoding once, all cores", len(photos) / (time.perf_counter() - start), unit="images/s")
    peers = {}
    for workers in (8, 16):
        batches = DataLoader(Decoded(photos, 224), BATCH, shuffle=True, num_workers=workers, pin_memory=True,
                             persistent_workers=True)
        peers[workers] = _rate(lambda b=batches: _drain(images.to(device, non_blocking=True) for images in b),
                               len(photos), device, repeats=1)
    for placement in ("device", "host", "disk"):
        for workers, peer in peers.items():
            rate = _training(store, Transform(), device, placement, batches=400)
            yield Row(f"training batches at 224 px, cache on {placement}", rate, peer,
                      f"PIL DataLoader, {workers} workers", 24 if placement == "device" else None, "images/s")
    yield Row("training batches at 224 px with jitter, cache on device",
              _training(store, Transform.named("adv"), device, "device", batches=100), peers[16],
              "PIL DataLoader without jitter, 16 workers", None, "images/s")
    yield Row("evaluation batches at 224 px, cache on device", _evaluation(store, Transform(), device), unit="images/s")

    network = timm.create_model("resnet50", pretrained=False, num_classes=0)
    bare = _bare(network.to(device).to(memory_format=torch.channels_last).eval(), device)
    yield Row("ResNet-50 features, decoded images to file", _extraction(photos, store, network, folder, device), bare,
              "the network alone", 0.75, "images/s")


class Decoded(Dataset):
    """What most published code does: open, convert, crop and resize with Pillow for each image and epoch."""

    def __init__(self, index: DatasetIndex, size: int) -> None:
        from torchvision import transforms as T

        self.index = index
        self.transform = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor(),
                                    T.Normalize(IMAGENET_MEAN, IMAGENET_STD)])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Tensor:
        return self.transform(self.index.open(i).convert("RGB"))


def photographs(root: Path, count: int, height: int = 375, width: int = 500) -> DatasetIndex:
    """JPEG files with the size and about the weight of photographs (noise at several scales)."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = tuple(f"{k:05d}.jpg" for k in range(count))
    for path in paths[:DISTINCT]:
        layers = [np.asarray(Image.fromarray(rng.integers(0, 256, (n * 3 // 4 + 1, n + 1, 3), np.uint8))
                             .resize((width, height), Image.Resampling.BICUBIC), np.float32) for n in (4, 16, 64)]
        pixels = np.average(layers, axis=0, weights=(4, 2, 1))
        Image.fromarray(pixels.astype(np.uint8)).save(root / path, quality=90)
    for k, path in enumerate(paths[DISTINCT:]):
        shutil.copyfile(root / paths[k % DISTINCT], root / path)
    labels = np.arange(count) % 2
    return DatasetIndex(root.name, paths, ("a", "b"), labels, ("a",), ("b",), root=root)


def _training(store: ImageStore, transform: Transform, device: str, placement: str | None = None,
              batches: int = 0) -> float:
    loader = Loader(store, transform, device, placement=placement)
    order = torch.randperm(len(store), generator=torch.Generator().manual_seed(0)).split(BATCH)
    chosen = list(islice(cycle(b for b in order if len(b) == BATCH), batches or len(order)))

    def work() -> None:
        if device == "cpu":
            _drain(loader.train(ids, torch.Generator().manual_seed(k)) for k, ids in enumerate(chosen))
        else:
            _drain(loader.prefetch(chosen, torch.Generator().manual_seed))

    return _rate(work, BATCH * len(chosen), device)


def _evaluation(store: ImageStore, transform: Transform, device: str) -> float:
    loader = Loader(store, transform, device)
    batches = torch.arange(len(store)).split(256)
    return _rate(lambda: _drain(loader.evaluate(ids) for ids in batches), len(store), device)


def _extraction(index: DatasetIndex, store: ImageStore, network: torch.nn.Module, folder: Path, device: str) -> float:
    trial = iter(range(100))

    def work() -> None:
        extract(index, store, network, name="resnet50", weights_hash=str(next(trial)), transform=Transform(),
                folder=folder, device=device, progress=False)

    return _rate(work, len(index), device)


@torch.inference_mode()
def _bare(network: torch.nn.Module, device: str) -> float:
    images = torch.randn(256, 3, 224, 224, device=device).to(memory_format=torch.channels_last)

    def work() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            for _ in range(16):
                network(images)

    return _rate(work, 16 * 256, device)


def _rate(work: Any, count: int, device: str = "cpu", repeats: int = 3) -> float:
    return count / seconds(work, repeats, device)


def _drain(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass
