"""HIER: hierarchical proxies in hyperbolic space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import Method, Objective, Step, register, setting
from methods.layers.hierarchy import Hierarchy
from methods.parts.hyperbolic import in_ball


@register("hier", family="hyperbolic", tags=["modern", "structure"], base="proxyanchor",
          trains="network, hierarchical proxies, and what its objective has", cite="""
@inproceedings{kim2023hier, title={{HIER}: Metric Learning Beyond Class Labels via Hierarchical Regularization},
  author={Kim, Sungyeon and Jeong, Boseung and Kwak, Suha}, booktitle={CVPR}, year={2023}}""")
class Hier(Method):
    """Learnt proxies in the Poincaré ball arrange images, and one another, in a hierarchy without labels.

        L = L_base + lambda (H(images) + H(proxies)),   H = mean_{(i,j,m)} [d_i,ij - d_i,ijm + delta]_+
                                                  + [d_j,ij - d_j,ijm + delta]_+ + [d_m,ijm - d_m,ij + delta]_+

    d_x,ij is the hyperbolic distance of x to the common ancestor of i and j: the proxy drawn by Gumbel softmax over
    -max(d_i, d_j) / tau. j is of the mutual k nearest of i, m is not; a triplet whose ancestors are one has no loss.
    Kim et al. 2023, as in their released code, hier/losses.py, where images of one class are nearest of all, with its
    Riemannian gradients. The norm before the last layer is left out (`--backbone resnet50@meanmax-ln` has it); images
    are searched by direction.
    """

    example_settings: ClassVar[dict[str, Any]] = {"proxies": 12, "neighbours": 6}

    @dataclass(frozen=True)
    class Settings:
        weight: float = setting(0.5, "Kim et al. 2023, released runs of ResNet-50 (lambda)")
        proxies: int = setting(512, "Kim et al. 2023, released runs")
        neighbours: int = setting(20, "Kim et al. 2023, released runs (k)")
        draws: int = setting(50, "Kim et al. 2023, released code: triplets of each i")
        margin: float = setting(0.1, "Kim et al. 2023, released runs (delta)")
        temperature: float = setting(0.1, "Kim et al. 2023, released code (tau)")
        curvature: float = setting(0.1, "Kim et al. 2023, released runs (c)")
        radius: float = setting(2.3, "Kim et al. 2023, released runs (feature clipping)")
        hierarchy_rate: float = setting(50.0, "times lr: Kim et al. 2023, released code")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.hierarchy = Hierarchy(self.settings, objective.classes, dim)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        z = self.embedding(self.features(images))
        with torch.autocast(images.device.type, enabled=False):
            z = z.float()
            points = in_ball(z, self.settings.radius, self.settings.curvature)
            embeddings = F.normalize(points, dim=1) if self.objective.normalised else z
            loss = self.objective(embeddings, labels) + self.settings.weight * self.hierarchy(z, labels)
        return Step(loss, embeddings.detach())
