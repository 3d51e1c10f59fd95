"""Generalised lifted structure loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import pairwise
from methods.parts.miners import masks
from methods.parts.ranked import mean


@register("genlifted", family="ranking", papers=["revisiting"], cite="""
@article{hermans2017defense, title={In Defense of the Triplet Loss for Person Re-Identification},
  author={Hermans, Alexander and Beyer, Lucas and Leibe, Bastian}, journal={arXiv:1703.07737}, year={2017}}""")
class GeneralisedLifted(Objective):
    """All positives against all negatives of an anchor, by smooth maxima.

        L = 1/b sum_a [ log sum_{p : y_p = y_a} e^{d_ap} + log sum_{n : y_n != y_a} e^{gamma - d_an} ]_+
          + nu/b sum_a |phi*_a|^2

    Hermans et al. 2017; Revisiting DML eq. 3 on embeddings that are not normalised, as a mean over the anchors that
    have both (the equation sums; its released code takes the mean, penalises |phi*| and not the square, and searches
    embeddings as they are). By hand: pytorch-metric-learning gives anchors without a positive a loss and averages over
    non-zero terms.
    """

    normalised = False

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(1.0, "Revisiting DML, appendix A.1 (gamma)")
        nu: float = setting(0.005, "Revisiting DML, appendix A.1")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        positive, negative = masks(labels)
        distance = pairwise(embeddings)
        valid = positive.any(1) & negative.any(1)
        # a row without entries would be log 0, and its gradient not a number
        positive, negative = positive | ~valid[:, None], negative | ~valid[:, None]
        pull = torch.logsumexp(distance.masked_fill(~positive, -torch.inf), 1)
        push = torch.logsumexp((self.settings.margin - distance).masked_fill(~negative, -torch.inf), 1)
        return mean((pull + push).relu(), valid) + self.settings.nu * embeddings.square().sum(1).mean()
