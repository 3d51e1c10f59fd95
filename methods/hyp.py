"""Hyperbolic metric learning: pairwise cross-entropy in the Poincaré ball."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Objective, register, setting
from methods.npair import positive_pairs
from methods.parts.hyperbolic import clip, exponential_map, hyperbolic_distances


def places(labels: Tensor) -> Tensor:
    """How many images of its class stand before each in the batch.

    >>> places(torch.tensor([4, 7, 4, 4, 7]))
    tensor([0, 0, 1, 2, 1])
    """
    return (labels[:, None] == labels[None, :]).tril(-1).sum(1)


@register("hyp", family="hyperbolic", papers=["uml"], cite="""
@inproceedings{ermolov2022hyperbolic, title={Hyperbolic Vision Transformers: Combining Improvements in Metric Learning},
  author={Ermolov, Aleksandr and Mirvakhabova, Leyla and Khrulkov, Valentin and Sebe, Nicu and Oseledets, Ivan},
  booktitle={CVPR}, year={2022}}""")
class Hyperbolic(Objective):
    """Each positive is to be picked out among the negatives by its distance in the Poincaré ball.

        x_i = exp_0(clip(phi*_i)),   D = geodesic distance
        L = mean_{(a,p)} -log e^{s_ap} / (e^{s_ap} + sum_{n : y_n != y_a} e^{s_an}),   s_ij = -D(x_i, x_j) / tau

    Ermolov et al. 2022, eq. 1-6, over all ordered pairs of a class (their code sums over them, which of Adam's steps
    their clipping of gradients alone notices). Where a class has more than two images in a batch, their code and UML's
    number the images of each class and take as negatives of a pair those with the numbers of its two: `pairs_released`;
    with two all are the same. Searched, as in UML, by the direction of the embedding. The orthogonal start of the last
    layer in their code is not part of the objective. pytorch-metric-learning has none.
    """

    normalised = False
    batches = "spc-2"

    @dataclass(frozen=True)
    class Settings:
        curvature: float = setting(0.1, "Ermolov et al. 2022 (c)")
        radius: float = setting(2.3, "Ermolov et al. 2022 (feature clipping r)")
        temperature: float = setting(0.2, "Ermolov et al. 2022 (tau)")
        pairs_released: bool = setting(False, "all negatives of the batch; Ermolov et al. 2022, released code: true",
                                       later=True)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        points = exponential_map(clip(embeddings, s.radius), s.curvature)
        similarity = -hyperbolic_distances(points, s.curvature) / s.temperature
        a, p, negative = positive_pairs(labels)
        if s.pairs_released:
            place = places(labels)
            negative = negative & ((place == place[a][:, None]) | (place == place[p][:, None]))
        own = similarity[a, p][:, None]
        others = similarity[a].masked_fill(~negative, -torch.inf)
        return (torch.logsumexp(torch.cat([own, others], 1), 1) - own[:, 0]).sum() / max(len(a), 1)
