"""Pictures for tests: drawn from numbers, without torch, so that processes that decode them start quickly."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmark.datasets.index import DatasetIndex


def picture(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    """Something with both smooth and fine structure."""
    layers = [np.asarray(Image.fromarray(rng.integers(0, 256, (n, n, 3), np.uint8)).resize((width, height)), float)
              for n in (3, 9, 40)]
    return Image.fromarray(np.mean(layers, axis=0).astype(np.uint8))


def index_of(root: Path, name: str = "toy") -> DatasetIndex:
    """All files of a folder, in order of their names, as one class."""
    paths = tuple(sorted(p.name for p in root.iterdir()))
    return DatasetIndex(name, paths, ("a",), np.zeros(len(paths), int), ("a",), (), root=root)


class Drawing:
    """Draws image i, slowly if asked to, and counts."""

    def __init__(self, pause: float = 0.0, height: int = 20, width: int = 30) -> None:
        self.pause, self.height, self.width = pause, height, width
        self.count = 0

    def __call__(self, i: int) -> Image.Image:
        time.sleep(self.pause)
        self.count += 1
        return picture(np.random.default_rng(i), self.height, self.width)


class Fatal(Drawing):
    """Ends each process beside the first that draws image 200, as a system that runs out of memory does."""

    def __call__(self, i: int) -> Image.Image:
        if i == 200 and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(i)


def drawn(count: int, drawing: Drawing | None = None) -> DatasetIndex:
    """A dataset of drawings."""
    paths = tuple(f"{k}.png" for k in range(count))
    return DatasetIndex("drawn", paths, ("a",), np.zeros(count, int), ("a",), (), opener=drawing or Drawing())


def prepare_slowly(count: int, folder: Path) -> None:
    """Decodes `drawn(count)`, slowly; for processes that are killed or run side by side."""
    from benchmark.data.store import open_store

    open_store(drawn(count, Drawing(pause=0.002)), folder, jobs=1, progress=False)


def photos(root: Path) -> Path:
    """A new folder with photographs of many sizes."""
    rng = np.random.default_rng(0)
    root.mkdir()
    for k, (height, width) in enumerate([(300, 451), (513, 290), (64, 64), (100, 700), (256, 256), (257, 1100)]):
        picture(rng, height, width).save(root / f"{k}.JPG", quality=92)
    return root
