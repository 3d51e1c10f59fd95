"""PNP: only negatives before a positive are penalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from methods import MethodError, Objective, register, setting
from methods.parts.distances import gram
from methods.parts.ranks import ITSELF, count_before, rankings

VARIANTS = ("o", "iu", "ib", "ds", "dq")


@register("pnp", family="ranking", tags=["modern", "ranking-surrogate"], cite="""
@inproceedings{li2022rethinking, title={Rethinking the Optimization of Average Precision: Only Penalizing Negative
  Instances before Positive Ones is Enough}, author={Li, Zhuo and Min, Weiqing and Song, Jiajun and Zhu, Yaohui and
  Kang, Liping and Wei, Xiaoming and Wei, Xiaolin and Jiang, Shuqiang}, booktitle={AAAI}, year={2022}}""")
class PNP(Objective):
    """The soft number of negatives before each positive, under a function that decides which positives count most.

        L = 1/A sum_a 1/|P_a| sum_{p in P_a} f(r_ap),   r_ap = sum_{n in N_a} 1/(1 + e^{-(s_an - s_ap)/tau})
        f(r) = r (o), (1 + r) log(1 + r) (iu), (b r - log(1 + b r)) / b^2 (ib), log(1 + r) (ds), 1 - (1 + r)^-alpha (dq)

    Li et al. 2022 (PNP-O, -I_u, -I_b, -D_s, -D_q), over the A anchors with a positive. Their code, criteria/PNP.py,
    also counts each image as a positive of itself: `itself_released`, then it is pytorch-metric-learning's.
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        variant: str = setting("dq", "Li et al. 2022, released run of SOP; o, iu, ib, ds or dq")
        alpha: float = setting(1.0, "Li et al. 2022, released code; its run of SOP 4 (dq)", sop=4.0)
        b: float = setting(2.0, "Li et al. 2022, released code (ib)")
        temperature: float = setting(0.01, "Li et al. 2022, released code (tau)")
        itself_released: bool = setting(False, ITSELF)

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        if settings.variant not in VARIANTS:
            raise MethodError(f"pnp.variant = '{settings.variant}': there are {', '.join(VARIANTS)}")

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        ranks = rankings(gram(embeddings), labels, s.itself_released)
        r = count_before((ranks.gap / s.temperature).sigmoid(), ranks.negative)
        assign = {"o": lambda: r, "iu": lambda: (1 + r) * r.log1p(), "ds": lambda: r.log1p(),
                  "ib": lambda: (s.b * r - (s.b * r).log1p()) / s.b**2, "dq": lambda: 1 - (1 + r) ** -s.alpha}
        return ranks.mean(assign[s.variant]())
