"""Multi-similarity loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.miners import masks, multi_similarity
from methods.parts.ranked import mean


def weigh_pairs(similarity: Tensor, positives: Tensor, negatives: Tensor, s: MultiSimilarity.Settings) -> Tensor:
    """The loss over the pairs (anchor, other) of a matrix of similarities, given which are positive and negative."""
    positive, negative = multi_similarity(similarity.detach(), positives, negatives, s.epsilon)

    def soft_sum(exponent: Tensor, mask: Tensor) -> Tensor:
        # softplus(log sum exp x) = log(1 + sum exp x)
        return F.softplus(torch.logsumexp(exponent.masked_fill(~mask, -torch.inf), 1))

    loss = (soft_sum(-s.alpha * (similarity - s.threshold), positive) / s.alpha
            + soft_sum(s.beta * (similarity - s.threshold), negative) / s.beta)
    return mean(loss, positive.any(1) & negative.any(1))


@register("multisimilarity", family="ranking", papers=["oodml", "revisiting", "uml"], tags=["oodml-study"], cite="""
@inproceedings{wang2019multi, title={Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning},
  author={Wang, Xun and Han, Xintong and Huang, Weilin and Dong, Dengke and Scott, Matthew R.},
  booktitle={CVPR}, year={2019}}""")
class MultiSimilarity(Objective):
    """Pairs weighted by how they compare with the other pairs of their anchor.

        L = 1/b sum_i [ 1/alpha log(1 + sum_{k in P_i} e^{-alpha (S_ik - lambda)})
                      + 1/beta  log(1 + sum_{k in N_i} e^{ beta (S_ik - lambda)}) ]

    A positive stays in P_i if S_ik - epsilon < max_neg S, a negative in N_i if S_ik + epsilon > min_pos S.
    Wang et al. 2019, eq. 11-16. As in Revisiting DML, the anchor is never its own positive; the mean is over
    the anchors that keep both a positive and a negative. By hand: pytorch-metric-learning means over all anchors,
    and its miner goes through lists of pairs.
    """

    @dataclass(frozen=True)
    class Settings:
        alpha: float = setting(2.0, "Revisiting DML, appendix A", search=(0.5, 8.0))
        beta: float = setting(40.0, "Revisiting DML, appendix A", search=(10.0, 80.0))
        threshold: float = setting(0.5, "Revisiting DML, appendix A (lambda)", search=(0.25, 1.0))
        epsilon: float = setting(0.1, "Revisiting DML, appendix A", search=(0.03, 0.3))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return weigh_pairs(gram(embeddings), *masks(labels), self.settings)
