"""What is cut out of an image: the laws by which crops and flips are drawn.

All chance comes from the one CPU generator that is given, a fixed row of uniform numbers for each image, so
the same seed gives the same batch wherever the pixels lie and however many threads fetch them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmark.data.transform import Transform

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TRIES = 10
"""How often torchvision's RandomResizedCrop tries before it takes the middle of the image."""
DRAWS = 2 * TRIES + 12


@dataclass(frozen=True)
class Crops:
    """What to cut from each image of a batch, in pixels of the stored image.

    `box` is top, left, height and width, not always whole numbers; `window` is the rows and columns that a filter may
    look at: top, bottom, left, right. `flip` mirrors left and right.
    """

    box: np.ndarray
    window: np.ndarray
    flip: np.ndarray

    def __getitem__(self, chosen: slice | np.ndarray) -> Crops:
        return Crops(self.box[chosen], self.window[chosen], self.flip[chosen])


def uniforms(count: int, generator: torch.Generator) -> Tensor:
    """Everything random about `count` images: a row of uniform numbers for each."""
    import torch

    return torch.rand((count, DRAWS), generator=generator, dtype=torch.float64)


def random_crops(transform: Transform, sizes: np.ndarray, originals: np.ndarray, draws: Tensor) -> Crops:
    """Training crops of images of these stored and original sizes, (b, 2) each.

    `resized`: torchvision's RandomResizedCrop on the original image: area uniform in `scale` of the image's, log
    of the aspect ratio uniform in `ratio`, sides rounded, the first of ten tries that fits, position uniform over
    whole pixels; if none fits, the largest middle crop within `ratio`. The box is then carried over to the stored
    image. `plain`: RandomCrop of the resized image.
    """
    u = draws.numpy()
    flip = u[:, 2 * TRIES + 2] < transform.flip
    where = u[:, 2 * TRIES:2 * TRIES + 2]
    if transform.crop == "plain":
        room = resized(originals, transform.resize) - transform.size + 1
        return _of_resized(transform, sizes, originals, np.floor(where * room), flip)
    box = _resized_crop(originals.astype(np.float64), u, where, transform)
    return _within_box(box * np.tile(sizes / originals, 2), sizes, flip)


def _resized_crop(image: np.ndarray, u: np.ndarray, where: np.ndarray, transform: Transform) -> np.ndarray:
    """Top, left, height and width, whole pixels of the image, (b, 4)."""
    low, high = transform.ratio
    area = image.prod(1)[:, None] * (transform.scale[0] + u[:, :TRIES] * (transform.scale[1] - transform.scale[0]))
    aspect = np.exp(np.log(low) + u[:, TRIES:2 * TRIES] * (np.log(high) - np.log(low)))
    tried = np.stack([np.rint(np.sqrt(area / aspect)), np.rint(np.sqrt(area * aspect))], axis=2)
    fits = ((tried > 0) & (tried <= image[:, None])).all(2)
    chosen = tried[np.arange(len(u)), fits.argmax(1)]
    top_left = np.floor(where * (image - chosen + 1))
    fitted = np.any(fits, axis=1, keepdims=True)

    height, width = image.T
    of_image = width / height
    middle = np.stack([np.where(of_image < low, np.rint(width / low), height),
                       np.where(of_image > high, np.rint(height * high), width)], axis=1)
    return np.hstack([np.where(fitted, top_left, (image - middle) // 2), np.where(fitted, chosen, middle)])


def center_crops(transform: Transform, sizes: np.ndarray, originals: np.ndarray) -> Crops:
    """Evaluation crops, torchvision's CenterCrop of the resized image: its middle, halves rounded to even."""
    top_left = np.rint((resized(originals, transform.resize) - transform.size) / 2)
    return _of_resized(transform, sizes, originals, top_left, np.zeros(len(sizes), bool))


def resized(sizes: np.ndarray, shorter: int) -> np.ndarray:
    """Sizes after torchvision's `Resize(shorter)`: the longer side is cut to a whole number.

    >>> resized(np.array([[100, 150], [256, 300]]), 256).tolist()
    [[256, 384], [256, 300]]
    """
    sizes = sizes.astype(np.int64)
    return shorter * sizes // sizes.min(1, keepdims=True)


def _of_resized(transform: Transform, sizes: np.ndarray, originals: np.ndarray, top_left: np.ndarray,
                flip: np.ndarray) -> Crops:
    """The square at `top_left` of the resized original; the filter of the resizing looks beyond the square."""
    factor = sizes / resized(originals, transform.resize)
    box = np.hstack([top_left, np.full_like(top_left, transform.size)]) * np.tile(factor, 2)
    beyond = np.where(factor == 1, 0, np.ceil(2 * np.maximum(factor, 1)))
    return _within_box(box, sizes, flip, beyond)


def _within_box(box: np.ndarray, sizes: np.ndarray, flip: np.ndarray, beyond: np.ndarray | float = 0) -> Crops:
    """Crops whose filter sees `beyond` pixels around the box: none where an image is first cut and then resized."""
    start = np.maximum(np.floor(box[:, :2] - beyond + 1e-6), 0).astype(np.int64)
    end = np.ceil(box[:, :2] + box[:, 2:] + beyond - 1e-6).astype(np.int64)
    end = np.minimum(np.maximum(end, start + 1), sizes)
    return Crops(box, np.stack([start[:, 0], end[:, 0], start[:, 1], end[:, 1]], axis=1), flip)
