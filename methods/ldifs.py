"""LDIFS: features are held near those of the network before training."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import Objective, register, setting
from methods.parts.regularised import Batch, Regularised


@register("ldifs", family="auxiliary", tags=["modern", "retention"], base="multisimilarity",
          trains="network, and what its objective has", cite="""
@article{mukhoti2024fine, title={Fine-tuning Can Cripple Your Foundation Model; Preserving Features May Be the
  Solution}, author={Mukhoti, Jishnu and Gal, Yarin and Torr, Philip H. S. and Dokania, Puneet K.}, journal={TMLR},
  year={2024}}""")
class LDIFS(Regularised):
    """A squared penalty on how far the features of an image have moved since training began.

        L = L_base + lambda/b sum_i |h(x_i) / |h(x_i)| - h_0(x_i) / |h_0(x_i)||^2

    h_0 is the backbone as it began, frozen and in evaluation mode; a step costs one further pass of it. Mukhoti et al.
    2024, on the pooled features, which every backbone has. Their released code, loss/ldifs.py, takes features at five
    depths of a vision transformer, normalises each over the tokens and averages over all entries: its term is the
    squared distance over the number of tokens, so that a lambda of 10 with the 50 of ViT-B/32 is 0.2 here.
    """

    # the term starts at zero: it must rise before the loss can fall
    example_settings: ClassVar[dict[str, Any]] = {"weight": 0.1}

    @dataclass(frozen=True)
    class Settings:
        weight: float = setting(0.2, "Mukhoti et al. 2024, released code: lambda 10 over the tokens of ViT-B/32")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.start = copy.deepcopy(backbone).requires_grad_(False)

    def train(self, mode: bool = True) -> LDIFS:
        super().train(mode)
        self.start.eval()
        return self

    def penalty(self, batch: Batch) -> Tensor:
        with torch.no_grad(), torch.autocast(batch.images.device.type, enabled=False):
            before = F.normalize(self.start(batch.images).float(), dim=1)
        return self.settings.weight * (F.normalize(batch.features, dim=1) - before).square().sum(1).mean()
