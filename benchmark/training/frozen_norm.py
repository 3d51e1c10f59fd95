"""Frozen batch norms with the ReLU behind them, each direction in one kernel: for networks recorded without a compiler.

    y = clip(gamma x^ + beta, low, high),   x^ = (x - mu) / s,   s^2 = var + eps

torch's own backward pass of a norm in evaluation mode copies maps and clears buffers first: of a step of
EfficientNet-Lite0 with 224 images of 64 px, 5.5 ms in 814 kernels of an H200, the first form of these left 4.0 in 572.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from methods.backbones.kernels import kernel, tl, triton, usable

BOUNDS = {nn.Identity: (float("-inf"), float("inf")), nn.ReLU: (0.0, float("inf")), nn.ReLU6: (0.0, 6.0)}
"""What an activation behind a norm clips to."""
ROWS, COLUMNS, WARPS = 32, 32, 4
"""A program takes as many places of as many channels at a time, in as many warps."""
PROGRAMS = 1024
"""About as many programs share a pass, so that all of a GPU works and each reads what a channel has only once."""


@cache
def works(device: torch.device, kind: torch.dtype) -> bool:
    """Whether such kernels can be built and run here."""
    def trial() -> None:
        maps = torch.ones(1, 8, 1, 1, device=device, dtype=kind, requires_grad=True)
        _forward(nn.BatchNorm2d(8, device=device), BOUNDS[nn.ReLU6], maps).sum().backward()

    return usable("frozen norms", trial)


@contextmanager
def fused(network: nn.Module) -> Iterator[None]:
    """Inside the context the frozen norms of the network are computed so, with the activation that is their own."""
    norms = {norm: bounds for norm in network.modules() if (bounds := _bounds(norm)) is not None}
    for norm, bounds in norms.items():
        norm.forward = partial(_forward, norm, bounds)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _bounds(norm: Any) -> tuple[float, float] | None:
    """What a module clips to if it is a frozen norm of maps; None if it is anything else."""
    if type(norm) not in (nn.BatchNorm2d, BatchNormAct2d) or norm.training:
        return None
    if norm.weight is None or norm.running_var is None or norm.num_features % 8:
        return None
    if type(norm) is nn.BatchNorm2d:
        return BOUNDS[nn.Identity]
    return BOUNDS.get(type(norm.act)) if isinstance(norm.drop, nn.Identity) else None


def _forward(norm: Any, bounds: tuple[float, float], maps: Tensor) -> Tensor:
    return _FrozenNorm.apply(maps, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, bounds)


class _FrozenNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, maps: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float,
                bounds: tuple[float, float]) -> Tensor:
        maps = maps.contiguous(memory_format=torch.channels_last)
        result = torch.empty_like(maps)
        grid, places, share = _shares(maps)
        _scale_and_clip[grid](maps, result, weight, bias, mean, variance, places, maps.shape[1] // 8, share, eps,
                              *bounds, ROWS, COLUMNS, num_warps=WARPS)
        context.save_for_backward(maps, weight, bias, mean, variance)
        context.eps, context.bounds = eps, bounds
        return result

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, bias, mean, variance = context.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        channels = maps.shape[1]
        grid, places, share = _shares(maps)
        of_maps = torch.empty_like(maps)
        sums = torch.empty(grid[0], 2, channels, device=maps.device)
        _gradients[grid](gradient, maps, of_maps, sums, weight, bias, mean, variance, places, channels // 8, share,
                         context.eps, *context.bounds, ROWS, COLUMNS, num_warps=WARPS)
        of_bias, of_weight = sums.sum(0)
        return of_maps, of_weight, of_bias, None, None, None, None


def _shares(maps: Tensor) -> tuple[tuple[int, int], int, int]:
    """How many programs share the places and the channels, how many places there are, and how many each takes."""
    places, columns = maps.numel() // maps.shape[1], triton.cdiv(maps.shape[1], COLUMNS)
    share = triton.cdiv(triton.cdiv(places, max(1, PROGRAMS // columns)), ROWS) * ROWS
    return (triton.cdiv(places, share), columns), places, share


@kernel("places", "eighths", "share", "low", "high")
def _scale_and_clip(maps, result, weight, bias, mean, variance, places, eighths, share, eps, low, high,
                    rows: tl.constexpr, columns: tl.constexpr):
    channels = eighths * 8  # seen to be a multiple of eight, so that a thread reads eight neighbours at once
    channel = tl.program_id(1) * columns + tl.arange(0, columns)
    known = channel < channels
    scale = tl.load(weight + channel, known, 0.0) * tl.rsqrt(tl.load(variance + channel, known, 1.0) + eps)
    centre, shift = tl.load(mean + channel, known, 0.0), tl.load(bias + channel, known, 0.0)
    first = tl.program_id(0) * share
    for done in range(0, share, rows):
        place = first + done + tl.arange(0, rows)
        here = (place < places)[:, None] & known[None, :]
        at = place[:, None] * channels + channel[None, :]
        value = (tl.load(maps + at, here, 0.0).to(tl.float32) - centre[None, :]) * scale[None, :] + shift[None, :]
        tl.store(result + at, tl.minimum(tl.maximum(value, low), high).to(result.dtype.element_ty), here)


@kernel("places", "eighths", "share", "low", "high")
def _gradients(gradient, maps, of_maps, sums, weight, bias, mean, variance, places, eighths, share, eps, low, high,
               rows: tl.constexpr, columns: tl.constexpr):
    """Those of the maps, and over `share` places the sums of g and g x^; g: the gradient where nothing was clipped."""
    channels = eighths * 8
    channel = tl.program_id(1) * columns + tl.arange(0, columns)
    known = channel < channels
    by_deviation = tl.rsqrt(tl.load(variance + channel, known, 1.0) + eps)
    centre = tl.load(mean + channel, known, 0.0)
    scale, shift = tl.load(weight + channel, known, 0.0), tl.load(bias + channel, known, 0.0)
    of_bias = tl.zeros((rows, columns), tl.float32)
    of_weight = tl.zeros((rows, columns), tl.float32)
    first = tl.program_id(0) * share
    for done in range(0, share, rows):
        place = first + done + tl.arange(0, rows)
        here = (place < places)[:, None] & known[None, :]
        at = place[:, None] * channels + channel[None, :]
        normed = (tl.load(maps + at, here, 0.0).to(tl.float32) - centre[None, :]) * by_deviation[None, :]
        value = normed * scale[None, :] + shift[None, :]
        passed = tl.where((value > low) & (value < high), tl.load(gradient + at, here, 0.0).to(tl.float32), 0.0)
        of_bias += passed
        of_weight += passed * normed
        tl.store(of_maps + at, (passed * (scale * by_deviation)[None, :]).to(of_maps.dtype.element_ty), here)
    part = sums + tl.program_id(0) * 2 * channels + channel
    tl.store(part, tl.sum(of_bias, 0), known)
    tl.store(part + channels, tl.sum(of_weight, 0), known)
