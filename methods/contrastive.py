"""Contrastive loss, plain and with rho-regularisation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import register, setting
from methods.parts.miners import Triplets
from methods.parts.ranked import ROTH, SWITCH, Ranked, Switched, cutoff, limit, mean


@register("contrastive", family="ranking", papers=["revisiting"], cite="""
@inproceedings{hadsell2006dimensionality, title={Dimensionality Reduction by Learning an Invariant Mapping},
  author={Hadsell, Raia and Chopra, Sumit and LeCun, Yann}, booktitle={CVPR}, year={2006}}""")
class Contrastive(Ranked):
    """Pairs of one class are drawn together, pairs of two classes pushed apart up to a margin.

        L = 1/b sum_{(a,p,n)} d_ap + [gamma - d_an]_+

    Hadsell et al. 2006; Revisiting DML eq. 1, on the pairs of distance-weighted triplets. By hand:
    pytorch-metric-learning averages the two hinges separately over those that are not zero.
    """

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(1.0, "Revisiting DML, appendix A.1 (gamma)", search=(0.3, 1.5))
        cutoff: float = cutoff()
        limit: float = limit()

    def loss(self, embeddings: Tensor, labels: Tensor, triplets: Triplets) -> Tensor:
        d_ap, d_an = triplets.distances(embeddings)
        return mean(d_ap + (self.settings.margin - d_an).relu(), triplets.valid)


@register("r-contrastive", family="regularised", papers=["revisiting"], cite=ROTH)
class SwitchedContrastive(Switched, Contrastive):
    """Contrastive loss where, with probability p, the anchor's own class is pushed away from it.

        (a, p, n) becomes (a, a, p) with probability p_switch, then L as in `contrastive`

    Revisiting DML, section 5.1.
    """

    @dataclass(frozen=True)
    class Settings(Contrastive.Settings):
        p: float = setting(0.2, SWITCH, search=(0.05, 0.5), cub=0.4, cars=0.35, sop=0.15)
