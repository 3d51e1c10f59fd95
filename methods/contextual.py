"""Contextual similarity: images are alike that have the same neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.hinges import violations
from methods.parts.neighbours import contextual_similarity


@register("contextual", family="ranking", tags=["modern", "structure"], cite="""
@inproceedings{liao2023supervised, title={Supervised Metric Learning for Retrieval via Contextual Similarity
  Optimization}, author={Liao, Christopher and Tsiligkaridis, Theodoros and Kulis, Brian}, booktitle={ICML},
  year={2023}}""")
class Contextual(Objective):
    """Images of one class are to have the same neighbours, and similarities to stay spread out.

        L = lambda L_context + gamma (mean_ij s_ij - r)^2 + (1 - lambda - gamma) L_contrast
        L_context = 1/b^2 sum_{i != j} (y_ij - w_ij)^2,   y_ij = [y_i = y_j]
        L_contrast = mean_active [m+ - s_ap]_+ + mean_active [s_an - m-]_+

    w_ij is the contextual similarity of k neighbours, whose steps have a constant slope in the backward pass. Liao et
    al. 2023, as in their released code, losses.py and main.py (256 px; at 224 px lambda is .05 on CUB, .2 elsewhere).
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        k: int = setting(4, "Liao et al. 2023, released code: the images of a class in a batch")
        epsilon: float = setting(0.05, "Liao et al. 2023, released code")
        weight: float = setting(0.4, "Liao et al. 2023, released code (lambda)")
        spread_weight: float = setting(0.1, "Liao et al. 2023, released code (gamma)")
        spread: float = setting(0.25, "Liao et al. 2023, released code (r)")
        positive: float = setting(0.75, "Liao et al. 2023, released code (m+)")
        negative: float = setting(0.6, "Liao et al. 2023, released code (m-)")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        similarity = gram(embeddings)
        same = (labels[:, None] == labels[None, :]).to(similarity.dtype)
        wrong = (same - contextual_similarity(similarity, s.k, s.epsilon)).square()
        context = (wrong.sum() - wrong.diagonal().sum()) / len(labels)**2
        spread = (similarity.mean() - s.spread).square()
        contrast = sum(violations(similarity, labels, s.positive, s.negative))
        return s.weight * context + s.spread_weight * spread + (1 - s.weight - s.spread_weight) * contrast
