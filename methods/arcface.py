"""ArcFace: softmax with an additive angular margin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import register, setting
from methods.parts.proxies import Proxied, angle, target, with_target


@register("arcface", family="classification", papers=["oodml", "revisiting", "uml"], tags=["oodml-study"],
          trains="network, a centre per class", cite="""
@inproceedings{deng2019arcface, title={{ArcFace}: Additive Angular Margin Loss for Deep Face Recognition},
  author={Deng, Jiankang and Guo, Jia and Xue, Niannan and Zafeiriou, Stefanos}, booktitle={CVPR}, year={2019}}""")
class ArcFace(Proxied):
    """Classification of the direction, with the own class's angle widened by a margin.

        L = -1/b sum_i log e^{s cos(theta_y + m)} / (e^{s cos(theta_y + m)} + sum_{j != y} e^{s cos theta_j})

    Deng et al. 2019, eq. 3; Revisiting DML eq. 6. By hand: pytorch-metric-learning lets the slope of arccos grow
    without bound at +-1 and adds a second branch beyond pi - m that the paper does not have. The released ooDML code
    clamps all negative cosines to zero (`positive_cosines_released`): centres beyond a right angle push no more. Here
    cosines are clamped symmetrically just inside (-1, 1). What is printed may be without a margin: until
    February 2021 Revisiting DML's code added it to all classes. One seed on the farthest split of ooDML's Cars ladder
    has a Recall@1 of 57.1 at best, as released with m = 0 of 60.4; printed is 62.6.
    """

    batches = "spc-2"

    @dataclass(frozen=True)
    class Settings:
        scale: float = setting(16.0, "Revisiting DML, appendix A.1 (s)", search=(4.0, 64.0))
        margin: float = setting(0.5, "Revisiting DML, appendix A.1 (gamma, radians)", search=(0.05, 0.7))
        proxy_rate: float = setting(50.0, "times lr: Revisiting DML, appendix A.1, 5e-4 at 1e-5")
        positive_cosines_released: bool = setting(False, "Deng et al. 2019, eq. 3; ooDML, released code: true",
                                                  later=True)

    def initial(self, classes: int, dim: int) -> Tensor:
        return (2 * torch.rand(classes, dim) - 1) / dim**0.5

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        cosines = self.cosines(embeddings)
        if s.positive_cosines_released:
            cosines = cosines.clamp(min=0.0)
        widened = (angle(target(cosines, labels)) + s.margin).cos()
        return F.cross_entropy(s.scale * with_target(cosines, labels, widened), labels)
