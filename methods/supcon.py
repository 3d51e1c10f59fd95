"""Supervised contrastive loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from methods import Objective, register, setting


@register("supcon", family="ranking", papers=["uml"], cite="""
@inproceedings{khosla2020supervised, title={Supervised Contrastive Learning},
  author={Khosla, Prannay and Teterwak, Piotr and Wang, Chen and Sarna, Aaron and Tian, Yonglong and Isola, Phillip
  and Maschinot, Aaron and Liu, Ce and Krishnan, Dilip}, booktitle={NeurIPS}, year={2020}}""")
class SupervisedContrastive(Objective):
    """Each positive is to be picked out among all other images of the batch.

        L = mean_a -1/|P(a)| sum_{p in P(a)} log e^{phi_a.phi_p / tau} / sum_{k != a} e^{phi_a.phi_k / tau}

    Khosla et al. 2020, eq. 2 (L_out), over the anchors that have a positive: pytorch-metric-learning's SupConLoss. It
    leaves anchors out whose loss rounds to zero: those whose only positive is nearer than all negatives by more than
    about 17 tau, 1.7 of a cosine. A batch of one class has no loss. What UML's released code calls SupCon is the loss
    of `hyp` on cosines: each positive against negatives alone.
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        temperature: float = setting(0.1, "Khosla et al. 2020, section 4 (tau)")

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        from pytorch_metric_learning.losses import SupConLoss

        self.loss = SupConLoss(settings.temperature)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.loss(embeddings, labels)
