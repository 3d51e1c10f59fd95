"""Circle loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.miners import masks
from methods.parts.ranked import mean


@register("circle", family="ranking", tags=["modern", "margin"], cite="""
@inproceedings{sun2020circle, title={Circle Loss: A Unified Perspective of Pair Similarity Optimization},
  author={Sun, Yifan and Cheng, Changmao and Zhang, Yuhan and Zhang, Chi and Zheng, Liang and Wang, Zhongdao and
  Wei, Yichen}, booktitle={CVPR}, year={2020}}""")
class Circle(Objective):
    """Each similarity is weighted by how far it is from its optimum, so that pairs near it are left alone.

        L = mean_a log(1 + sum_{n in N_a} e^{gamma w_an (s_an - m)} sum_{p in P_a} e^{-gamma w_ap (s_ap - (1 - m))})
        w_an = [s_an + m]_+,   w_ap = [1 + m - s_ap]_+   (without gradient)

    Sun et al. 2020, over the anchors with a positive and a negative. By hand: the same as
    pytorch-metric-learning's, which divides by the anchors whose loss does not round to zero.
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(0.4, "Sun et al. 2020, fine-grained retrieval (m)")
        scale: float = setting(80.0, "Sun et al. 2020, fine-grained retrieval (gamma)")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        m = self.settings.margin
        similarity = gram(embeddings)
        constant = similarity.detach()
        positives, negatives = masks(labels)
        valid = positives.any(1) & negatives.any(1)
        pull = -self.settings.scale * (1 + m - constant).relu() * (similarity - (1 - m))
        push = self.settings.scale * (constant + m).relu() * (similarity - m)
        # rows without a pair are summed whole, so that no infinity enters the gradient
        pull = torch.logsumexp(pull.masked_fill(~positives & valid[:, None], -torch.inf), 1)
        push = torch.logsumexp(push.masked_fill(~negatives & valid[:, None], -torch.inf), 1)
        return mean(F.softplus(pull + push), valid)
