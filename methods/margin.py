"""Margin loss, plain and with rho-regularisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from methods import register, setting
from methods.parts.miners import Triplets
from methods.parts.ranked import ROTH, SWITCH, Ranked, Switched, cutoff, limit

WU = """
@inproceedings{wu2017sampling, title={Sampling Matters in Deep Embedding Learning},
  author={Wu, Chao-Yuan and Manmatha, R. and Smola, Alexander J. and Kr{\\"a}henb{\\"u}hl, Philipp},
  booktitle={ICCV}, year={2017}}"""


@register("margin", family="ranking", papers=["oodml", "revisiting", "uml"], tags=["oodml-study"], cite=WU,
          trains="network, a boundary per class")
@register("margin-b06", family="ranking", papers=["revisiting"], cite=WU, defaults={"beta": 0.6},
          trains="network, a boundary per class")
class Margin(Ranked):
    """Positives within, negatives beyond a learnt boundary beta of the anchor's class.

        L = 1/|active| sum_{(a,p,n)} [d_ap - beta_{y_a} + gamma]_+ + [beta_{y_a} - d_an + gamma]_+

    Wu et al. 2017, eq. 5 and section 4; Revisiting DML eq. 10. Triplets by distance-weighted mining; the divisor
    is the number of pairs with a positive loss. `released_divisor` counts triplets with at least one such pair, as
    the released code does. By hand: pytorch-metric-learning's has the same formula on a far slower miner.
    """

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(0.2, "Revisiting DML, appendix A.1 (gamma)", search=(0.05, 0.4))
        beta: float = setting(1.2, "ooDML, released runs; Revisiting DML, appendix A.1", search=(0.5, 1.4))
        beta_rate: float = setting(50.0, "times lr: Revisiting DML, appendix A.1; ooDML, released code: 5e-4 at 1e-5")
        cutoff: float = cutoff()
        limit: float = limit()
        released_divisor: bool = setting(False, "pairs, as in the paper")

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        self.beta = nn.Parameter(torch.full((classes,), float(settings.beta)))

    def rates(self) -> dict[str, float]:
        return {"beta": self.settings.beta_rate}

    def loss(self, embeddings: Tensor, labels: Tensor, triplets: Triplets) -> Tensor:
        d_ap, d_an = triplets.distances(embeddings)
        beta = self.beta.index_select(0, labels[triplets.anchor])
        hinges = (torch.stack([d_ap - beta, beta - d_an]) + self.settings.margin).relu() * triplets.valid
        active = hinges > 0
        count = active.any(0).sum() if self.settings.released_divisor else active.sum()
        return hinges.sum() / count.clamp(min=1)


@register("r-margin", family="regularised", papers=["oodml", "revisiting"], tags=["oodml-study"], cite=ROTH,
          trains="network, a boundary per class")
class SwitchedMargin(Switched, Margin):
    """Margin loss where, with probability p, the anchor's own class is pushed away from it (beta 0.6).

        (a, p, n) becomes (a, a, p) with probability p_switch, then L as in `margin`

    Revisiting DML, section 5.1: keeps the embedding from collapsing onto the few directions that separate the
    training classes.
    """

    @dataclass(frozen=True)
    class Settings(Margin.Settings):
        beta: float = setting(0.6, "Revisiting DML; ooDML, released runs (SOP .9)", search=(0.5, 1.4), sop=0.9)
        p: float = setting(0.2, SWITCH, search=(0.05, 0.5), cub=0.4, cars=0.35, sop=0.15)


@register("r-margin-b12", family="regularised", papers=["revisiting"], cite=ROTH,
          trains="network, a boundary per class")
class SwitchedMargin12(SwitchedMargin):
    """Margin loss with rho-regularisation from a boundary of 1.2; see `r-margin`."""

    @dataclass(frozen=True)
    class Settings(SwitchedMargin.Settings):
        beta: float = setting(1.2, "Revisiting DML, table 2", search=(0.5, 1.4))
        p: float = setting(0.2, SWITCH, search=(0.05, 0.5), cub=0.35, cars=0.35, sop=0.15)
