"""Distances between embeddings, with a gradient that stays finite where two of them are equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TINY = 1e-12
"""Squared distances below this count as equal points: their gradient is zero instead of infinite."""


class _Gram(torch.autograd.Function):
    """x x^T with the gradient (G + G^T) x: one product of matrices where autograd, blind to the symmetry, takes two."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x @ x.T

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return (gradient + gradient.T) @ x


def gram(x: Tensor) -> Tensor:
    """The products of every two rows, x_i.x_j: cosine similarities where the rows are normalised.

    >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    tensor([[5., 2.],
            [2., 1.]])
    """
    return _Gram.apply(x)


def root(squared: Tensor) -> Tensor:
    """Square root whose gradient is zero, not infinite, at (nearly) zero.

    >>> root(torch.tensor([4.0, 0.0]))
    tensor([2.0000e+00, 1.0000e-06])
    """
    return squared.clamp(min=TINY).sqrt()


def paired(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean distance of x_i and y_i for every row i: d_e(x, y) = |x - y|_2."""
    return root((x - y).square().sum(-1))


def squared(x: Tensor) -> Tensor:
    """Squared Euclidean distances of every two rows, by |x_i|^2 + |x_j|^2 - 2 x_i.x_j."""
    products = gram(x)
    lengths = products.diagonal()
    return torch.sub(lengths[:, None] + lengths[None, :], products, alpha=2).clamp(min=0)


def pairwise(x: Tensor) -> Tensor:
    """Euclidean distances of every two rows.

    >>> pairwise(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))[0, 1]
    tensor(5.)
    """
    return root(squared(x))
