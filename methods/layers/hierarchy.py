"""Learnt proxies in the Poincaré ball as common ancestors of images and of one another."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.method import Objective
from methods.parts.hyperbolic import hyperbolic_distances, in_ball


def triplets(similarity: Tensor, k: int, draws: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each row `draws` random (i, j, m), j among its mutual k nearest and m not, and which rows have both.

    m is never i; in the released code of Kim et al. 2023 it may be, once in some 160 draws of a batch of 180.
    """
    nearest = similarity.topk(min(k, len(similarity))).indices
    neighbours = torch.zeros_like(similarity, dtype=torch.bool).scatter(1, nearest, True)
    mutual = (neighbours & neighbours.T).fill_diagonal_(False)
    others = ~mutual.clone().fill_diagonal_(True)
    valid = (mutual.sum(1) > 1) & others.any(1)
    i = torch.arange(len(similarity), device=similarity.device).repeat_interleave(draws)
    # a row without a choice draws anything, and is not valid
    j, m = (torch.multinomial((allowed | ~valid[:, None]).float(), draws, replacement=True).flatten()
            for allowed in (mutual, others))
    return i, j, m, valid.repeat_interleave(draws)


class Hierarchy(Objective):
    """Proxies above the images: two that are alike have a nearer common ancestor than the two and a third."""

    def __init__(self, settings: Any, classes: int, dim: int) -> None:
        super().__init__(settings, classes, dim)
        self.proxies = nn.Parameter(torch.randn(settings.proxies, dim) / dim**0.5 * settings.radius * 0.9)

    def rates(self) -> dict[str, float]:
        return {"proxies": self.settings.hierarchy_rate}

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        points = in_ball(torch.cat([embeddings, self.proxies]), s.radius, s.curvature)
        distance = hyperbolic_distances(points, s.curvature)
        b, loss = len(labels), embeddings.new_zeros(())
        likeness = (-distance.detach()).exp()
        for rows, more in ((slice(b), labels[:, None] == labels[None, :]), (slice(b, None), False)):
            chosen = triplets(likeness[rows, rows] + more, s.neighbours, s.draws)
            loss = loss + self.ancestors(distance[rows, b:], *chosen)
        return loss

    def ancestors(self, distance: Tensor, i: Tensor, j: Tensor, m: Tensor, valid: Tensor) -> Tensor:
        """Mean over valid triplets, of distances to the proxies (rows, proxies)."""
        s = self.settings
        pair = torch.maximum(distance[i], distance[j])
        two, three = (F.gumbel_softmax(-d / s.temperature, hard=True) for d in (pair, torch.maximum(pair, distance[m])))

        def gap(row: Tensor) -> Tensor:
            return (distance[row] * (two - three)).sum(1)

        loss = (gap(i) + s.margin).relu() + (gap(j) + s.margin).relu() + (s.margin - gap(m)).relu()
        apart = two.argmax(1) != three.argmax(1)
        return (loss * apart * valid).sum() / valid.sum().clamp(min=1)
