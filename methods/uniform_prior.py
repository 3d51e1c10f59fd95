"""Uniform priors: features matched to a uniform distribution by a discriminator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from methods import Method, Objective, Step, register, setting
from methods.layers.adversary import Discriminator
from methods.parts.groups import Counter, apart


@register("uniform-prior", family="auxiliary", papers=["oodml"], tags=["oodml-study"], base="margin",
          trains="network, a discriminator for training, and what its objective has", cite="""
@misc{sinha2020uniform, title={Uniform Priors for Data-Efficient Transfer}, author={Sinha, Samarth and Roth, Karsten and
  Goyal, Anirudh and Ghassemi, Marzyeh and Larochelle, Hugo and Garg, Animesh}, year={2020},
  note={arXiv:2006.16524}}""")
class UniformPrior(Method):
    """The backbone's features are to look uniform to a discriminator, so that they keep more than the classes need.

        L = L_base(phi) + w BCE(D(h), 1),   D learns BCE(D(u), 1) + BCE(D(h), 0),   u ~ U(-1, 1)

    Sinha et al. 2020, as in ooDML's released code: D sees the pooled features h, not normalised, in pieces of `chunk`
    numbers, and learns in every `every`-th step. Both losses are minimised in one backward pass; neither reaches the
    other's parameters. There D's cross-entropies are of a float32 sigmoid (`saturating_released`), so that D does not
    learn from features that fool it by a logit of 17 or more.
    """

    @dataclass(frozen=True)
    class Settings:
        weight: float = setting(0.2, "ooDML, released runs (w)", search=(0.02, 2.0), sop=0.02)
        every: int = setting(10, "ooDML, released runs: steps between two of the discriminator", sop=200)
        hidden: int = setting(100, "ooDML, released runs: width of the discriminator", sop=50)
        chunk: int = setting(128, "ooDML, released code")
        saturating_released: bool = setting(False, "ooDML, released code: true", later=True)

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.chunk = min(self.settings.chunk, backbone.dim)  # type: ignore[call-overload]
        self.discriminator = Discriminator(self.chunk, self.settings.hidden, self.settings.saturating_released)
        self.steps = Counter()

    def chunks(self, features: Tensor) -> Tensor:
        """The features in pieces of equal length, each a sample; a rest that fills no piece is left out."""
        return features[:, :features.shape[1] // self.chunk * self.chunk].reshape(-1, self.chunk)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        features = self.features(images)
        embeddings = self.project(features)
        with torch.autocast(images.device.type, enabled=False):
            embeddings, pieces = embeddings.float(), self.chunks(features.float())
            loss = self.objective(embeddings, labels) + self.settings.weight * self.discriminator.fooling_loss(pieces)
            if self.steps.count % self.settings.every == 0:
                loss = loss + self.discriminator.own_loss(torch.rand_like(pieces) * 2 - 1, pieces)
        return Step(loss, embeddings.detach())

    def after_step(self) -> None:
        self.steps.count += 1

    def groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """The discriminator has the network's rate, no decay and a first momentum of 0.5 (released code)."""
        return apart(super().groups(lr, weight_decay), "discriminator", self.discriminator, lr=lr, weight_decay=0.0,
                     betas=(0.5, 0.999))
