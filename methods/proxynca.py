"""ProxyNCA and ProxyNCA++."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import register, setting
from methods.parts.proxies import EIGHTH, Proxied, target, with_target


class Nca(Proxied):
    """What the two share: scaled squared distances of embeddings to proxies, both on the unit sphere."""

    def distances(self, embeddings: Tensor) -> Tensor:
        """|s phi_i - s psi_c|^2 = 2 s^2 (1 - cos)."""
        return 2 * self.settings.scale**2 * (1 - self.cosines(embeddings))


@register("proxynca", family="proxy", papers=["revisiting"], trains="network, a proxy per class", cite="""
@inproceedings{movshovitz2017no, title={No Fuss Distance Metric Learning using Proxies},
  author={Movshovitz-Attias, Yair and Toshev, Alexander and Leung, Thomas K. and Ioffe, Sergey and Singh, Saurabh},
  booktitle={ICCV}, year={2017}}""")
class ProxyNca(Nca):
    """An image is to be nearer to its own class's proxy than to all others.

        L = -1/b sum_i log e^{-d(phi_i, psi_y)} / sum_{c != y} e^{-d(phi_i, psi_c)}

    Movshovitz-Attias et al. 2017, eq. 4; Revisiting DML eq. 13. d is the squared Euclidean distance, embeddings and
    proxies lie on the sphere of radius 3. By hand: pytorch-metric-learning keeps the own proxy in the denominator.
    """

    @dataclass(frozen=True)
    class Settings:
        scale: float = setting(3.0, "Revisiting DML, released code")
        proxy_rate: float = setting(50.0, "times lr: Revisiting DML, released code, 5e-4 at 1e-5; " + EIGHTH)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distances = self.distances(embeddings)
        own = target(distances, labels)
        if self.classes == 1:
            return own.mean()
        others = with_target(-distances, labels, torch.full_like(own, -torch.inf))
        return (own + torch.logsumexp(others, 1)).mean()


@register("proxynca++", family="proxy", papers=["uml"], trains="network, a proxy per class", cite="""
@inproceedings{teh2020proxynca, title={{ProxyNCA++}: Revisiting and Revitalizing Proxy Neighborhood Component Analysis},
  author={Teh, Eu Wern and DeVries, Terrance and Taylor, Graham W.}, booktitle={ECCV}, year={2020}}""")
class ProxyNcaPlusPlus(Nca):
    """ProxyNCA as a probability: the own proxy stands in the denominator too, at a low temperature.

        L = -1/b sum_i log e^{-d(phi_i, psi_y) / T} / sum_c e^{-d(phi_i, psi_c) / T},   T = 1/9

    Teh et al. 2020, eq. 6; T as a scale of 3 on both sides. Their max pooling and layer norm belong to the network,
    not to this objective. By hand, as one cross-entropy on the distances of `proxynca`: the value is that of
    pytorch-metric-learning's ProxyNCALoss(softmax_scale=9).
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        scale: float = setting(3.0, "Teh et al. 2020, released code (T = 1/9)")
        proxy_rate: float = setting(50.0, "times lr: as ProxyNCA's in Revisiting DML; " + EIGHTH)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(-self.distances(embeddings), labels)
