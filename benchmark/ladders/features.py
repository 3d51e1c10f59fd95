"""The features of a frozen network that ladders are built from: the network is loaded while images are decoded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmark import datasets
from benchmark.datasets import DatasetIndex
from benchmark.utils.devices import best_device
from benchmark.utils.phases import timed
from benchmark.utils.workspace import Workspace
from splits.frechet import frechet_distance

TURN = 1e-4
"""Seconds after which a thread lets another one run; with Python's own 5 ms, one that waits for files many times would
wait for the imports of another each time."""


def frozen_features(name: str, workspace: Workspace, backbone: str | None = None, weights_file: str | None = None,
                    device: str | None = None) -> tuple[DatasetIndex, np.ndarray, dict[str, Any]]:
    """Index, pooled features of every image, and what these were made with.

    The Fréchet ResNet distance uses ResNet-50 at 224 px; embedded datasets use the embedded network at 64 px.
    """
    from benchmark.data.store import open_store

    embedded = datasets.get(name).embedded
    with timed("read the index"):
        index = datasets.load(name, workspace.data)
    backbone = backbone or ("efficientnet_lite0" if embedded else "resnet50")
    size, resize = (64, 64) if embedded else (224, 256)
    # Importing torch and timm, reading weights and starting a GPU take as long as decoding ten thousand photographs.
    with _thread() as thread, _short_turns():
        loading: Future[Any] | None = None

        def load() -> None:
            """Begins while other processes decode, and tells mistakes in the options now and not after an hour of it.

            Not before: files are hashed in this process, and imports beside that make it take three times as long.
            """
            nonlocal loading
            if loading is None:
                loading = thread.submit(_load, backbone, weights_file, device, (min(512, len(index)), 3, size, size))
            elif loading.done():
                loading.result()

        store = open_store(index, workspace.cache, between=load)
        load()
        assert loading is not None
        network, weights_hash, device = loading.result()
    from benchmark.data import features
    from benchmark.data.transform import Transform

    transform = Transform(size=size, resize=resize, mean=network.mean, std=network.std)
    made_with: dict[str, Any] = {
        "backbone": backbone, "weights": weights_hash, "images": store.hash, "size": size, "resize": resize,
        **({"contents": store.contents} if store.contents else {})}
    with timed("features"):
        vectors = features.extract(index, store, network, name=backbone, weights_hash=weights_hash,
                                   transform=transform, folder=workspace.cache, device=device)
    return index, vectors, made_with


def _load(backbone: str, weights_file: str | None, device: str | None,
          images: tuple[int, ...]) -> tuple[Any, str, str]:
    """The network with its weights, their hash and the device, on which everything is ready."""
    with timed("import torch"):
        import torch

        from benchmark.data import features, weights
    device = best_device(device)
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(_start, device)
        with timed("import timm, read the weights"), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)  # a network without weights is drawn, and must be the same each time
            network = weights.pretrained(backbone, weights_file)
            found = weights.identify(backbone, weights_file)
        started.result()
    if device != "cpu":
        with timed("first batch"):
            features.warm_up(network, images, device)
    return network, found, device


def _start(device: str) -> None:
    """Starts a GPU and has it load what distances need, some seconds in which Python imports."""
    import torch

    if device != "cpu":
        with timed(f"start {device}"):
            vectors = torch.randn(256, 64, device=device, generator=torch.Generator(device).manual_seed(0))
            frechet_distance(vectors[:128], vectors[128:])


@contextmanager
def _thread() -> Iterator[ThreadPoolExecutor]:
    """A thread that nobody waits for who has met an error, or was stopped, meanwhile."""
    thread = ThreadPoolExecutor(1)
    try:
        yield thread
    finally:
        thread.shutdown(wait=False)


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
