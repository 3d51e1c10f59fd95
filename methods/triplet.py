"""Triplet loss with each of the miners, and with rho-regularisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from methods import MethodError, register, setting
from methods.parts import miners
from methods.parts.miners import Triplets
from methods.parts.ranked import ROTH, SWITCH, Ranked, Switched, cutoff, limit, mean

HU = """
@inproceedings{hu2014discriminative, title={Discriminative Deep Metric Learning for Face Verification in the Wild},
  author={Hu, Junlin and Lu, Jiwen and Tan, Yap-Peng}, booktitle={CVPR}, year={2014}}"""
SCHROFF = """
@inproceedings{schroff2015facenet, title={{FaceNet}: A Unified Embedding for Face Recognition and Clustering},
  author={Schroff, Florian and Kalenichenko, Dmitry and Philbin, James}, booktitle={CVPR}, year={2015}}"""
MINERS = ("distance", "random", "semihard", "softhard", "hard")


@register("triplet", family="ranking", papers=["revisiting", "uml"], cite=HU)
@register("triplet-random", family="ranking", papers=["revisiting"], cite=HU, defaults={"miner": "random"})
@register("triplet-semihard", family="ranking", papers=["revisiting"], cite=SCHROFF, defaults={"miner": "semihard"})
@register("triplet-softhard", family="ranking", papers=["revisiting"], cite=ROTH, defaults={"miner": "softhard"})
class Triplet(Ranked):
    """The positive is nearer to the anchor than the negative, by a margin.

        L = 1/b sum_{(a,p,n)} [d_ap - d_an + gamma]_+

    Revisiting DML eq. 2, with Euclidean distances; `squared` takes their squares, as the released code does, `cosine`
    1 - cos, with `active` as mean over the triplets with a loss (both UML: the base of `triplet-xbm`). One
    triplet for each anchor by the miner `distance` (distance-weighted), `random`, `semihard`, `softhard` or `hard`
    (batch-hard). By hand: pytorch-metric-learning's miners go through lists of triplets.
    """

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(0.2, "Revisiting DML, appendix A.1 (gamma)", search=(0.05, 0.5))
        squared: bool = setting(False, "Revisiting DML eq. 2; its released code squares")
        miner: str = setting("distance", "Revisiting DML, table 2; the name of the method says which")
        cutoff: float = cutoff()
        limit: float = limit()
        cosine: bool = setting(False, "Revisiting DML eq. 2; UML, released code: cosine", later=True)
        active: bool = setting(False, "Revisiting DML eq. 2; UML, released code: mean over the active", later=True)

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        if settings.miner not in MINERS:
            raise MethodError(f"triplet.miner '{settings.miner}' is unknown; there are {', '.join(MINERS)}")

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        if self.settings.miner == "distance":
            return super().mine(embeddings, labels)
        if self.settings.miner == "semihard":
            return miners.semihard(embeddings, labels, self.settings.margin)
        plain = {"random": miners.random, "softhard": miners.softhard, "hard": miners.batch_hard}
        return plain[self.settings.miner](embeddings, labels)

    def loss(self, embeddings: Tensor, labels: Tensor, triplets: Triplets) -> Tensor:
        d_ap, d_an = triplets.distances(embeddings)
        if self.settings.cosine:  # of unit vectors 1 - cos is half the square
            d_ap, d_an = d_ap.square() / 2, d_an.square() / 2
        elif self.settings.squared:
            d_ap, d_an = d_ap.square(), d_an.square()
        losses = (d_ap - d_an + self.settings.margin).relu()
        return mean(losses, triplets.valid & (losses > 0) if self.settings.active else triplets.valid)


@register("r-triplet", family="regularised", papers=["revisiting"], cite=ROTH)
class SwitchedTriplet(Switched, Triplet):
    """Triplet loss where, with probability p, the anchor's own class is pushed away from it.

        (a, p, n) becomes (a, a, p) with probability p_switch, then L as in `triplet`

    Revisiting DML, section 5.1.
    """

    @dataclass(frozen=True)
    class Settings(Triplet.Settings):
        p: float = setting(0.2, SWITCH, search=(0.05, 0.5), cub=0.4, cars=0.35, sop=0.15)
