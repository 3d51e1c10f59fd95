"""Batches: from the decoded images to normalised network input on the training device."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.data.colour import colour, normalise
from benchmark.data.crops import Crops, center_crops, random_crops, uniforms
from benchmark.data.resample import by_matrix, one_by_one, slack
from benchmark.data.store import ImageStore
from benchmark.data.transform import Transform
from benchmark.utils.errors import UserError
from reports.wording import byte_size, counted

log = logging.getLogger(__name__)

_BLOCK = 1 << 28
"""Bytes that go from the memory map to a GPU, or into pinned memory, in one go."""
WHOLE = slice(None)
"""Every image of a batch: the share of a run on one device."""
KEPT = 1 << 28
"""Bytes of small evaluation images that a process on the CPU keeps after resizing them once."""
PIXELS = 1 << 21
"""Pixels of a batch without gradients on a CPU: two cores embed 44 images/s of 224 px by EfficientNet-Lite0 in batches
of 32, with 1.3 GB, and 31 in batches of 512, with 7.8 GB."""
_resident: dict[tuple[str, str, str], Tensor] = {}
"""Pixels in device or pinned memory: those of the latest store stay for the next loaders of the same."""


class Loader:
    """Training and evaluation batches of one store on one device.

    `placement` says where the bytes lie. On CUDA: 'device' if they fit in `memory_share` of the free GPU memory, else
    'host' if they fit in that share of the free main memory (pinned; each batch is copied over), else 'disk' (read
    from the memory-mapped file as needed). On the CPU the file is read through its memory map, 'host' or
    'disk' by whether main memory can hold it. A batch is the same for each of them.
    """

    def __init__(self, store: ImageStore, transform: Transform, device: str | torch.device = "cpu",
                 memory_share: float = 0.5, placement: str | None = None) -> None:
        self.store, self.transform = store, transform
        self.device = torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.memory_share = memory_share
        self.free_device = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else 0
        self.free_host = _free_memory()
        self.placement = placement or self._choose()
        if self.placement not in ("device", "host", "disk"):
            raise UserError(f"unknown placement '{placement}': use device, host or disk")
        if self.placement == "device" and self.device.type != "cuda":
            raise UserError(f"placement 'device' needs a CUDA device, not {self.device}: use host or disk")
        self._slack = slack(store.sizes[:, 1])
        self._pixels = self._place()
        log.info(self.describe())

    def describe(self) -> str:
        """Where the images lie and why, in one line of numbers."""
        gpu = f"{byte_size(self.free_device)} free on {self.device}, " if self.device.type == "cuda" else ""
        return (f"{counted(len(self.store), 'image')}, {byte_size(self.store.nbytes)}: kept on {self.placement} ({gpu}"
                f"{byte_size(self.free_host)} free in main memory, share {self.memory_share:g})")

    @property
    def at_once(self) -> int:
        """Images of a batch without gradients.

        On a GPU 512 of any size above 112 px, so that a batch at 448 px takes four times the memory of one at 224 px;
        of smaller ones 512 times (224 // size)^2, which is 4,608 at 64 px. On a CPU as many as have `PIXELS` pixels in
        all, from 1 to 512: 41 at 224 px and 10 at 448 px.
        """
        if self.device.type == "cuda":
            return 512 * max(1, (224 // self.transform.size) ** 2)
        return min(512, max(1, PIXELS // self.transform.size**2))

    def train(self, ids: Tensor, generator: torch.Generator, share: slice = WHOLE) -> Tensor:
        """Augmented images, float32 (b, 3, size, size), random only through the CPU generator given.

        Of a `share` of the batch alone they are the same as in the whole batch.
        """
        chosen = _positions(ids, len(self.store))
        draws = uniforms(len(chosen), generator)[share]
        chosen = chosen[share]
        crops = random_crops(self.transform, self.store.sizes[chosen], self.store.originals[chosen], draws)
        images = self._cut(chosen, crops, exact=False)
        if any(self.transform.jitter) or self.transform.grayscale:
            images = colour(images.float().div_(255), self.transform, draws).mul_(255)
        return normalise(images, self.transform)

    def evaluate(self, ids: Tensor) -> Tensor:
        """Images as `Resize(resize)`, `CenterCrop(size)` give them, float32 (b, 3, size, size)."""
        chosen = _positions(ids, len(self.store))
        if self.device.type == "cpu" and len(self.store) * 3 * self.transform.size ** 2 <= KEPT:
            return normalise(self._kept(chosen), self.transform)
        return normalise(self._center(chosen), self.transform)

    def prefetch(self, batches: Iterable[Tensor], generator_for_batch: Callable[[int], torch.Generator] | None = None,
                 ahead: int = 2, views: int = 1, thread: bool = True,
                 share: slice = WHOLE) -> Generator[tuple[Tensor, Tensor], None, None]:
        """Pairs of ids and images, made `ahead` batches early in a thread, on CUDA in a stream of its own.

        `generator_for_batch(k)` gives the generator of the k-th batch, a new one each time, so that a batch does not
        depend on how far ahead others were made; without it the images are those of evaluation. With several
        `views` a batch is that many augmentations of the same images, (views, b, 3, size, size). Without `thread`
        only the ids are taken early, so that whoever gives them cannot tell the difference. Of a training batch only
        its `share` is made.
        """
        stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" and thread else None
        waiting: deque[tuple[Tensor, Callable[[], tuple[Tensor, Any]]]] = deque()

        def make(ids: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Any]:
            with torch.no_grad(), torch.cuda.stream(stream) if stream else nullcontext():
                if generator is None:
                    images = self.evaluate(ids)
                elif views == 1:
                    images = self.train(ids, generator, share)
                else:
                    images = torch.stack([self.train(ids, generator, share) for _ in range(views)])
                return images, stream.record_event() if stream else None

        def ready() -> tuple[Tensor, Tensor]:
            ids, made = waiting.popleft()
            images, event = made()
            if event is not None:
                torch.cuda.current_stream(self.device).wait_event(event)
                images.record_stream(torch.cuda.current_stream(self.device))
            return ids, images

        pool = ThreadPoolExecutor(1)
        try:
            for k, ids in enumerate(batches):
                generator = generator_for_batch(k) if generator_for_batch else None
                made = pool.submit(make, ids, generator).result if thread else partial(make, ids, generator)
                waiting.append((ids, made))
                if len(waiting) > ahead:
                    yield ready()
            while waiting:
                yield ready()
        finally:
            pool.shutdown(cancel_futures=True)

    def _center(self, chosen: np.ndarray) -> Tensor:
        return self._cut(chosen, center_crops(self.transform, self.store.sizes[chosen], self.store.originals[chosen]),
                         exact=True)

    def _kept(self, chosen: np.ndarray) -> Tensor:
        """Evaluation images in bytes; resizing them takes a fifth of the time of a small network."""
        pixels, there = _resized(self.store.hash, len(self.store), self.transform.size, self.transform.resize,
                                 self.transform.interpolation)
        missing = chosen[~there[chosen]]
        if len(missing):
            pixels[missing] = self._center(missing).numpy()
            there[missing] = True
        return torch.from_numpy(pixels[chosen])

    @torch.no_grad()
    def _cut(self, ids: np.ndarray, crops: Crops, exact: bool) -> Tensor:
        """The crops in [0, 255]: bytes, or half precision where a GPU resamples them."""
        size, how = self.transform.size, self.transform.interpolation
        widths = self.store.sizes[ids, 1].astype(np.int64)
        if self.device.type == "cuda":
            pixels, starts = self._on_device(ids)
            return by_matrix(pixels, starts, widths, crops, size, how)
        begin = self.store.offsets[ids]
        return one_by_one(self.store.pixels, begin, widths, crops, size, how, exact).to(self.device)

    def _on_device(self, ids: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Bytes on the device that hold these images, and where each begins in them."""
        begin, end = self.store.offsets[ids], self.store.offsets[ids + 1]
        if self.placement == "device":
            return self._pixels, begin
        starts = np.concatenate([[0], np.cumsum(end - begin)])
        batch = torch.empty(int(starts[-1]) + self._slack, dtype=torch.uint8, pin_memory=self.placement == "disk",
                            device="cpu" if self.placement == "disk" else self.device)
        # Neighbours in the file travel as one piece.
        breaks = np.flatnonzero(np.diff(ids) != 1) + 1
        for first, last in zip([0, *breaks], [*breaks, len(ids)]):
            batch[starts[first]:starts[last]].copy_(self._pixels[begin[first]:end[last - 1]], non_blocking=True)
        return batch.to(self.device, non_blocking=True), starts[:-1]

    def _choose(self) -> str:
        # Pinned memory is handed out in powers of two.
        on_host = self.store.nbytes if self.device.type != "cuda" else 1 << (self.store.nbytes - 1).bit_length()
        if self.store.nbytes <= self.memory_share * self.free_device or self._key("device") in _resident:
            return "device"
        return "host" if on_host <= self.memory_share * self.free_host else "disk"

    def _key(self, placement: str) -> tuple[str, str, str]:
        return str(self.store.folder.resolve()), self.store.hash, f"{placement} {self.device}"

    def _place(self) -> Tensor:
        source = torch.from_numpy(self.store.pixels)
        if self.device.type != "cuda" or self.placement == "disk":
            return source
        key = self._key(self.placement)
        kept = _resident.get(key)
        if kept is None:
            on_device = self.placement == "device"
            kept = torch.empty(self.store.nbytes + (self._slack if on_device else 0), dtype=torch.uint8,
                               pin_memory=not on_device, device=self.device if on_device else "cpu")
            for start in range(0, self.store.nbytes, _BLOCK):
                part = source[start:start + _BLOCK]
                kept[start:start + len(part)].copy_(part)
            _resident.clear()
            _resident[key] = kept
        return kept


@lru_cache(maxsize=2)
def _resized(store: str, count: int, size: int, resize: int, interpolation: str) -> tuple[np.ndarray, np.ndarray]:
    """Room for the evaluation images of one store (memory is taken as they come), and which of them are there."""
    return np.zeros((count, 3, size, size), np.uint8), np.zeros(count, bool)


def _positions(ids: Tensor, count: int) -> np.ndarray:
    positions = ids.cpu().numpy().astype(np.int64)
    if len(positions) and not 0 <= positions.min() <= positions.max() < count:
        raise IndexError(f"image ids must lie in 0..{count - 1}, got {positions.min()}..{positions.max()}")
    return positions


def _free_memory() -> int:
    """Bytes of main memory that can be used without swapping."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
