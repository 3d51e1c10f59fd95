"""Threshold-consistent margin: one distance threshold for all classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from methods import register, setting
from methods.parts.distances import gram
from methods.parts.hinges import violations
from methods.parts.regularised import Batch, Regularised


@register("tcm", family="auxiliary", tags=["modern", "threshold"], base="smoothap",
          trains="network, and what its objective has", cite="""
@inproceedings{zhang2024threshold, title={Threshold-Consistent Margin Loss for Open-World Deep Metric Learning},
  author={Zhang, Qin and Xu, Linghan and Tang, Qingming and Fang, Jun and Wu, Ying Nian and Tighe, Joe and Xing, Yifan},
  booktitle={ICLR}, year={2024}}""")
class ThresholdConsistentMargin(Regularised):
    """Hard pairs of every class are brought to the same two similarities, whatever the objective ranks by.

        L = L_base + lambda+ sum_{S+, s <= m+} (m+ - s) / |{s in S+ : s <= m+}|
                   + lambda- sum_{S-, s >= m-} (s - m-) / |{s in S- : s >= m-}|

    S+ and S- are the cosine similarities of the positive and negative pairs of the batch. Zhang et al. 2024, in the
    form and with the values of pytorch-metric-learning's ThresholdConsistentMarginLoss.
    """

    @dataclass(frozen=True)
    class Settings:
        positive: float = setting(0.9, "Zhang et al. 2024, as in pytorch-metric-learning (m+)")
        negative: float = setting(0.5, "Zhang et al. 2024, as in pytorch-metric-learning (m-)")
        positive_weight: float = setting(1.0, "Zhang et al. 2024, as in pytorch-metric-learning (lambda+)")
        negative_weight: float = setting(1.0, "Zhang et al. 2024, as in pytorch-metric-learning (lambda-)")

    def penalty(self, batch: Batch) -> Tensor:
        s = self.settings
        similarity = gram(F.normalize(batch.embeddings, dim=1))
        short, far = violations(similarity, batch.labels, s.positive, s.negative)
        return s.positive_weight * short + s.negative_weight * far
