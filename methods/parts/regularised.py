"""What methods share that add one term to any objective, and leave network and search as they are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from methods.method import Method, Step


class Batch(NamedTuple):
    """What a term may look at: images, pooled features, training embeddings as the objective gets them, labels."""

    images: Tensor
    features: Tensor
    embeddings: Tensor
    labels: Tensor


class Regularised(Method):
    """An objective and a further term of the same batch: L = L_base + penalty."""

    def step(self, images: Tensor, labels: Tensor) -> Step:
        features = self.features(images)
        embeddings = self.project(features)
        with torch.autocast(images.device.type, enabled=False):
            embeddings = embeddings.float()
            penalty = self.penalty(Batch(images, features.float(), embeddings, labels))
            return Step(self.combine(self.objective(embeddings, labels), penalty), embeddings.detach())

    def combine(self, base: Tensor, penalty: Tensor) -> Tensor:
        """The loss of the objective's value and of the term; their sum, unless the method also weighs the objective."""
        return base + penalty

    def penalty(self, batch: Batch) -> Tensor:
        raise NotImplementedError
