"""N-pair loss, and the angular loss that builds on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.miners import masks


def positive_pairs(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ordered pairs (a, p) of one class, and for each which images are negatives of a."""
    positive, negative = masks(labels)
    anchor, partner = positive.nonzero(as_tuple=True)
    return anchor, partner, negative[anchor]


def soft_plus_sum(exponent: Tensor, mask: Tensor) -> Tensor:
    """Mean over the rows of log(1 + sum_{n in mask} e^{x_n}); zero without rows."""
    rows = F.softplus(torch.logsumexp(exponent.masked_fill(~mask, -torch.inf), 1))
    return rows.sum() / max(len(rows), 1)


@register("npair", family="ranking", papers=["revisiting"], cite="""
@inproceedings{sohn2016improved, title={Improved Deep Metric Learning with Multi-class N-pair Loss Objective},
  author={Sohn, Kihyuk}, booktitle={NeurIPS}, year={2016}}""")
class NPair(Objective):
    """Each positive pair against all negatives of the batch at once.

        L = 1/|P| sum_{(a,p) in P} log(1 + sum_{n : y_n != y_a} e^{phi*_a.phi*_n - phi*_a.phi*_p})
          + nu/b sum_i |phi*_i|^2

    Sohn 2016; Revisiting DML eq. 4, on embeddings that are not normalised. P are all ordered pairs of one class: as
    many as images (the 1/b of the equation) with two images a class. Its released code penalises |phi*| and not the
    square, and searches embeddings as they are. By hand: pytorch-metric-learning takes one pair of each class and only
    other pairs' positives as negatives.
    """

    normalised = False

    @dataclass(frozen=True)
    class Settings:
        nu: float = setting(0.005, "Revisiting DML, appendix A.1")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        products = gram(embeddings)
        a, p, negative = positive_pairs(labels)
        exponent = products[a] - products[a, p][:, None]
        return soft_plus_sum(exponent, negative) + self.settings.nu * embeddings.square().sum(1).mean()


@register("angular", family="ranking", papers=["revisiting"], cite="""
@inproceedings{wang2017deep, title={Deep Metric Learning with Angular Loss},
  author={Wang, Jian and Zhou, Feng and Wen, Shilei and Liu, Xiao and Lin, Yuanqing}, booktitle={ICCV}, year={2017}}""")
class Angular(NPair):
    """N-pair loss, and a bound alpha on the angle at the negative of the triangle with the positive pair.

        L = L_npair(phi*) + lambda/|P| sum_{(a,p)} log(1 + sum_n e^{f_apn})
        f_apn = 4 tan^2(alpha) (phi_a + phi_p).phi_n - 2 (1 + tan^2(alpha)) phi_a.phi_p

    Wang et al. 2017, eq. 8 (Revisiting DML eq. 5 misplaces a bracket and writes phi_n in the last product). The
    N-pair part takes embeddings as they are, the angular part normalised ones. By hand: pytorch-metric-learning's
    has the angular part alone.
    """

    @dataclass(frozen=True)
    class Settings(NPair.Settings):
        alpha: float = setting(45.0, "Revisiting DML, appendix A.1 (degrees)")
        weight: float = setting(2.0, "Revisiting DML, appendix A.1 (lambda)")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        tan2 = math.tan(math.radians(self.settings.alpha)) ** 2
        unit = F.normalize(embeddings, dim=-1)
        products = gram(unit)
        a, p, negative = positive_pairs(labels)
        exponent = 4 * tan2 * (products[a] + products[p]) - 2 * (1 + tan2) * products[a, p][:, None]
        return super().forward(embeddings, labels) + self.settings.weight * soft_plus_sum(exponent, negative)
