"""S2SD: simultaneous similarity-based self-distillation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import Method, Objective, Step, register, setting
from methods.backbones import Backbone
from methods.backbones.examples import small_cnn
from methods.parts.distances import gram
from methods.parts.groups import Counter, apart
from methods.parts.local import needs_map


def similarity_divergence(source: Tensor, target: Tensor, temperature: float) -> Tensor:
    """T^2/b sum_i KL(softmax(S^t_i / T) || softmax(S^s_i / T)) over the rows of two b x b similarity matrices.

    The target teaches and gets no gradient. Rows hold the similarity to itself, as in the released code.

    >>> similarity_divergence(torch.eye(2), torch.eye(2), 1.0)
    tensor(0.)
    """
    taught, teacher = (source / temperature).log_softmax(1), (target.detach() / temperature).log_softmax(1)
    return temperature**2 * F.kl_div(taught, teacher, reduction="batchmean", log_target=True)


class Target(nn.Module):
    """A wider embedding for training alone: psi(h) = W_2 relu(W_1 h), normalised as the objective wants it."""

    def __init__(self, width: int, dim: int, objective: Objective) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.objective = objective

    def forward(self, features: Tensor) -> Tensor:
        z = self.layers(features)
        return F.normalize(z, dim=-1) if self.objective.normalised else z


@register("s2sd", family="auxiliary", papers=["oodml"], tags=["oodml-study"], base="r-margin",
          trains="network, wider embeddings for training, and what its objective has", cite="""
@inproceedings{roth2021simultaneous, title={Simultaneous Similarity-based Self-Distillation for Deep Metric Learning},
  author={Roth, Karsten and Milbich, Timo and Ommer, Bj{\\"o}rn and Cohen, Joseph Paul and Ghassemi, Marzyeh},
  booktitle={ICML}, year={2021}}""")
class S2SD(Method):
    """Wider embeddings beside the own one, whose similarities it is to copy.

        L = 1/2 (L_base(phi) + 1/m sum_t L_base(psi_t)) + w/m sum_t KL(S(psi_t), S(phi)) + w_f KL(S(h), S(phi))
        KL(A, B) = T^2/b sum_i D_KL(softmax(A_i / T) || softmax(B_i / T)),   S(x)_ij = cos(x_i, x_j)

    Roth et al. 2021 (MSDF). phi learns from the targets psi_t and from the pooled features h, they get no gradient
    from it; all train the backbone by the base objective. With `pool` targets and h see average plus maximum of the
    last map, phi the average. Feature distillation starts after `delay` steps. As released, the betas of margin loss
    train at the network's rate and so stay near where they began (`own_beta_rate`: at theirs, as in `r-margin`). The
    protocol oodml gives the base what it has in the released runs: a switch probability of .4 (CUB), .3 (Cars) and none
    on SOP, where `r-margin` has .4, .35 and .15, and the balance with the divergences: margin loss over the number of
    triplets with an active pair (`released_divisor`), of negatives at any distance (`limit` 2). Elsewhere the base has
    its own settings. It learns slowly: so trained, one seed on CUB's default split has a Recall@1 of 55.9 after 10
    epochs, 65.2 after 60, 68.3 at best (150) and 67.0 after 200; `r-margin` at best 64.6 in 60 epochs.
    """

    compiled_parts = ("distilled",)
    example_backbone = staticmethod(small_cnn)
    # the divergences start near zero: weighed as published they must rise before the loss can fall
    example_settings: ClassVar[dict[str, Any]] = {"targets": (16, 24), "weight": 1.0, "feature_weight": 1.0}

    @dataclass(frozen=True)
    class Settings:
        targets: tuple[int, ...] = setting((1024, 1536, 2048), "ooDML, released runs; Roth et al. also 512")
        temperature: float = setting(1.0, "Roth et al. 2021; ooDML, released runs (T)", search=(0.3, 3.0))
        weight: float = setting(50.0, "ooDML, released runs (gamma)", search=(5.0, 150.0), sop=5.0)
        feature_weight: float = setting(50.0, "ooDML, released runs", search=(5.0, 150.0), sop=5.0)
        delay: int = setting(0, "ooDML, released runs; the code's default 1000 on SOP", sop=1000)
        pool: bool = setting(True, "ooDML, released runs", sop=False)
        own_beta_rate: bool = setting(False, "released code: betas at the network's rate")

    @classmethod
    def misfit(cls, backbone: nn.Module) -> str:
        return needs_map(backbone)

    @classmethod
    def base_changes(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {} if settings.get("own_beta_rate", True) else {"beta_rate": 1.0}  # of the targets too, its siblings

    def __init__(self, backbone: Backbone, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        width = backbone.local_dim if self.settings.pool else backbone.dim
        self.targets = nn.ModuleList(Target(width, t, objective.sibling(t)) for t in self.settings.targets)
        self.steps = Counter()

    def step(self, images: Tensor, labels: Tensor) -> Step:
        pooled, places = self.backbone(images, local=True)
        return Step(*self.distilled(pooled, places, labels, self.steps.count >= self.settings.delay))

    def distilled(self, pooled: Tensor, places: Tensor, labels: Tensor, by_features: bool) -> tuple[Tensor, Tensor]:
        """The loss and the embeddings of a batch from its features and its map."""
        s = self.settings
        rich = places.mean(1) + places.amax(1) if s.pool else pooled
        source, targets = self.project(pooled), [target(rich) for target in self.targets]
        with torch.autocast(pooled.device.type, enabled=False):
            source, targets, rich = source.float(), [t.float() for t in targets], rich.float()
            similarity = gram(F.normalize(source, dim=1))
            loss = self.objective(source, labels) / 2
            for head, target in zip(self.targets, targets):
                taught = similarity_divergence(similarity, gram(F.normalize(target, dim=1)), s.temperature)
                loss = loss + (head.objective(target, labels) / 2 + s.weight * taught) / len(targets)  # type: ignore[operator]
            if by_features:
                loss = loss + s.feature_weight * similarity_divergence(similarity, gram(F.normalize(rich, dim=1)),
                                                                      s.temperature)
        return loss, source.detach()

    def after_step(self) -> None:
        self.steps.count += 1

    def groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """The targets' layers do not decay (released code)."""
        layers = nn.ModuleList(target.layers for target in self.targets)  # type: ignore[misc]
        return apart(super().groups(lr, weight_decay), "targets", layers, lr=lr, weight_decay=0.0)
