"""Depthwise convolutions of maps in channels-last layout that take a stride themselves, each direction in one kernel.

    y[i, j] = sum_{a, b} w[a, b] x[s i + a - t, s j + b - l]

cuDNN has no such kernels for a stride (see `convolutions.Depthwise`), and loads engines at its first calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from methods.backbones.kernels import kernel, tl, triton, usable

ROWS, COLUMNS, WARPS = 64, 32, 4
"""A program takes as many places of as many channels at a time, in as many warps."""
FILTER_ROWS, FILTER_WARPS = 8, 1
"""As many for the filter's gradient, which keeps a sum for each place of a filter's row beside them."""
PROGRAMS = 4096
"""About as many programs share the filter's gradient, so that all of a GPU works."""
STRIDES = {1: 0, 2: 1, 4: 2}
"""Those that kernels can divide by, with the shift that does it."""


def suits(images: Tensor, weight: Tensor, stride: tuple[int, ...], dilation: tuple[int, ...]) -> bool:
    """Whether these kernels can do such a convolution here."""
    _, channels, height, width = images.shape
    return (dilation == (1, 1) and channels % 8 == 0 and stride[0] == stride[1] in STRIDES
            and weight.shape[2] == weight.shape[3] and images.numel() < 2**31 and min(height, width) > 0
            and images.dtype in (torch.float16, torch.bfloat16, torch.float32) and works(images.device))


@cache
def works(device: torch.device) -> bool:
    """Whether such kernels can be built and run here."""
    def trial() -> None:
        maps = torch.ones(1, 8, 1, 1, device=device, requires_grad=True)
        convolve(maps, torch.ones(8, 1, 3, 3, device=device, requires_grad=True), 1, (1, 1), (1, 1)).sum().backward()

    return usable("depthwise convolutions", trial)


def convolve(images: Tensor, weight: Tensor, stride: int, before: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """The convolution of images (b, c, h, w) with filters (c, 1, k, k): maps of this size.

    `before`: t and l, how many places the first window begins before the map.
    """
    if torch.is_autocast_enabled("cuda"):
        images = images.to(torch.get_autocast_dtype("cuda"))
    return _Depthwise.apply(images, weight, stride, before, size)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, images: Tensor, weight: Tensor, stride: int, before: tuple[int, int],
                size: tuple[int, int]) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        filters = weight[:, 0].permute(1, 2, 0).contiguous()  # neighbours of a place are channels, as in the maps
        context.save_for_backward(images, filters)
        context.stride, context.before = stride, before
        return _gathered(images, filters, stride, before, size, False)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, filters = context.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        of_images = of_weight = None
        if context.needs_input_grad[0]:
            of_images = _gathered(gradient, filters, context.stride, context.before, images.shape[2:], True)
        if context.needs_input_grad[1]:
            of_weight = _filter_gradient(gradient, images, filters, context.stride, context.before)
        return of_images, of_weight, None, None, None


def _gathered(source: Tensor, filters: Tensor, stride: int, before: tuple[int, int], size: tuple[int, ...],
              back: bool) -> Tensor:
    """Maps of this size by the convolution, or `back` from its output to the gradient of its input."""
    count, channels = source.shape[:2]
    result = torch.empty(count, channels, *size, device=source.device, dtype=source.dtype,
                         memory_format=torch.channels_last)
    places = count * size[0] * size[1]
    with torch.cuda.device_of(source):
        _gather[triton.cdiv(places, ROWS), triton.cdiv(channels, COLUMNS)](
            source, filters, result, places, *source.shape[2:], *size, channels // 8, stride, STRIDES[stride], *before,
            len(filters), back, ROWS, COLUMNS, num_warps=WARPS)
    return result


