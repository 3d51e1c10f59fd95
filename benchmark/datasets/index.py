"""The index of a dataset: which images there are, of which class, and how each is opened."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image
from PIL.Image import Transpose

from benchmark.utils.errors import UserError

TURNS = {2: Transpose.FLIP_LEFT_RIGHT, 3: Transpose.ROTATE_180, 4: Transpose.FLIP_TOP_BOTTOM, 5: Transpose.TRANSPOSE,
         6: Transpose.ROTATE_270, 7: Transpose.TRANSVERSE, 8: Transpose.ROTATE_90}
"""What brings an image of each EXIF orientation upright."""


def upright(image: Image.Image) -> Image.Image:
    """The image as it is meant to be seen: turned by its EXIF orientation, in RGB of 8 bits.

    Grey images of 16 bits are scaled, round(x / 257); of floating-point numbers and of still larger ones nobody knows
    which is white, and `UserError` is raised.
    """
    image.load()  # some formats turn the image themselves
    # not ImageOps.exif_transpose, which writes all other EXIF facts anew and fails where a camera wrote an odd one
    turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    image = image if turn is None else image.transpose(turn)
    return (_eight_bits(image) if image.mode[0] in "IF" else image).convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Pillow's own conversion would make everything above 255 white."""
    values = np.asarray(image)
    low, high = values.min(), values.max()
    if image.mode == "F" or low < 0 or high > 65535:
        raise UserError(f"its pixels are 32-bit numbers from {low:g} to {high:g}, whose black and white are not known; "
                        "save it as 8 bit")
    # Several formats open as the wide mode I whatever their depth.
    if image.mode == "I" and high <= 255:
        return image
    return Image.fromarray(((values.astype(np.int64) + 128) // 257).astype(np.uint8))


@dataclass(frozen=True)
class DatasetIndex:
    """Images, classes and the default class split of one dataset.

    `paths` are the image ids: unique, relative to `root`, with forward slashes. `labels[i]` is the position of
    image i's class in `classes`. `roles` marks the query and gallery images of test classes where these differ
    (In-Shop), `domains` the member dataset of each image of a union. The order of images and classes is part
    of the index and of its hash.
    """

    name: str
    paths: tuple[str, ...]
    classes: tuple[str, ...]
    labels: np.ndarray
    train_classes: tuple[str, ...]
    test_classes: tuple[str, ...]
    root: Path | None = None
    roles: np.ndarray | None = None
    """Per image '' (both), 'query' or 'gallery'; None where every test image is both."""
    domains: np.ndarray | None = None
    domain_names: tuple[str, ...] = ()
    opener: Callable[[int], Image.Image] | None = field(default=None, compare=False)
    """How image i is made where it is no file under `root`; must pickle, as images are read in parallel."""
    reference: str = field(default="", compare=False)
    """What a dataset of one's own was asked for as, such as folder:PATH; `name` alone does not lead back to it."""
    note: str = field(default="", compare=False)
    """What was taken for a class or a side, where a user's own folders do not say it plainly."""

    @property
    def typed(self) -> str:
        """The dataset as it can be given to any command."""
        return self.reference or self.name

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files that hold its images, in the order of the index; none where they are drawn."""
        if self.opener is not None:
            return tuple(getattr(self.opener, "files", ()))
        return tuple(f"{self.root}/{path}" for path in self.paths)

    def open(self, i: int) -> Image.Image:
        """Image i as Pillow gives it, not yet `upright`."""
        if self.opener is not None:
            return self.opener(i)
        assert self.root is not None
        path = self.root / self.paths[i]
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for ever
            raise UserError("it is no plain file")
        return Image.open(path)

    def of_classes(self, names: tuple[str, ...]) -> np.ndarray:
        """Positions, in index order, of the images of these classes."""
        wanted = set(names)
        chosen = np.array([c in wanted for c in self.classes])
        return np.flatnonzero(chosen[self.labels])

    @cached_property
    def hash(self) -> str:
        """SHA-256 over images, classes and the default split, wherever the files lie and however they are opened."""
        facts = {"name": self.name, "paths": self.paths, "classes": self.classes, "labels": self.labels.tolist(),
                 "train": self.train_classes, "test": self.test_classes,
                 "roles": None if self.roles is None else self.roles.tolist(),
                 "domains": None if self.domains is None else self.domains.tolist(), "names": self.domain_names}
        return hashlib.sha256(json.dumps(facts, ensure_ascii=True).encode()).hexdigest()
