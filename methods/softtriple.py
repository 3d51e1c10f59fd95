"""SoftTriple loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import register, setting
from methods.parts.distances import root
from methods.parts.proxies import Proxied, target, with_target


@register("softtriple", family="proxy", papers=["revisiting", "uml"], trains="network, centres per class",
          cite="""
@inproceedings{qian2019softtriple, title={{SoftTriple} Loss: Deep Metric Learning Without Triplet Sampling},
  author={Qian, Qi and Shang, Lei and Sun, Baigui and Hu, Juhua and Li, Hao and Jin, Rong}, booktitle={ICCV},
  year={2019}}""")
class SoftTriple(Proxied):
    """Classification against several centres of each class, which are drawn together where they are not needed.

        S_ic = sum_k softmax_k(phi_i.w_ck / gamma) phi_i.w_ck
        L = -1/b sum_i log e^{lambda (S_iy - delta)} / (e^{lambda (S_iy - delta)} + sum_{c != y} e^{lambda S_ic})
          + tau / (C K (K - 1)) sum_c sum_{s < t} sqrt(2 - 2 w_cs.w_ct)

    Qian et al. 2019, eq. 7-9, with their settings. Revisiting DML used 2 centres, lambda 8 and a centre rate of 1e-5,
    in a code with its softmax over the wrong axis. By hand: pytorch-metric-learning's lacks the last term.
    """

    @dataclass(frozen=True)
    class Settings:
        centres: int = setting(10, "Qian et al. 2019 (K); Revisiting DML 2", search=[2, 5, 10])
        scale: float = setting(20.0, "Qian et al. 2019 (lambda); Revisiting DML 8", search=(4.0, 40.0))
        gamma: float = setting(0.1, "Qian et al. 2019")
        tau: float = setting(0.2, "Qian et al. 2019; UML's released code has no such term", search=(0.02, 0.5))
        delta: float = setting(0.01, "Qian et al. 2019", search=(0.003, 0.1))
        proxy_rate: float = setting(100.0, "times lr: Qian et al. 2019, released code, .01 at 1e-4; Revisiting DML 1")

    def initial(self, classes: int, dim: int) -> Tensor:
        return nn.init.kaiming_uniform_(torch.empty(classes * self.settings.centres, dim), a=5**0.5)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        similarity = self.cosines(embeddings).view(len(labels), self.classes, s.centres)
        relaxed = ((similarity / s.gamma).softmax(2) * similarity).sum(2)
        logits = with_target(relaxed, labels, target(relaxed, labels) - s.delta)
        return F.cross_entropy(s.scale * logits, labels) + s.tau * self.spread()

    def spread(self) -> Tensor:
        """Mean distance of two centres of a class, halved."""
        if self.settings.centres == 1:
            return self.proxies.sum() * 0
        centres = F.normalize(self.proxies, dim=-1).view(self.classes, self.settings.centres, -1)
        first, second = torch.triu_indices(self.settings.centres, self.settings.centres, 1, device=centres.device)
        squared = 2 - 2 * (centres @ centres.transpose(1, 2))[:, first, second]
        return root(squared).sum() / (self.classes * self.settings.centres * (self.settings.centres - 1))
