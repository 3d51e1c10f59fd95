"""From an image file to upright RGB bytes of the stored size, a chunk of images at a time, in several processes.

What these import is imported once in each of them: numpy and Pillow, nothing heavier.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from benchmark.datasets.index import DatasetIndex, upright
from benchmark.utils.errors import UserError
from benchmark.utils.files import disk_errors
from benchmark.utils.signals import block_signals
from reports.storage.processes import end_with_parent

SHORTER_SIDE = 256
"""What the shorter side of an image is brought to, unless a protocol looks at larger ones."""
CHUNK = 128
"""Images a piece of work: what is lost at most, for each process, when preparing is killed."""
Chunk = tuple[list[list[int]], np.ndarray, str]
"""Sizes and pixels of the images of a chunk, and the hash of these pixels, which takes as long as copying them."""


def stored_size(height: int, width: int, shorter: int = SHORTER_SIDE) -> tuple[int, int]:
    """The size at which an image is stored: torchvision's `Resize(256)`, but nothing is enlarged.

    >>> stored_size(512, 1000), stored_size(200, 900)
    ((256, 500), (200, 900))
    """
    if min(height, width) <= shorter:
        return height, width
    longer = int(shorter * max(height, width) / min(height, width))
    return (shorter, longer) if height <= width else (longer, shorter)


def decode(index: DatasetIndex, i: int, shorter: int = SHORTER_SIDE) -> tuple[np.ndarray, tuple[int, int]]:
    """Image i as it is stored, and the height and width of its original."""
    with opened(index, i) as file:
        image = upright(file)
    return shrunk(image, shorter), (image.height, image.width)


def shrunk(image: Image.Image, shorter: int = SHORTER_SIDE) -> np.ndarray:
    """The pixels of an upright image as they are stored."""
    height, width = stored_size(image.height, image.width, shorter)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image)


@contextmanager
def opened(index: DatasetIndex, i: int) -> Iterator[Image.Image]:
    """Image i, opened; whatever goes wrong with it becomes one line that names the file."""
    try:
        with index.open(i) as image:
            yield image
    # Pillow's readers raise whatever their parsers meet in a broken file: OSError, SyntaxError, struct.error, ...
    except Exception as error:
        path = index.paths[i] if index.root is None else index.root / index.paths[i]
        why = "no such file" if isinstance(error, FileNotFoundError) else str(error) or type(error).__name__
        why = re.sub(r" <_io\.BytesIO object at \w+>", "", why)  # bytes of a shard
        mended = "replace or remove it" if index.reference.startswith("folder:") else "put the original file back"
        remedy = "" if isinstance(error, UserError) else f"; {mended}"
        if isinstance(error, Image.DecompressionBombError):
            why, remedy = "it has more pixels than Pillow opens", "; save it smaller"
        lists = f"`oodml datasets check {shlex.quote(index.typed)}` lists all such files"
        raise UserError(f"cannot read image {path}: {why}{remedy} ({lists}), then run again: what is decoded already "
                        "is kept") from None


@contextmanager
def killed_processes(index: DatasetIndex) -> Iterator[None]:
    """Turns the sudden end of a process that decodes into one line that says what to do."""
    try:
        yield
    except (BrokenProcessPool, BrokenPipeError) as error:  # the latter where it was killed before it had begun
        from benchmark.utils.terminal import reader_gone  # not in the processes, where it is heavy

        if isinstance(error, BrokenPipeError) and reader_gone():
            raise
        raise UserError(f"a process that decodes images of '{index.name}' was killed, most likely for want of memory: "
                        f"`oodml datasets prepare {index.typed} --jobs 1` takes the least; what is decoded already is "
                        "kept") from None


def decode_all(index: DatasetIndex, starts: list[int], jobs: int, folder: Path, shorter: int) -> Iterator[Chunk]:
    """The chunks that begin at these images, in order, decoded in this process or in several, a few chunks ahead.

    Other processes hand their pixels over in files in `folder`: through a pipe they would pass by 64 kB at a time, and
    each time wait for whatever else this process does.
    """
    _clear(folder)  # of what a call left that was killed
    if jobs <= 1:
        yield from (_decode_chunk(index, start, shorter) for start in starts)
        return
    # A fresh interpreter for each process: forking one that has threads or a CUDA context can hang.
    with killed_processes(index), ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker,
                                                      (index, folder, shorter)) as pool:
        try:
            with block_signals(signal.SIGINT):
                ahead = deque(pool.submit(_work, start) for start in starts[:2 * jobs])
            for start in starts[2 * jobs:]:
                yield _received(*ahead.popleft().result())
                ahead.append(pool.submit(_work, start))
            while ahead:
                yield _received(*ahead.popleft().result())
        finally:
            pool.shutdown(cancel_futures=True)
            _clear(folder)


def _clear(folder: Path) -> None:
    for left in folder.glob("chunk-*"):
        left.unlink()


def _decode_chunk(index: DatasetIndex, start: int, shorter: int) -> Chunk:
    images, geometry = [], []
    for i in range(start, min(start + CHUNK, len(index))):
        pixels, original = decode(index, i, shorter)
        images.append(pixels.reshape(-1))
        geometry.append([*map(int, pixels.shape[:2]), *map(int, original)])
    data = np.concatenate(images)
    return geometry, data, hashlib.sha256(data.data).hexdigest()


_index: DatasetIndex
_folder: Path
_shorter: int


def _start_worker(index: DatasetIndex, folder: Path, shorter: int) -> None:
    global _index, _folder, _shorter
    _index, _folder, _shorter = index, folder, shorter
    end_with_parent()


def _work(start: int) -> tuple[list[list[int]], Path, str]:
    geometry, data, digest = _decode_chunk(_index, start, _shorter)
    path = _folder / f"chunk-{start}"
    with disk_errors(path), path.open("wb", buffering=0) as file:
        view = data.data
        while view:
            view = view[file.write(view):]
    return geometry, path, digest


def _received(geometry: list[list[int]], path: Path, digest: str) -> Chunk:
    data = np.memmap(path, np.uint8, "r")
    path.unlink()  # what is mapped stays until it is let go
    return geometry, data, digest
