"""LP-FT: the last layer is trained first, then all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from methods import Method, Objective, register, setting
from methods.parts.groups import Counter


@register("lp-ft", family="auxiliary", tags=["modern", "retention"], base="multisimilarity",
          trains="the last layer, then all, and what its objective has", cite="""
@inproceedings{kumar2022fine, title={Fine-Tuning Can Distort Pretrained Features and Underperform Out-of-Distribution},
  author={Kumar, Ananya and Raghunathan, Aditi and Jones, Robbie and Ma, Tengyu and Liang, Percy},
  booktitle={ICLR}, year={2022}}""")
class LinearProbeThenFineTune(Method):
    """Linear probe, then fine-tuning: a random last layer would distort good features before it is any use.

        steps t <= T_probe: only the last layer W and the objective learn, on fixed features h_0(x); then all of phi

    Kumar et al. 2022. They train the probe to convergence and start fine-tuning from it; here it has
    `probe` steps of the run's own. The backbone is then in evaluation mode and its parameters have no gradient, so that
    no optimiser moves them. A protocol's `warmup` is the same in whole epochs, with batch norm in training mode.
    """

    # the backbone begins without a gradient and in another mode than it ends in
    compiles = False
    example_settings: ClassVar[dict[str, Any]] = {"probe": 1}

    @dataclass(frozen=True)
    class Settings:
        probe: int = setting(1000, "of the suite: Kumar et al. 2022 train it to convergence (T_probe)")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.steps = Counter()

    @property
    def probing(self) -> bool:
        return self.steps.count < self.settings.probe

    def train(self, mode: bool = True) -> LinearProbeThenFineTune:
        super().train(mode)
        self.backbone.train(mode and not self.probing)
        return self

    def features(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not (self.training and self.probing)):
            return super().features(images)

    def after_step(self) -> None:
        self.steps.count += 1
        if self.steps.count == self.settings.probe:
            self.train(self.training)
