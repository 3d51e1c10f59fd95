"""CRT: coded residual transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import Method, Objective, Step, register, setting
from methods.backbones import Backbone
from methods.backbones.examples import small_cnn
from methods.parts.distances import gram
from methods.parts.local import needs_map


class Perspectives(nn.Module):
    """One linear layer for each prototype: y_k = W_k x_k + b_k."""

    def __init__(self, count: int, before: int, after: int) -> None:
        super().__init__()
        bound = before**-0.5
        self.weight = nn.Parameter(torch.empty(count, before, after).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, after).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x.transpose(0, 1), self.weight).transpose(0, 1)


class CodedResidual(nn.Module):
    """The residuals of a map against K prototypes, each through a network of its own up to its last layer.

        r_k = sum_j log(1 + exp(x_j . c_k)) (x_j - c_k),   Gamma_k(r) = V_k GELU(U_k r),   f = 1/K sum_k Gamma_k(r_k)

    Kan et al. 2022, eq. 1-2. `forward` gives GELU(U_k r_k); V_k and the mean are `Aggregate`.
    """

    def __init__(self, prototypes: int, width: int, hidden: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.empty(prototypes, width).uniform_(-(width**-0.5), width**-0.5))
        self.inner = Perspectives(prototypes, width, hidden)

    def residuals(self, places: Tensor) -> Tensor:
        """r_k of a map (b, places, width): sum_j w_kj x_j - (sum_j w_kj) c_k, (b, K, width)."""
        weights = F.softplus(places @ self.prototypes.T)
        return weights.transpose(1, 2) @ places - weights.sum(1)[:, :, None] * self.prototypes

    def forward(self, places: Tensor) -> Tensor:
        return F.gelu(self.inner(self.residuals(places)))

    def diversity(self) -> Tensor:
        """L_div = 1/(K (K-1)) sum_{k != j} |cos(c_k, c_j)|, eq. 3."""
        cosines = gram(F.normalize(self.prototypes, dim=1)).abs()
        return (cosines.sum() - cosines.diagonal().sum()) / max(len(cosines) * (len(cosines) - 1), 1)


class Aggregate(nn.Module):
    """f = 1/K sum_k V_k x_k + v_k of the hidden states (b, K * hidden)."""

    def __init__(self, prototypes: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.outer = Perspectives(prototypes, hidden, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.outer(hidden.unflatten(1, (len(self.outer.weight), -1))).mean(1)


@register("crt", family="aggregation", papers=["crt"], base="multisimilarity",
          trains="network, prototypes and a small network for each", cite="""
@inproceedings{kan2022coded, title={Coded Residual Transform for Generalizable Deep Metric Learning},
  author={Kan, Shichao and Liang, Yixiong and Li, Min and Cen, Yigang and Wang, Jianxin and He, Zhihai},
  booktitle={NeurIPS}, year={2022}}""")
class CRT(Method):
    """The map seen from many prototypes, in two branches that are to agree on what is similar.

        L = L_div + lambda_1 L_base(f^(1)) + lambda_1' L_base(f^(2)) + lambda_2 |S^(1) - S^(2)|_1
        f = 1/K sum_k Gamma_k(sum_j log(1 + exp(x_j . c_k)) (x_j - c_k)),   S_ij = cos(f_i, f_j)

    Kan et al. 2022, eq. 1-5; searched by the first branch. L_div is summed over both branches' prototypes and the L1
    distance is the mean over pairs (its scale is not stated). The branches share the backbone alone: the paper shares
    more to save memory and sees no difference (table 10). The width inside Gamma_k is not stated either. There is no
    released code.
    """

    example_backbone = staticmethod(small_cnn)
    example_settings: ClassVar[dict[str, Any]] = {"prototypes": 5, "wide_prototypes": 6, "wide_dim": 16, "hidden": 8}

    @dataclass(frozen=True)
    class Settings:
        prototypes: int = setting(49, "Kan et al. 2022, section 3.3 (K_1)")
        wide_prototypes: int = setting(64, "Kan et al. 2022, section 3.3 (K_2)")
        wide_dim: int = setting(1024, "Kan et al. 2022, section 3.3")
        hidden: int = setting(128, "not stated in the paper")
        weight: float = setting(1.0, "Kan et al. 2022, section 4.1 (lambda_1)")
        wide_weight: float = setting(0.1, "Kan et al. 2022, section 4.1: .1 CUB, Cars; .9 SOP, In-Shop", sop=0.9,
                                     inshop=0.9)
        consistency: float = setting(0.9, "Kan et al. 2022, section 4.1 (lambda_2)")

    @classmethod
    def misfit(cls, backbone: nn.Module) -> str:
        return needs_map(backbone)

    def __init__(self, backbone: Backbone, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        s = self.settings
        self.coding = CodedResidual(s.prototypes, backbone.local_dim, s.hidden)
        self.embedding = Aggregate(s.prototypes, s.hidden, dim)
        self.wide_coding = CodedResidual(s.wide_prototypes, backbone.local_dim, s.hidden)
        self.wide_embedding = Aggregate(s.wide_prototypes, s.hidden, s.wide_dim)
        self.wide_objective = objective.sibling(s.wide_dim)

    def features(self, images: Tensor) -> Tensor:
        return self.coding(self.backbone(images, local=True)[1]).flatten(1)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        s = self.settings
        places = self.backbone(images, local=True)[1]
        first = self.project(self.coding(places).flatten(1))
        second = self.wide_embedding(self.wide_coding(places).flatten(1))
        with torch.autocast(images.device.type, enabled=False):
            first, second = first.float(), second.float()
            unit = F.normalize(second, dim=1)
            disagreement = (gram(F.normalize(first, dim=1)) - gram(unit)).abs().mean()
            loss = (self.coding.diversity() + self.wide_coding.diversity() + s.weight * self.objective(first, labels)
                    + s.wide_weight * self.wide_objective(unit if self.objective.normalised else second, labels)
                    + s.consistency * disagreement)
        return Step(loss, first.detach())
