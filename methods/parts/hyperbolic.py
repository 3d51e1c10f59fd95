"""The Poincaré ball of curvature -c: from vectors into it, and distances in it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.parts.distances import TINY, pairwise, root

EDGE = 1e-3
"""Points stay this fraction of the radius away from the boundary, where distances are infinite."""


def clip(vectors: Tensor, radius: float) -> Tensor:
    """Shorten vectors longer than the radius to it (feature clipping).

    >>> clip(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    length = root(vectors.square().sum(-1, keepdim=True))
    return vectors * (radius / length).clamp(max=1)


def exponential_map(vectors: Tensor, c: float) -> Tensor:
    """Tangent vectors at the origin to points of the ball: tanh(sqrt(c) |v|) v / (sqrt(c) |v|)."""
    length = root(vectors.square().sum(-1, keepdim=True)) * c**0.5
    return vectors * (length.tanh().clamp(max=1 - EDGE) / length)


class _Riemannian(torch.autograd.Function):
    """The identity, whose gradient is scaled as the metric of the ball says."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, c: float) -> Tensor:
        ctx.save_for_backward(points)
        ctx.c = c
        return points.view_as(points)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        points, = ctx.saved_tensors
        room = (1 - ctx.c * points.square().sum(-1, keepdim=True)).square() / 4
        return gradients[0] * room, None


def in_ball(vectors: Tensor, radius: float, c: float) -> Tensor:
    """Points x = exp_0(clip(v)), whose gradients become Riemannian ones: times (1 - c |x|^2)^2 / 4.

    Adam does not notice a factor that is the same for all, as it is of clipped vectors, unless gradients are small
    beside its epsilon.
    """
    return _Riemannian.apply(exponential_map(clip(vectors, radius), c), c)  # type: ignore[no-any-return]


def hyperbolic_distances(x: Tensor, c: float) -> Tensor:
    """Geodesic distances of every two points of the ball.

        d(x, y) = 2/sqrt(c) artanh(sqrt(c) |(-x) + y|)  (Moebius sum)
                = 2/sqrt(c) arsinh(sqrt(c) |x - y| / sqrt((1 - c |x|^2) (1 - c |y|^2)))

    The second form needs no sum of three terms for every pair and no clamp near the boundary.
    """
    room = (1 - c * x.square().sum(-1)).clamp(min=TINY).sqrt()
    return 2 / c**0.5 * torch.asinh(c**0.5 * pairwise(x) / (room[:, None] * room[None, :]))
