"""The floors: what a backbone is worth before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import Method, NoSettings, Objective, Step, register, setting


class Nothing(Objective):
    """The objective of what is not trained: zero."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.sum() * 0


@register("frozen", family="floor", papers=["revisiting"], tags=["floor"], trains="nothing")
class Frozen(Method):
    """The backbone's own features, normalised: nothing is trained.

        phi(x) = h(x) / |h(x)|

    The row "ImageNet" of Revisiting DML's table 2, without its random last layer (that is `random`).
    """

    def __init__(self, backbone: nn.Module, objective: Objective | None, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, Nothing(NoSettings(), 0, dim), dim, settings)
        self.embedding = nn.Identity()
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> Frozen:
        super().train(False)
        return self

    def project(self, features: Tensor) -> Tensor:
        return F.normalize(self.embedding(features), dim=-1)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        embeddings = self.embed(images)
        return Step(self.objective(embeddings, labels), embeddings)


class Projection(nn.Module):
    """Multiplication by a fixed Gaussian matrix that follows from a seed: R_ij ~ N(0, 1/k)."""

    matrix: Tensor

    def __init__(self, before: int, after: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("matrix", torch.randn(before, after, generator=generator) / after**0.5)

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.matrix


@register("random", family="floor", papers=["revisiting"], tags=["floor"], trains="nothing")
class RandomProjection(Frozen):
    """The backbone's features through a fixed random projection, normalised: nothing is trained.

        phi(x) = R h(x) / |R h(x)|,   R_ij ~ N(0, 1/k)

    The row "ImageNet" of Revisiting DML's tables 1 and 2 (final linear layer at random and normalised).
    """

    @dataclass(frozen=True)
    class Settings:
        seed: int = setting(0, "fixed, so that the floor is one number")

    def __init__(self, backbone: nn.Module, objective: Objective | None, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings or self.Settings())
        self.embedding = Projection(backbone.dim, dim, self.settings.seed)  # type: ignore[arg-type]
