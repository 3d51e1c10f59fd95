"""From boxes to pixels: the crops of a batch, brought to one size.

On CUDA `by_matrix` does a whole batch at once; it is Pillow's antialiased filter itself, written as two matrix
products. On the CPU `one_by_one` takes Pillow for evaluation, which must be exact, and OpenCV for training crops, which
must be fast (five times faster there, with a slightly different filter).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmark.data.crops import Crops

HAS_OPENCV = importlib.util.find_spec("cv2") is not None
_ELEMENTS = 1 << 25
"""Bytes gathered in one go, so that a large batch stays within a few hundred megabytes."""


def by_matrix(pixels: Tensor, starts: np.ndarray, widths: np.ndarray, crops: Crops, size: int,
              interpolation: str) -> Tensor:
    """Crops as (b, 3, size, size) in [0, 255]; half precision on CUDA, right to about 0.2 of 255.

    `pixels` is a flat uint8 tensor in which image i begins at `starts[i]` with rows of `widths[i]` RGB pixels; beyond
    the last image it goes on for `slack(widths)` bytes of anything.
    With A the (size, h) matrix of the vertical filter and B the (size, w) one of the horizontal, a channel
    of the crop is A X B^T. Row o of A is the filter (triangle, or cubic with a = -1/2) around the centre of output
    pixel o, stretched by the scale when shrinking, cut at the window and normalised to sum 1: Pillow's definition.
    """
    height, width = np.maximum(np.ptp(crops.window.reshape(-1, 2, 2), axis=2).max(0), 1)
    step = max(1, _ELEMENTS // int(height * width * 3))
    parts = [_by_matrix(pixels, starts[i:i + step], widths[i:i + step], crops[i:i + step], size, interpolation)
             for i in range(0, len(starts), step)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def slack(widths: np.ndarray) -> int:
    """Bytes by which rows of the widest image may run beyond the end of the last one."""
    return 3 * (int(widths.max(initial=0)) + 8)


def _by_matrix(pixels: Tensor, starts: np.ndarray, widths: np.ndarray, crops: Crops, size: int,
               interpolation: str) -> Tensor:
    device = pixels.device
    counts = crops.window[:, 1::2] - crops.window[:, ::2]
    copied = bool(copies(crops, size).all())
    # Multiples of 8 keep the products on the tensor cores; the surplus has no weight in the filter.
    rows, columns = (int(n) if copied else -(-int(n) // 8) * 8 for n in counts.max(0))
    # Whatever can be computed here is: launching a small kernel takes longer than running it.
    mirrored = np.column_stack([np.zeros_like(crops.flip), crops.flip])
    sides = np.stack([crops.box[:, :2] - crops.window[:, ::2], crops.box[:, 2:], counts, mirrored], axis=2)
    first = starts + 3 * (crops.window[:, 0] * widths + crops.window[:, 2])
    table = torch.from_numpy(np.column_stack([sides.reshape(-1, 8), first, 3 * widths, counts[:, 0] - 1]))
    table = (table.pin_memory() if device.type == "cuda" else table).to(device, non_blocking=True)
    start, stride, last = table[:, 8:].unsqueeze(2).unbind(1)

    # Each row of a window is one run of bytes; mirrored is what the filter makes of it.
    line = start + torch.minimum(torch.arange(rows, device=device), last) * stride
    runs = pixels.as_strided((len(pixels) - 3 * columns + 1, 3 * columns), (1, 1))
    window = runs[line.long()].view(-1, rows, columns, 3).permute(0, 1, 3, 2)
    if copied:
        return torch.where(table[:, 7].bool()[:, None, None, None], window.flip(3), window).transpose(1, 2)

    dtype = torch.float16 if device.type == "cuda" else torch.float32
    filters = _filter(table[:, :8].reshape(-1, 4), max(rows, columns), size, interpolation,
                      float(crops.box[:, 2:].max()) / size).to(dtype).unflatten(0, (-1, 2))
    down, along = filters[:, 0, :, :rows], filters[:, 1, :, :columns]
    with torch.autocast(device.type, enabled=False):
        lines = down @ window.to(dtype, memory_format=torch.contiguous_format).view(-1, rows, 3 * columns)
        out = lines.view(-1, size * 3, columns) @ along.transpose(1, 2)
    # A cubic filter overshoots; bytes cannot.
    out = out.clamp_(0, 255) if interpolation == "bicubic" else out
    return out.view(-1, size, 3, size).transpose(1, 2)


def copies(crops: Crops, size: int) -> np.ndarray:
    """Which crops already have the wanted size on whole pixels, so that nothing is resampled."""
    return ((crops.box[:, 2:] == size) & (crops.box[:, :2] == crops.window[:, ::2])
            & (crops.window[:, 1::2] - crops.window[:, ::2] == size)).all(1)


def _filter(sides: Tensor, taps: int, size: int, interpolation: str, largest: float) -> Tensor:
    """Rows of filter weights, (n, size, taps), for n stretches: `sides` holds begin, length, pixels, and if mirrored.

    Only the few taps around each centre are computed; `largest` is the largest scale, length / size.
    """
    begin, length, count, mirrored = sides.float().unsqueeze(2).unbind(1)
    scale = length / size
    pixel = torch.arange(size, device=begin.device)
    centre = (begin + (torch.where(mirrored > 0, size - 1 - pixel, pixel) + 0.5) * scale)[:, :, None]
    stretch = scale.clamp(min=1)[:, :, None]
    radius = 1 if interpolation == "bilinear" else 2
    reach = torch.arange(int(2 * radius * max(1.0, largest)) + 2, device=begin.device)
    tap = (centre - radius * stretch).floor() + reach
    distance = ((tap + 0.5 - centre) / stretch).abs()
    if interpolation == "bilinear":
        weight = (1 - distance).clamp(min=0)
    else:
        central = (1.5 * distance - 2.5) * distance * distance + 1
        outer = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        weight = torch.where(distance < 1, central, torch.where(distance < 2, outer, 0.0))
    weight = weight * ((tap >= 0) & (tap < count[:, :, None]))
    weight = weight / weight.sum(2, keepdim=True)
    rows = torch.zeros((len(begin), size, taps), device=begin.device)
    return rows.scatter_add_(2, tap.clamp(0, taps - 1).long(), weight)


def one_by_one(pixels: np.ndarray, starts: np.ndarray, widths: np.ndarray, crops: Crops, size: int,
               interpolation: str, exact: bool) -> Tensor:
    """Crops as (b, 3, size, size) uint8 on the CPU, by Pillow if `exact` or without OpenCV, else by OpenCV.

    OpenCV's boxes are rounded to whole stored pixels (on photographs its crops then lie 3.9 of 255 from those of the
    original on average, Pillow's and `by_matrix` 2.9, the detail that the stored copy has lost). Where both sides
    shrink its filter is INTER_AREA (the mean over each output pixel's own area, sharper than Pillow's triangle of
    twice that width); otherwise INTER_LINEAR (Pillow's bilinear enlarging), or INTER_CUBIC (a = -3/4 where Pillow
    has -1/2).
    """
    resize = _pillow(interpolation) if exact or not HAS_OPENCV else _opencv(interpolation)
    out = np.empty((len(starts), 3, size, size), np.uint8)
    top_left = crops.window[:, ::2]
    boxes = np.hstack([crops.box[:, :2] - top_left, crops.box[:, :2] + crops.box[:, 2:] - top_left])
    for planes, start, width, (top, bottom, left, right), box, copied, flip in zip(
            out, starts.tolist(), widths.tolist(), crops.window.tolist(), boxes.tolist(), copies(crops, size).tolist(),
            crops.flip.tolist()):
        line = width * 3
        image = pixels[start + top * line:start + bottom * line].reshape(-1, width, 3)[:, left:right]
        if not copied:
            image = resize(image, box, size)
        _store(image, flip, planes)
    return torch.from_numpy(out)


def _pillow(interpolation: str) -> Callable[[np.ndarray, list[float], int], np.ndarray]:
    how = Image.Resampling[interpolation.upper()]

    def resize(image: np.ndarray, box: list[float], size: int) -> np.ndarray:
        top, left, bottom, right = box
        inside = (max(left, 0), max(top, 0), min(right, image.shape[1]), min(bottom, image.shape[0]))
        return np.asarray(Image.fromarray(image).resize((size, size), how, box=inside))

    return resize


def _opencv(interpolation: str) -> Callable[[np.ndarray, list[float], int], np.ndarray]:
    import cv2

    # Images are far too small to be shared out between threads.
    cv2.setNumThreads(1)
    enlarge = cv2.INTER_LINEAR if interpolation == "bilinear" else cv2.INTER_CUBIC

    def resize(image: np.ndarray, box: list[float], size: int) -> np.ndarray:
        top, left, bottom, right = map(round, box)
        part = image[top:max(bottom, top + 1), left:max(right, left + 1)]
        shrinks = part.shape[0] >= size and part.shape[1] >= size
        return cv2.resize(part, (size, size), interpolation=cv2.INTER_AREA if shrinks else enlarge)

    return resize


def _store(image: np.ndarray, flip: bool, planes: np.ndarray) -> None:
    """Writes interleaved pixels, mirrored or not, as three planes."""
    if HAS_OPENCV:
        import cv2

        cv2.split(cv2.flip(image, 1) if flip else image, list(planes))
    else:
        planes[:] = (image[:, ::-1] if flip else image).transpose(2, 0, 1)
