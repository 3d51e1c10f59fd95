"""Quadruplet loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import register, setting
from methods.parts.distances import paired
from methods.parts.miners import Triplets, pick
from methods.parts.ranked import Ranked, cutoff, limit, mean


@register("quadruplet", family="ranking", papers=["revisiting"], cite="""
@inproceedings{chen2017beyond, title={Beyond Triplet Loss: A Deep Quadruplet Network for Person Re-identification},
  author={Chen, Weihua and Chen, Xiaotang and Zhang, Jianguo and Huang, Kaiqi}, booktitle={CVPR}, year={2017}}""")
class Quadruplet(Ranked):
    """A triplet loss, and a second negative of a third class that keeps negatives apart from each other.

        L = 1/b sum_{(i,j,k)} [d_ij - d_ik + gamma_1]_+  +  1/b sum_{(i,j,k,l)} [d_ij - d_lk + gamma_2]_+

    with y_i = y_j and y_i, y_k, y_l all different. Chen et al. 2017, eq. 8. Revisiting DML prints d_ik - d_lk in the
    second term (eq. 14), which would pull the anchor to its negative; its released code has d_ij as here. k by
    distance-weighted mining, l uniformly (there: all pairs of both in the batch). pytorch-metric-learning has none.
    """

    @dataclass(frozen=True)
    class Settings:
        margin1: float = setting(1.0, "Revisiting DML, appendix A.1 (gamma_1); its released code .2")
        margin2: float = setting(0.5, "Revisiting DML, appendix A.1 (gamma_2); its released code .2")
        cutoff: float = cutoff()
        limit: float = limit()

    def loss(self, embeddings: Tensor, labels: Tensor, triplets: Triplets) -> Tensor:
        d_ap, d_an = triplets.distances(embeddings)
        third = (labels[None, :] != labels[:, None]) & (labels[None, :] != labels[triplets.negative][:, None])
        pair = torch.stack([pick(third), triplets.negative])
        apart = paired(*embeddings.index_select(0, pair.flatten()).unflatten(0, pair.shape))
        first = (d_ap - d_an + self.settings.margin1).relu()
        second = (d_ap - apart + self.settings.margin2).relu()
        return mean(first, triplets.valid) + mean(second, triplets.valid & third.any(1))
