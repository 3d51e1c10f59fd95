"""Signal-to-noise-ratio triplet loss, plain and with rho-regularisation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import register, setting
from methods.parts.distances import TINY
from methods.parts.miners import Triplets
from methods.parts.ranked import ROTH, SWITCH, Ranked, Switched, cutoff, limit, mean


def snr_distance(anchor: Tensor, other: Tensor) -> Tensor:
    """Variance of the difference over variance of the anchor: var(phi_i - phi_j) / var(phi_i)."""
    return (anchor - other).var(-1) / anchor.var(-1).clamp(min=TINY)


@register("snr", family="ranking", papers=["revisiting"], cite="""
@inproceedings{yuan2019signal, title={Signal-to-Noise Ratio: A Robust Distance Metric for Deep Metric Learning},
  author={Yuan, Tongtong and Deng, Weihong and Tang, Jian and Tang, Yinan and Chen, Binghui}, booktitle={CVPR},
  year={2019}}""")
class SignalToNoise(Ranked):
    """Triplet loss on the ratio of noise (the difference) to signal (the anchor).

        d_S(i, j) = var(phi_i - phi_j) / var(phi_i)
        L = 1/|active| sum_{(a,p,n)} [d_S(a,p) - d_S(a,n) + gamma]_+ + lambda/b sum_i |sum_m phi_im|

    Yuan et al. 2019, eq. 6 and 11; Revisiting DML eq. 15, which prints the ratio without squares. The second term
    keeps embeddings at zero mean (the released code drops it with distance-weighted mining). By hand:
    pytorch-metric-learning has the contrastive form only.
    """

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(0.2, "Revisiting DML, appendix A.1 (gamma)")
        nu: float = setting(0.005, "Revisiting DML, appendix A.1 (lambda); 0 in its released runs")
        cutoff: float = cutoff()
        limit: float = limit()

    def loss(self, embeddings: Tensor, labels: Tensor, triplets: Triplets) -> Tensor:
        chosen = triplets.of(embeddings)
        d_ap, d_an = snr_distance(chosen[:1], chosen[1:])
        losses = (d_ap - d_an + self.settings.margin).relu()
        return mean(losses, triplets.valid & (losses > 0)) + self.settings.nu * embeddings.sum(1).abs().mean()


@register("r-snr", family="regularised", papers=["revisiting"], cite=ROTH)
class SwitchedSignalToNoise(Switched, SignalToNoise):
    """Signal-to-noise-ratio loss where, with probability p, the anchor's own class is pushed away from it.

        (a, p, n) becomes (a, a, p) with probability p_switch, then L as in `snr`

    Revisiting DML, section 5.1.
    """

    @dataclass(frozen=True)
    class Settings(SignalToNoise.Settings):
        p: float = setting(0.2, SWITCH, cub=0.3, cars=0.35, sop=0.15)