def _filter_gradient(gradient: Tensor, images: Tensor, filters: Tensor, stride: int, before: tuple[int, int]) -> Tensor:
    channels, width = images.shape[1], len(filters)
    columns, tiles = triton.cdiv(channels, COLUMNS), triton.cdiv(gradient[0, 0].numel(), FILTER_ROWS)
    share = triton.cdiv(len(images), max(1, PROGRAMS // (tiles * columns * width)))
    shares = triton.cdiv(len(images), share)
    sums = torch.empty(tiles * shares, channels, 1, width, width, device=images.device)
    with torch.cuda.device_of(images):
        _gather_filter[tiles * shares, columns, width](
            gradient, images, sums, len(images), *images.shape[2:], *gradient.shape[2:], channels // 8, tiles, share,
            stride, *before, width, triton.next_power_of_2(width), FILTER_ROWS, COLUMNS, num_warps=FILTER_WARPS)
    return sums.sum(0).to(filters.dtype)


@kernel("places", "height", "width", "out_height", "out_width", "eighths", "stride", "shift", "top", "left")
def _gather(source, filters, result, places, height, width, out_height, out_width, eighths, stride, shift, top, left,
            size: tl.constexpr, back: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """From maps of height x width those of out_height x out_width: y from x, or `back` dL/dx from dL/dy."""
    channels = eighths * 8  # seen to be a multiple of eight, so that a thread reads eight neighbours at once
    place = tl.program_id(0) * rows + tl.arange(0, rows)
    channel = tl.program_id(1) * columns + tl.arange(0, columns)
    known = channel < channels
    image, i, j = place // (out_height * out_width), place // out_width % out_height, place % out_width
    total = tl.zeros((rows, columns), tl.float32)
    for a in range(size):  # the inner loop alone is unrolled: it builds three times as fast
        if back:
            down = i + top - a
            y = down >> shift
            on_map = (place < places) & (down >= 0) & ((y << shift) == down) & (y < height)
        else:
            y = i * stride + a - top
            on_map = (place < places) & (y >= 0) & (y < height)
        for b in tl.static_range(size):
            if back:
                across = j + left - b
                x = across >> shift
                here = on_map & (across >= 0) & ((x << shift) == across) & (x < width)
            else:
                x = j * stride + b - left
                here = on_map & (x >= 0) & (x < width)
            at = ((image * height + y) * width + x) * channels
            value = tl.load(source + at[:, None] + channel[None, :], here[:, None] & known[None, :], 0.0)
            factor = tl.load(filters + (a * size + b) * channels + channel, known, 0.0)
            total += value.to(tl.float32) * factor.to(tl.float32)[None, :]
    at = place[:, None] * channels + channel[None, :]
    tl.store(result + at, total.to(result.dtype.element_ty), (place < places)[:, None] & known[None, :])


@kernel("count", "height", "width", "out_height", "out_width", "eighths", "tiles", "share", "stride", "top", "left")
def _gather_filter(gradient, maps, sums, count, height, width, out_height, out_width, eighths, tiles, share, stride,
                   top, left, size: tl.constexpr, taps: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """Over some places of `share` images the sums of g[i, j] x[s i + a - t, s j + b - l], for one row a of filters."""
    channels = eighths * 8
    channel = tl.program_id(1) * columns + tl.arange(0, columns)
    known = channel < channels
    a = tl.program_id(2)
    b = tl.arange(0, taps)
    place = tl.program_id(0) % tiles * rows + tl.arange(0, rows)
    there = place < out_height * out_width
    y = place // out_width * stride + a - top
    x = (place % out_width * stride - left)[None, :] + b[:, None]
    here = (there & (y >= 0) & (y < height))[None, :] & (x >= 0) & (x < width) & (b < size)[:, None]
    toward_here, value_here = there[:, None] & known[None, :], here[:, :, None] & known[None, None, :]
    first = tl.program_id(0) // tiles * share
    toward_at = (first * out_height * out_width + place)[:, None] * channels + channel[None, :]
    value_at = (((first * height + y) * width)[None, :] + x)[:, :, None] * channels + channel[None, None, :]
    total = tl.zeros((taps, rows, columns), tl.float32)
    for _ in range(first, tl.minimum(first + share, count)):  # where a place reads is the same in every image
        toward = tl.load(gradient + toward_at, toward_here, 0.0).to(tl.float32)
        total += tl.load(maps + value_at, value_here, 0.0).to(tl.float32) * toward[None, :, :]
        toward_at += out_height * out_width * channels
        value_at += height * width * channels
    at = (tl.program_id(0) * channels + channel[None, :]) * size + a
    tl.store(sums + at * size + b[:, None], tl.sum(total, 1), known[None, :] & (b < size)[:, None])
