"""ROADMAP: an upper bound of average precision, and calibrated similarities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.hinges import violations
from methods.parts.ranks import ITSELF, count_before, rankings


@register("roadmap", family="ranking", tags=["modern", "ranking-surrogate"], cite="""
@inproceedings{ramzi2021robust, title={Robust and Decomposable Average Precision for Image Retrieval},
  author={Ramzi, Elias and Thome, Nicolas and Rambour, Cl{\\'e}ment and Audebert, Nicolas and Bitot, Xavier},
  booktitle={NeurIPS}, year={2021}}""")
class Roadmap(Objective):
    """Average precision bounded from above (SupAP), with thresholds that make batches comparable (calibration).

        L = (1 - lambda) L_SupAP + lambda (mean_active [alpha - s_ap]_+ + mean_active [s_an - beta]_+)
        L_SupAP = 1/A sum_a (1 - 1/|P_a| sum_{p in P_a} R_ap / (R_ap + sum_{n in N_a} H(s_an - s_ap)))
        R_ap = 1 + #{q in P_a : q != p, s_aq >= s_ap},   G(x) = 1/(1 + e^{-x / tau})
        H(x) = G(x) for x <= 0,   G(x) + 1/2 up to delta,   rho (x - delta) + o beyond

    Ramzi et al. 2021. R_ap has no gradient: a positive is never pushed behind another. As in their code,
    roadmap/losses/, the means of the calibration are over the pairs that violate it; that code also ranks each image in
    its own ranking (`itself_released`), and its o is a little below G(delta) + 1/2 = 1.493, where H were continuous.
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        weight: float = setting(0.5, "Ramzi et al. 2021, released runs: both terms alike (lambda)")
        temperature: float = setting(0.01, "Ramzi et al. 2021, released runs (tau)")
        slope: float = setting(100.0, "Ramzi et al. 2021, released runs (rho)")
        delta: float = setting(0.05, "Ramzi et al. 2021, released runs")
        offset: float = setting(1.44, "Ramzi et al. 2021, released runs (o)")
        positive: float = setting(0.9, "Ramzi et al. 2021, released runs (alpha)")
        negative: float = setting(0.6, "Ramzi et al. 2021, released runs (beta)")
        itself_released: bool = setting(False, ITSELF)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        similarity = gram(embeddings)
        ranks = rankings(similarity, labels, s.itself_released)
        smooth = (ranks.gap / s.temperature).sigmoid()
        steep = torch.where(ranks.gap > s.delta, s.slope * (ranks.gap - s.delta) + s.offset, smooth + 0.5)
        rank_positive = 1 + count_before(ranks.gap >= 0, ranks.positive)
        before = count_before(torch.where(ranks.gap > 0, steep, smooth), ranks.negative)
        short, far = violations(similarity, labels, s.positive, s.negative)
        return (1 - s.weight) * ranks.mean(1 - rank_positive / (rank_positive + before)) + s.weight * (short + far)
