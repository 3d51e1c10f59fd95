"""Colour: grey, torchvision's ColorJitter for a whole batch with its own factors for each image, normalisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from benchmark.data.crops import DRAWS
from benchmark.data.transform import Transform

_FIRST = DRAWS - 9
"""The draws for colour: one for grey, four for the factors, four for their order."""


def colour(images: Tensor, transform: Transform, draws: Tensor) -> Tensor:
    """Grey and jitter as the draws of each image say; images in [0, 1], (b, 3, h, w)."""
    grey_too = draws[:, _FIRST] < transform.grayscale
    if grey_too.any():
        rows = grey_too.nonzero()[:, 0].to(images.device)
        images[rows] = grey(images[rows]).expand(-1, 3, -1, -1)
    if any(transform.jitter):
        _jitter(images, transform.jitter, draws[:, _FIRST + 1:_FIRST + 5], draws[:, _FIRST + 5:_FIRST + 9].argsort(1))
    return images


def normalise(images: Tensor, transform: Transform) -> Tensor:
    """(x - mean) / std for each channel, x in [0, 255], as float32; on a GPU with the channels last."""
    shift, factor = _constants(transform.mean, transform.std, images.device)
    if not images.is_cuda:
        return images.float().mul_(factor).add_(shift)
    # the cast, the order and the two operations as one kernel
    out = torch.empty(images.shape, device=images.device, memory_format=torch.channels_last)
    return torch.addcmul(shift, images, factor, out=out)


@lru_cache(maxsize=64)
def _constants(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """-mean / std and 1 / (255 std) on the device; copying them there for each batch would make the CPU wait."""
    centre, spread = (torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (mean, std))
    return (-centre / spread).float().to(device), (1 / (255 * spread)).float().to(device)


def _jitter(images: Tensor, strengths: tuple[float, ...], u: Tensor, order: Tensor) -> None:
    """The four changes in an order drawn for each image; factors uniform in [max(0, 1 - s), 1 + s], hue in [-s, s]."""
    low = torch.tensor([*(max(0.0, 1 - s) for s in strengths[:3]), -strengths[3]], dtype=torch.float64)
    high = torch.tensor([*(1 + s for s in strengths[:3]), strengths[3]], dtype=torch.float64)
    factors = (low + u * (high - low)).to(images.device, images.dtype)
    for turn in range(4):
        for change in range(4):
            rows = (order[:, turn] == change).nonzero()[:, 0].to(images.device)
            if strengths[change] and len(rows):
                images[rows] = CHANGES[change](images[rows], factors[rows, change].view(-1, 1, 1, 1))


def grey(x: Tensor) -> Tensor:
    """Luma, L = 0.2989 R + 0.587 G + 0.114 B, (b, 1, h, w)."""
    return 0.2989 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).clamp_(0, 1)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Away from the mean grey of the image."""
    return _blend(x, grey(x).mean((2, 3), keepdim=True), factor)


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Away from the grey of each pixel."""
    return _blend(x, grey(x), factor)


def hue(x: Tensor, shift: Tensor) -> Tensor:
    """The hue, a full circle being 1, turned by `shift`; by HSV and back, as torchvision does it."""
    value, chroma = x.amax(1, keepdim=True), x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
    red, green, blue = ((value - x) / chroma.clamp(min=1e-12)).split(1, 1)
    is_red, is_green = x[:, :1] == value, x[:, 1:2] == value
    sixths = torch.where(is_red, blue - green, torch.where(is_green, 2 + red - blue, 4 + green - red))
    turned = sixths + 6 * shift
    k = (torch.tensor([5.0, 3.0, 1.0], device=x.device, dtype=x.dtype).view(1, 3, 1, 1) + turned) % 6
    return value - chroma * torch.minimum(k, 4 - k).clamp_(0, 1)


def _blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return (other + factor * (x - other)).clamp_(0, 1)


CHANGES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (brightness, contrast, saturation, hue)
