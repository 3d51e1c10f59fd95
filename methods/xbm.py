"""Triplet and multi-similarity loss with a cross-batch memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from methods import Objective, register, setting
from methods.multisimilarity import MultiSimilarity, weigh_pairs
from methods.parts.distances import gram
from methods.parts.memory import Memory
from methods.parts.miners import masks
from methods.parts.ranked import mean

WANG = """
@inproceedings{wang2020cross, title={Cross-Batch Memory for Embedding Learning},
  author={Wang, Xun and Zhang, Haozhi and Huang, Weilin and Scott, Matthew R.}, booktitle={CVPR}, year={2020}}"""
SIZE = "UML, released code; Wang et al. 55,000 for SOP"
START = "UML, released code: steps before the memory is used; Wang et al. 1000"
WEIGHT = "Wang et al. 2020, released code"
ALONE = "Wang et al. 2020, released code: beside the loss of the batch; UML, released code: true"


class CrossBatch(Objective):
    """A pair loss over the batch, and the same of the batch against the memory, from step `start` on.

        L = L(batch, batch) + w L(batch, memory)

    With `memory_alone_released` the second term alone from that step on: the batch is in the memory.
    """

    batches = "spc-4"
    # a loss over all of a memory rises while that fills: as large as the batch it is full at once
    example_settings: ClassVar[dict[str, Any]] = {"size": 24}

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        self.memory = Memory(settings.size, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        partners = self.memory.enqueue(embeddings, labels)
        within = self.pair_loss(gram(embeddings), *masks(labels))
        across = self.pair_loss(embeddings @ partners.embeddings.T, partners.positives, partners.negatives)
        joined = self.memory.steps > self.settings.start
        weight = torch.where(joined, self.settings.weight, 0.0).to(across.dtype)
        if self.settings.memory_alone_released:
            return torch.where(joined, weight * across, within)
        return within + weight * across

    def pair_loss(self, similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        raise NotImplementedError


@register("triplet-xbm", family="memory", papers=["uml"], cite=WANG)
class TripletXbm(CrossBatch):
    """Batch-hard triplets within the batch, and against a memory of past embeddings.

        L = 1/|active| sum_a [max_n s_an - min_p s_ap + gamma]_+,   n and p from the batch, plus the same from memory

    Wang et al. 2020 on the triplet loss of UML's released code (cosine similarities, mean over the triplets with a
    loss), which has the memory's term alone: `memory_alone_released`. The memory joins after `start` steps, the current
    batch is in it, and no image is its own partner. At once by default: the hardest triplets of a batch alone can draw
    a network whose classes still overlap into one point, where L rests at gamma and the gradient of a cosine vanishes;
    partners that stay where they were slow that down.
    """

    @dataclass(frozen=True)
    class Settings:
        margin: float = setting(0.05, "UML, released code (gamma)")
        size: int = setting(4096, SIZE)
        start: int = setting(0, START)
        weight: float = setting(1.0, WEIGHT)
        memory_alone_released: bool = setting(False, ALONE, later=True)

    def pair_loss(self, similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        valid = positives.any(1) & negatives.any(1)
        # rows without a pair become 0 - 0, so that no infinity enters the gradient
        hardest_positive = similarity.masked_fill(~positives & valid[:, None], torch.inf).amin(1)
        hardest_negative = similarity.masked_fill(~negatives & valid[:, None], -torch.inf).amax(1)
        losses = (hardest_negative - hardest_positive + self.settings.margin).relu()
        return mean(losses, valid & (losses > 0))


@register("multisimilarity-xbm", family="memory", papers=["uml"], cite=WANG)
class MultiSimilarityXbm(CrossBatch):
    """Multi-similarity loss within the batch, and against a memory of past embeddings.

        L = L_ms(batch, batch) + w L_ms(batch, memory),   L_ms as in `multisimilarity`

    Wang et al. 2020. UML's released code mines these pairs by distance weighting; here by multi-similarity, as the
    loss's own paper. It also has the second term alone: `memory_alone_released`. The memory joins after `start` steps,
    by default at once.
    """

    @dataclass(frozen=True)
    class Settings(MultiSimilarity.Settings):
        beta: float = setting(50.0, "UML, released code")
        size: int = setting(4096, SIZE)
        start: int = setting(0, START)
        weight: float = setting(1.0, WEIGHT)
        memory_alone_released: bool = setting(False, ALONE, later=True)

    def pair_loss(self, similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        return weigh_pairs(similarity, positives, negatives, self.settings)
