"""Histogram loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Objective, register, setting
from methods.parts.distances import gram
from methods.parts.miners import masks


def soft_histogram(values: Tensor, weights: Tensor, nodes: int) -> Tensor:
    """Histogram over nodes t_1 = -1 .. t_R = 1 to which each value gives linearly interpolated shares.

        h(r) = 1/|S| sum_{s in S} [1 - |s - t_r| / Delta]_+,   Delta = 2 / (R - 1)

    >>> soft_histogram(torch.tensor([-1.0, 0.5]), torch.ones(2), 3)
    tensor([0.5000, 0.2500, 0.2500])
    """
    position = (values.clamp(-1, 1) + 1) * (nodes - 1) / 2
    lower = position.detach().floor().clamp(max=nodes - 2)
    upper_share = position - lower
    histogram = values.new_zeros(nodes)
    histogram = histogram.index_add(0, lower.long(), (1 - upper_share) * weights)
    histogram = histogram.index_add(0, lower.long() + 1, upper_share * weights)
    return histogram / weights.sum().clamp(min=1)


@register("histogram", family="ranking", papers=["revisiting"], cite="""
@inproceedings{ustinova2016learning, title={Learning Deep Embeddings with Histogram Loss},
  author={Ustinova, Evgeniya and Lempitsky, Victor}, booktitle={NeurIPS}, year={2016}}""")
class Histogram(Objective):
    """The probability that a random negative pair is more similar than a random positive pair.

        L = sum_r h^-(r) sum_{q <= r} h^+(q)

    h^+ and h^- are soft histograms of the similarities of positive and negative pairs on R nodes. Ustinova and
    Lempitsky 2016, eq. 2-5; Revisiting DML eq. 7-9. By hand: pytorch-metric-learning's fails at a similarity of
    exactly 1 and builds its pairs in Python lists.
    """

    @dataclass(frozen=True)
    class Settings:
        nodes: int = setting(65, "Revisiting DML, appendix A.1 (R)", sop=11)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        similarity = gram(embeddings).flatten()
        positive, negative = (mask.flatten().to(similarity.dtype) for mask in masks(labels))
        above = soft_histogram(similarity, negative, self.settings.nodes)
        below = soft_histogram(similarity, positive, self.settings.nodes).cumsum(0)
        return torch.dot(above, below)
