"""Neighbourhoods with a gradient: which images are near each other, and how much their neighbours have in common."""

from __future__ import annotations

from torch import Tensor

SLOPE = 10.0
"""What stands for the derivative of the step function (released code)."""


def within(similarity: Tensor, k: int, epsilon: float) -> Tensor:
    """Which images are among the k nearest of each (itself one of them) or at most epsilon beyond in squared distance.

    The values are 0 and 1; in the backward pass they rise with the negative squared distance by a constant slope.

    >>> import torch
    >>> within(torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]]), 2, 0.1)
    tensor([[1., 1., 0.],
            [1., 1., 0.],
            [1., 1., 1.]])
    """
    closeness = -(2 - 2 * similarity).clamp(min=0)
    least = closeness.detach().topk(k).values[:, -1:]
    return (closeness.detach() + epsilon >= least).to(closeness.dtype) + SLOPE * (closeness - closeness.detach())


def contextual_similarity(similarity: Tensor, k: int, epsilon: float) -> Tensor:
    """w_ij in [0, 1]: how much the neighbours of i and its mutual nearest share with those of j, (b, b)."""
    k = min(k, len(similarity))
    inside = within(similarity, k, epsilon)
    outside = 1 - inside
    common = inside @ inside.T / inside.detach().sum(1, keepdim=True)
    common = common + outside @ outside.T / outside.detach().sum(1, keepdim=True).clamp(min=1)
    half = within(similarity, max(k // 2, 1), epsilon)
    mutual = half * half.T
    expanded = mutual @ (common / 2 * inside) / mutual.sum(1, keepdim=True)
    return (expanded + expanded.T) / 2
