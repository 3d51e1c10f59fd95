"""CurricularFace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import register, setting
from methods.parts.proxies import Proxied, angle, target, with_target


@register("curricularface", family="classification", papers=["uml"], trains="network, a centre per class", cite="""
@inproceedings{huang2020curricularface, title={{CurricularFace}: Adaptive Curriculum Learning Loss for Deep Face
  Recognition}, author={Huang, Yuge and Wang, Yuhan and Tai, Ying and Liu, Xiaoming and Shen, Pengcheng and Li, Shaoxin
  and Li, Jilin and Huang, Feiyue}, booktitle={CVPR}, year={2020}}""")
class CurricularFace(Proxied):
    """An angular margin for the own class, and hard negatives that weigh more the further training has come.

        L = -1/b sum_i log e^{s cos(theta_y + m)} / (e^{s cos(theta_y + m)} + sum_{j != y} e^{s N(t, cos theta_j)})
        N(t, c) = c where cos(theta_y + m) >= c,  c (t + c) where not
        t <- 0.01 mean_i cos theta_y + 0.99 t

    Huang et al. 2020, eq. 5-8; one t, renewed before it is used. With `per_class_released` each class has its own t,
    renewed after the loss, as in the released code of UML. Both codes put cos theta_y - m sin m for cos(theta_y + m)
    where theta_y + m exceeds pi, which the equations do not. pytorch-metric-learning has none.
    """

    batches = "random"
    t: Tensor

    @dataclass(frozen=True)
    class Settings:
        scale: float = setting(32.0, "UML, appendix A (s); Huang et al. 64", search=(8.0, 128.0))
        margin: float = setting(0.3, "UML, appendix A (m); Huang et al. .5", search=(0.05, 0.7))
        momentum: float = setting(0.99, "Huang et al. 2020, section 3.2 (alpha)")
        per_class_released: bool = setting(False, "Huang et al. 2020: one t for all")
        proxy_rate: float = setting(50.0, "times lr: as ArcFace's in Revisiting DML")

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        self.register_buffer("t", torch.zeros(classes if settings.per_class_released else 1))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        cosines = self.cosines(embeddings)
        own = target(cosines, labels)
        widened = (angle(own) + s.margin).cos()
        if not s.per_class_released:
            self._renew(own, torch.zeros_like(labels))
        t = self.t[labels if s.per_class_released else torch.zeros_like(labels)][:, None]
        hard = cosines > widened[:, None]
        logits = with_target(torch.where(hard, cosines * (t + cosines), cosines), labels, widened)
        if s.per_class_released:
            self._renew(own, labels)
        return F.cross_entropy(s.scale * logits, labels)

    @torch.no_grad()
    def _renew(self, own: Tensor, places: Tensor) -> None:
        """Move t, where there is news of it, towards the mean cosine of embeddings and their own centres."""
        count = torch.zeros_like(self.t).index_add(0, places, torch.ones_like(own, dtype=self.t.dtype))
        total = torch.zeros_like(self.t).index_add(0, places, own.detach().to(self.t.dtype))
        moved = self.settings.momentum * self.t + (1 - self.settings.momentum) * total / count.clamp(min=1)
        # a new tensor: autograd may still hold the old one
        self.t = torch.where(count > 0, moved, self.t)
