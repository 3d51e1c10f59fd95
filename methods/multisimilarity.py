"""Multi-similarity loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Objective, register, setting


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
    the anchors that keep both a positive and a negative.
    """

    @dataclass(frozen=True)
    class Settings:
        alpha: float = setting(2.0, "Revisiting DML, appendix A")
        beta: float = setting(40.0, "Revisiting DML, appendix A")
        threshold: float = setting(0.5, "Revisiting DML, appendix A (lambda)")
        epsilon: float = setting(0.1, "Revisiting DML, appendix A")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        similarity = embeddings @ embeddings.T
        same = labels[:, None] == labels[None, :]
        positive = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        hardest_negative = similarity.masked_fill(same, -torch.inf).amax(1, keepdim=True)
        hardest_positive = similarity.masked_fill(~positive, torch.inf).amin(1, keepdim=True)
        positive = positive & (similarity - s.epsilon < hardest_negative)
        negative = ~same & (similarity + s.epsilon > hardest_positive)

        def soft_sum(exponent: Tensor, mask: Tensor) -> Tensor:
            # log(1 + sum exp): the 1 is an exponent of zero in an extra column
            exponent = torch.cat([exponent.masked_fill(~mask, -torch.inf), exponent.new_zeros(len(exponent), 1)], 1)
            return torch.logsumexp(exponent, 1)

        loss = (soft_sum(-s.alpha * (similarity - s.threshold), positive) / s.alpha
                + soft_sum(s.beta * (similarity - s.threshold), negative) / s.beta)
        kept = positive.any(1) & negative.any(1)
        return (loss * kept).sum() / kept.sum().clamp(min=1)
