"""Networks that train against the embedding: gradient reversal, decorrelation, a discriminator."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return -gradient


def reverse(x: Tensor) -> Tensor:
    """x itself, with the gradient's sign turned: what stands above learns for the loss, what stands below against it.

    >>> x = torch.ones(2, requires_grad=True)
    >>> reverse(3 * x).sum().backward()
    >>> x.grad
    tensor([-3., -3.])
    """
    return _Reverse.apply(x)


class Decorrelation(nn.Module):
    """How well one embedding follows from another: the loss of the network that tries, reversed for both embeddings.

        L = -1/(b d) sum (phi_a * xi(phi_b))^2,   xi a two-layer network with normalised output

    Milbich et al. 2020 (DiVA), adversarial separation: xi looks for what both share, they lose it.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, target: Tensor, source: Tensor) -> Tensor:
        guess = F.normalize(self.layers(reverse(source)), dim=-1)
        return -(reverse(target) * guess).square().mean()


class Discriminator(nn.Module):
    """Tells chunks of features from samples of a prior: a network of two hidden layers and one logit.

    With `saturating` the losses are those of a float32 sigmoid, which is 1 from logits of 17 on: a fake that fools it
    so far teaches it nothing any more.
    """

    def __init__(self, dim: int, hidden: int, saturating: bool = False) -> None:
        super().__init__()
        self.saturating = saturating
        self.layers = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                    nn.Linear(hidden, 1))

    def forward(self, chunks: Tensor) -> Tensor:
        return self.layers(chunks)[..., 0]

    def own_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        """BCE(D(real), 1) + BCE(D(fake), 0), for the discriminator alone."""
        return self._cross_entropy(self(real), 1.0) + self._cross_entropy(self(fake.detach()), 0.0)

    def fooling_loss(self, fake: Tensor) -> Tensor:
        """BCE(D(fake), 1), for what made the fakes alone: the discriminator's parameters get no gradient."""
        fixed = {name: parameter.detach() for name, parameter in self.named_parameters()}
        return self._cross_entropy(functional_call(self, fixed, (fake,)), 1.0)

    def _cross_entropy(self, logits: Tensor, target: float) -> Tensor:
        wanted = torch.full_like(logits, target)
        if self.saturating:
            return F.binary_cross_entropy(logits.sigmoid(), wanted)
        return F.binary_cross_entropy_with_logits(logits, wanted)
