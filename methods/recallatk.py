"""Recall@k surrogate, with similarity mixup as an option."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.ranked import mean
from methods.parts.ranks import ITSELF, count_before, rankings


@register("recall-at-k", family="ranking", tags=["modern", "ranking-surrogate"], cite="""
@inproceedings{patel2022recall, title={Recall@k Surrogate Loss with Large Batches and Similarity Mixup},
  author={Patel, Yash and Tolias, Giorgos and Matas, Ji{\\v{r}}{\\'i}}, booktitle={CVPR}, year={2022}}""")
class RecallAtK(Objective):
    """One minus the recall at several k of each image's ranking of the batch, its steps smoothed twice.

        L = 1/A sum_a 1/|K| sum_{k in K} (1 - min(k, sum_{p in P_a} G_1(k - rank_ap)) / min(k, |P_a|))
        rank_ap = 1 + sum_{x != p} G_2(s_ax - s_ap),   G_i(x) = 1/(1 + e^{-x / tau_i})

    Patel et al. 2022, with the two minima of their code, src/losses.py, over the A anchors with a positive. That code
    also ranks each image in its own ranking, so that no positive comes before the second place: `itself_released`. With
    `mix` (SiMix) every two images of a class give one more, alpha phi_i + (1 - alpha) phi_j, alpha ~ U(0, 1), that is
    query, positive and negative like the rest. Published with batches of 4,000, CUB and Cars of 400 and 392.
    """

    batches = "spc-4"

    @dataclass(frozen=True)
    class Settings:
        k: tuple[int, ...] = setting((1, 2, 4, 8, 16), "Patel et al. 2022, released code (K)")
        step: float = setting(1.0, "Patel et al. 2022, released code (tau_1, of the step at k)")
        temperature: float = setting(0.01, "Patel et al. 2022, released code (tau_2, of the ranks)")
        mix: bool = setting(False, "Patel et al. 2022, released code (SiMix): off; it helps on small datasets")
        itself_released: bool = setting(False, ITSELF)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        if s.mix:
            embeddings, labels = mixed(embeddings, labels)
        similarity = gram(embeddings)
        ranks = rankings(similarity, labels)
        others = ranks.positive | ranks.negative
        if s.itself_released:  # in the ranking, though not among what is to be found
            others = others.scatter(1, ranks.anchor[:, None], True)
        rank = 1 + count_before((ranks.gap / s.temperature).sigmoid(), others)
        positives = torch.zeros_like(similarity).index_put((ranks.anchor, ranks.partner), torch.ones_like(rank)).sum(1)
        recalls = []
        for k in (min(k, len(labels)) for k in s.k):
            steps = ((k - rank) / s.step).sigmoid()
            hits = torch.zeros_like(similarity).index_put((ranks.anchor, ranks.partner), steps).sum(1).clamp(max=k)
            recalls.append(hits / positives.clamp(min=1, max=k))
        return mean(1 - torch.stack(recalls).mean(0), positives > 0)


def mixed(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The batch and, for every two images of a class, a random point between them."""
    first, second = (labels[:, None] == labels[None, :]).triu(1).nonzero(as_tuple=True)
    alpha = torch.rand(len(first), 1, device=embeddings.device, dtype=embeddings.dtype)
    between = alpha * embeddings[first] + (1 - alpha) * embeddings[second]
    return torch.cat([embeddings, between]), torch.cat([labels, labels[first]])
