"""L2-SP: weights are drawn to where they started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from methods import Objective, register, setting
from methods.parts.regularised import Batch, Regularised


def flat(module: nn.Module) -> Tensor:
    """All parameters of a module in one row, in float32."""
    return torch.cat([parameter.flatten().float() for parameter in module.parameters()])


@register("l2-sp", family="auxiliary", tags=["modern", "retention"], base="multisimilarity",
          trains="network, and what its objective has", cite="""
@inproceedings{li2018explicit, title={Explicit Inductive Bias for Transfer Learning with Convolutional Networks},
  author={Li, Xuhong and Grandvalet, Yves and Davoine, Franck}, booktitle={ICML}, year={2018}}""")
class L2SP(Regularised):
    """A squared penalty on how far the backbone's weights have moved since training began.

        L = L_base + alpha/2 |w - w_0|^2 + beta/2 |v|^2

    w are the weights of the backbone, w_0 those it began with, v the new last layer. Li et al. 2018; their released
    code leaves biases and the scale and shift of norms out of both terms. The protocol's own weight decay towards zero
    stays beside it.
    """

    start: Tensor

    @dataclass(frozen=True)
    class Settings:
        alpha: float = setting(0.1, "Li et al. 2018, released command; in the paper chosen by validation")
        beta: float = setting(0.01, "Li et al. 2018, released command")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.register_buffer("start", flat(backbone).detach().clone())

    def penalty(self, batch: Batch) -> Tensor:
        moved, last = flat(self.backbone) - self.start, flat(self.embedding)
        return self.settings.alpha / 2 * moved.square().sum() + self.settings.beta / 2 * last.square().sum()
