"""Decode once: every image of a dataset as upright RGB bytes in one memory-mapped file.

An image is decoded as Pillow does it, turned upright (EXIF), converted to RGB, and its shorter side brought to
256 pixels with Pillow's antialiased bilinear filter: exactly torchvision's `Resize(256)`, so that evaluation at that
size needs no resampling at all. A protocol that resizes to more than 256 has a store of its own, of that side. A
protocol's own filter (bicubic) comes after this one: evaluation of an image that was shrunk here is bilinear whatever
it names. An image whose shorter side is smaller is kept as it is. Images keep their own aspect ratio and the size of
the original is stored beside them, so random crops can be drawn by the law of the original's geometry.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.data import contents
from benchmark.data.decoding import CHUNK, SHORTER_SIDE, decode, decode_all, opened, stored_size
from benchmark.datasets.index import DatasetIndex
from benchmark.utils.errors import NoRoom, UserError
from benchmark.utils.files import GrowingFile, alone, disk_errors, write_json
from benchmark.utils.phases import timed
from benchmark.utils.processors import cores
from reports.wording import byte_size

VERSION = 1
"""Of the files of a store; one of another version is not read."""
SAMPLE = 32
"""Images that are held against those of an earlier version."""


class ImageStore:
    """The decoded images of one dataset, read through a memory map. Pickles as its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            self.facts: dict[str, Any] = json.loads((self.folder / "store.json").read_text())
            self.geometry: np.ndarray = np.load(self.folder / "geometry.npy")
        except Exception:  # numpy answers damaged bytes with a dozen kinds of errors, EOFError among them
            raise UserError(f"no decoded images in {self.folder}, or damaged ones: delete that folder, and the next "
                            "run decodes them anew") from None
        if not self._sound():
            raise UserError(f"the decoded images in {self.folder} are damaged or of another version: delete that "
                            "folder, and the next run decodes them anew")

    def _sound(self) -> bool:
        """Whether the three files are of this version and fit together."""
        pixels, facts = self.folder / "pixels.bin", self.facts
        if not isinstance(facts, dict) or facts.get("version") != VERSION or not pixels.is_file():
            return False
        if self.geometry.ndim != 2 or self.geometry.shape[1] != 4 or self.geometry.dtype.kind not in "iu":
            return False
        whole = isinstance(facts.get("hash"), str) and isinstance(facts.get("pieces"), list) and facts.get("chunk")
        size = pixels.stat().st_size
        return bool(whole) and size == facts.get("nbytes") == int(self.offsets[-1]) and bool((self.geometry > 0).all())

    def __len__(self) -> int:
        return len(self.geometry)

    def __reduce__(self) -> tuple[type[ImageStore], tuple[Path]]:
        return type(self), (self.folder,)

    @property
    def hash(self) -> str:
        """SHA-256 of the content: every pixel and every size, in order."""
        return self.facts["hash"]

    @property
    def contents(self) -> str:
        """The hash of the files that they were decoded from; '' where they were drawn."""
        return self.facts.get("contents", "")

    @property
    def nbytes(self) -> int:
        return self.facts["nbytes"]

    @property
    def sizes(self) -> np.ndarray:
        """Height and width of each image as stored, (n, 2)."""
        return self.geometry[:, :2]

    @property
    def originals(self) -> np.ndarray:
        """Height and width of each original image, upright, (n, 2)."""
        return self.geometry[:, 2:]

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where each image begins in `pixels`, and at last where they end, (n + 1,)."""
        return np.concatenate([[0], np.cumsum(self.sizes.astype(np.int64).prod(1) * 3)])

    @cached_property
    def pixels(self) -> np.ndarray:
        """All bytes, row by row, RGB interleaved, one image after the other; writing to them never reaches the disk."""
        return np.asarray(np.memmap(self.folder / "pixels.bin", np.uint8, "c"))

    def image(self, i: int) -> np.ndarray:
        """Image i, (h, w, 3) uint8; a view of the file."""
        height, width = self.sizes[i]
        return self.pixels[self.offsets[i]:self.offsets[i + 1]].reshape(height, width, 3)

    def verify(self) -> None:
        """Reads every byte and raises `UserError` where the hash written at the time does not agree."""
        if _digest(self.geometry, self.facts["pieces"], self.facts["chunk"]) != self.hash:
            raise UserError(f"the sizes of the decoded images in {self.folder} have changed on disk: delete that "
                            "folder, and the next run decodes them anew")
        starts = [*range(0, len(self), self.facts["chunk"]), len(self)]
        for first, last, expected in zip(starts, starts[1:], self.facts["pieces"]):
            digest = hashlib.sha256(self.pixels[self.offsets[first]:self.offsets[last]].data).hexdigest()
            if digest != expected:
                raise UserError(f"the decoded images {first} to {last - 1} in {self.folder} have changed on disk: "
                                "delete that folder, and the next run decodes them anew")


def kept(index: DatasetIndex, folder: Path) -> ImageStore | None:
    """The decoded images of a dataset below `folder`: those of its files as they are now, else the newest."""
    home = _home(index, folder, contents.contents(index, folder))
    if (home / "pixels.bin").is_file():
        return ImageStore(home)
    before = contents.decoded(index, folder, SHORTER_SIDE)
    return ImageStore(before) if before is not None and (before / "pixels.bin").is_file() else None


def _home(index: DatasetIndex, folder: Path, content: str, side: int = SHORTER_SIDE) -> Path:
    """Where the decoded images of these files lie; of drawn ones the list alone counts."""
    facts = [index.hash, *([content] if content else []), *([str(side)] if side != SHORTER_SIDE else [])]
    key = hashlib.sha256(" ".join(facts).encode()).hexdigest() if len(facts) > 1 else index.hash
    return folder / f"images-{contents.slug(index)}-{key[:8]}"


def fits_earlier(index: DatasetIndex, folder: Path) -> bool:
    """Whether the files are those that an earlier version, which knew them by their names, decoded into `folder`.

    A few images are held against theirs. True as well where nothing of it is left.
    """
    home = _home(index, folder, "")
    if not (home / "pixels.bin").is_file():
        return True
    store = ImageStore(home)
    sample = np.unique(np.linspace(0, len(index) - 1, SAMPLE).astype(int)).tolist()
    return len(store) == len(index) and all(np.array_equal(decode(index, i)[0], store.image(i)) for i in sample)


def open_store(index: DatasetIndex, folder: Path, *, shorter: int = SHORTER_SIDE, jobs: int | None = None,
               progress: bool = True, between: Callable[[], None] = lambda: None) -> ImageStore:
    """The decoded images of a dataset in `folder/images-NAME-HASH8/`, made now if they are not there.

    Their shorter sides are 256 or, for protocols that resize to more, `shorter`; none is enlarged. They are found
    again as long as the files contain the same (`contents`). Work goes on where a killed call stopped,
    after checking what it left by hash. A second process that asks for the same images waits for the first. `jobs`
    processes decode (default: one a core, fewer for small sets). `between` is called before the first chunk and after
    every one; what it raises ends the work. Where the files of a store are damaged, it is made anew.
    """
    if len(index) == 0:
        raise UserError(f"dataset '{index.name}' has no images: `oodml datasets check {index.typed}` shows what was "
                        "expected and where")
    with timed("hash the files"):
        content = contents.contents(index, folder, progress)
    side = max(SHORTER_SIDE, shorter)
    home = _home(index, folder, content, side)
    if (store := _opened(home)) is None:
        # By the list alone: what was decoded before a broken file was replaced serves again.
        part = folder / f"{_home(index, folder, '', side).name}-part"
        with disk_errors(home):
            home.mkdir(parents=True, exist_ok=True)
            part.mkdir(exist_ok=True)
        with alone(part / "lock", f"the decoded images of {index.name}" if progress else ""):
            if (store := _opened(home)) is None:
                if (home / "pixels.bin").is_file():
                    warnings.warn(f"the decoded images in {home} are damaged, and are decoded anew", stacklevel=2)
                    (home / "pixels.bin").unlink()
                _make(index, folder, part, home, side, jobs, progress, between)
    return store or ImageStore(home)


def _opened(home: Path) -> ImageStore | None:
    """The store in a folder; None where there is none, or a damaged one."""
    try:
        return ImageStore(home) if (home / "pixels.bin").is_file() else None
    except UserError:
        return None


def _make(index: DatasetIndex, folder: Path, part: Path, home: Path, side: int, jobs: int | None, progress: bool,
          between: Callable[[], None]) -> None:
    from tqdm import tqdm

    files, before = contents.digests(index, folder), contents.stamp(index)
    starts = list(range(0, len(index), CHUNK))
    # images that share a file (a shard) are known by all files together
    sources = [contents.combined(files[start:start + CHUNK] if len(files) == len(index) else files) for start in starts]
    pixels = GrowingFile(part / "pixels.part")
    try:
        pixels.keep(next((i for i, piece in enumerate(pixels.pieces) if piece.get("files") != sources[i]),
                         len(pixels.pieces)))
        _check_disk(index, home, side, pixels.size, progress)
        todo = starts[len(pixels.pieces):]
        done = sum(len(piece["geometry"]) for piece in pixels.pieces)
        with tqdm(total=len(index), initial=done, desc=f"decoding {index.name}", unit="img",
                  disable=None if progress else True) as bar, timed("decode the images"):
            between()
            for sizes, data, piece in decode_all(index, todo, jobs or min(cores(), -(-len(todo) // 4)), part, side):
                pixels.append(data.data, piece, geometry=sizes, files=sources[len(pixels.pieces)])
                bar.update(len(sizes))
                between()
        if contents.stamp(index) != before:
            raise UserError(f"files of '{index.name}' were changed while they were decoded; run again")
        geometry = np.array([row for piece in pixels.pieces for row in piece["geometry"]], np.int32)
        pieces = [piece["sha256"] for piece in pixels.pieces]
        with disk_errors(home):
            np.save(home / "geometry.npy", geometry)
        write_json(home / "store.json", {
            "version": VERSION, "dataset": index.name, "index": index.hash, "contents": contents.combined(files),
            "images": len(index), "nbytes": pixels.size, "shorter_side": side,
            "filter": "Pillow bilinear, antialiased", "chunk": CHUNK,
            "hash": _digest(geometry, pieces, CHUNK), "pieces": pieces})
        # Last, as its presence under the final name says that all is there.
        with timed("flush the decoded images to the disk"):
            pixels.finish(home / "pixels.bin")
    finally:
        pixels.close()


def _digest(geometry: np.ndarray, pieces: list[str], chunk: int) -> str:
    """The hash of a store from its sizes and the hashes of its pixels, so many images each."""
    return hashlib.sha256(json.dumps([VERSION, chunk, geometry.tolist(), pieces]).encode()).hexdigest()


def _check_disk(index: DatasetIndex, home: Path, side: int, present: int, progress: bool) -> None:
    """Estimates the bytes needed from a sample of image headers and refuses where the disk has not that much."""
    sample = np.unique(np.linspace(0, len(index) - 1, 64).astype(int))
    mean = np.mean([np.prod(stored_size(*_header(index, i), side)) * 3 for i in sample])
    needed = int(mean * len(index) * 1.05) - present
    free = shutil.disk_usage(home).free
    if needed > free:
        raise NoRoom(f"decoding '{index.name}' needs about {byte_size(needed)} in {home}, where "
                     f"{byte_size(free)} are free: free some space or give another folder with --work DIR")
    if progress and needed > 1e9:
        print(f"decoding {len(index):,} images of '{index.name}': about {byte_size(needed)} in {home} "
              f"({byte_size(free)} free)", file=sys.stderr)


def _header(index: DatasetIndex, i: int) -> tuple[int, int]:
    """Height and width of an image from its header, not turned upright (the area is the same)."""
    with opened(index, i) as image:
        return image.height, image.width
