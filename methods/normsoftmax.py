"""Normalised softmax and CosFace: classification of the direction, without and with a margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from methods import Objective, register, setting


def uniform_by_width(weight: Tensor) -> None:
    """U(-1/sqrt(D), 1/sqrt(D)) for a (D, classes) matrix of centres."""
    bound = weight.shape[0] ** -0.5
    nn.init.uniform_(weight, -bound, bound)


class Classification(Objective):
    """Wraps a classification loss of pytorch-metric-learning, whose centres are its parameter W."""

    loss: nn.Module

    @property
    def proxies(self) -> Tensor:
        """The centres as other objectives have them, (classes, D)."""
        return self.loss.W.T  # type: ignore[return-value]

    def rates(self) -> dict[str, float]:
        return {"loss.W": self.settings.proxy_rate}

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.loss(embeddings, labels)


@register("normsoftmax", family="classification", papers=["revisiting"], trains="network, a centre per class", cite="""
@inproceedings{zhai2019classification, title={Classification is a Strong Baseline for Deep Metric Learning},
  author={Zhai, Andrew and Wu, Hao-Yu}, booktitle={BMVC}, year={2019}}""")
class NormalisedSoftmax(Classification):
    """Softmax classification with normalised embeddings and centres, at a low temperature.

        L = -1/b sum_i log e^{phi_i.psi_y / T} / sum_c e^{phi_i.psi_c / T}

    Zhai and Wu 2019, eq. 4 (Revisiting DML eq. 19 leaves the own class out of the sum; its released code does not):
    pytorch-metric-learning's NormalizedSoftmaxLoss, with the centres' start of the released code.
    """

    @dataclass(frozen=True)
    class Settings:
        temperature: float = setting(0.05, "Revisiting DML, appendix A.1 (T)", search=(0.01, 0.2))
        proxy_rate: float = setting(1.0, "times lr: Revisiting DML, appendix A.1, 1e-5 at 1e-5; its released run for "
                                    "SOP .002", sop=200.0)

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

        self.loss = NormalizedSoftmaxLoss(classes, dim, settings.temperature, weight_init_func=uniform_by_width)


@register("cosface", family="classification", papers=["uml"], trains="network, a centre per class", cite="""
@inproceedings{wang2018cosface, title={{CosFace}: Large Margin Cosine Loss for Deep Face Recognition},
  author={Wang, Hao and Wang, Yitong and Zhou, Zheng and Ji, Xing and Gong, Dihong and Zhou, Jingchao and Li, Zhifeng
  and Liu, Wei}, booktitle={CVPR}, year={2018}}""")
class CosFace(Classification):
    """Classification of the direction, with the own class's cosine lowered by a margin.

        L = -1/b sum_i log e^{s (cos theta_y - m)} / (e^{s (cos theta_y - m)} + sum_{j != y} e^{s cos theta_j})

    Wang et al. 2018, eq. 4: pytorch-metric-learning's CosFaceLoss.
    """

    batches = "random"

    @dataclass(frozen=True)
    class Settings:
        scale: float = setting(64.0, "Wang et al. 2018; UML, released code (s)", search=(8.0, 128.0))
        margin: float = setting(0.35, "Wang et al. 2018; UML, released code (m)", search=(0.05, 0.5))
        proxy_rate: float = setting(50.0, "times lr: as ArcFace's in Revisiting DML")

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        from pytorch_metric_learning.losses import CosFaceLoss

        self.loss = CosFaceLoss(classes, dim, margin=settings.margin, scale=settings.scale,
                                weight_init_func=uniform_by_width)
