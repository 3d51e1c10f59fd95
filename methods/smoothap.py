"""Smooth-AP: average precision with ranks counted by sigmoids."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.ranks import ITSELF, count_before, rankings


@register("smoothap", family="ranking", tags=["modern", "ranking-surrogate"], cite="""
@inproceedings{brown2020smooth, title={{Smooth-AP}: Smoothing the Path Towards Large-Scale Image Retrieval},
  author={Brown, Andrew and Xie, Weidi and Kalogeiton, Vicky and Zisserman, Andrew}, booktitle={ECCV}, year={2020}}""")
class SmoothAP(Objective):
    """One minus the average precision of each image's ranking of the batch, its steps smoothed.

        L = 1/A sum_a (1 - 1/|P_a| sum_{p in P_a} (1 + r^+_ap) / (1 + r^+_ap + r^-_ap))
        r^+_ap = sum_{q in P_a, q != p} G(s_aq - s_ap),   r^-_ap = sum_{n in N_a} G(s_an - s_ap)
        G(x) = 1 / (1 + e^{-x / tau})

    Brown et al. 2020, over the A anchors with a positive. Their code, src/Smooth_AP_loss.py, also ranks each image in
    its own ranking, as a positive at the top: `itself_released`. By hand: pytorch-metric-learning's wants classes of
    equal size and confuses their number with their size, so that it is right only where the two are equal.
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        temperature: float = setting(0.01, "Brown et al. 2020, released code (tau)")
        itself_released: bool = setting(False, ITSELF)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        ranks = rankings(gram(embeddings), labels, self.settings.itself_released)
        before = (ranks.gap / self.settings.temperature).sigmoid()
        positives = 1 + count_before(before, ranks.positive)
        return ranks.mean(1 - positives / (positives + count_before(before, ranks.negative)))
