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
    """One linear layer for each prototype: y_k = W_k x_k + b_k; with a count of 1 one for all of them."""

    def __init__(self, count: int, before: int, after: int) -> None:
        super().__init__()
        bound = before**-0.5
        self.weight = nn.Parameter(torch.empty(count, before, after).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, after).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (part.expand(x.shape[1], -1, -1) for part in (self.weight, self.bias))
        return torch.baddbmm(bias, x.transpose(0, 1), weight).transpose(0, 1)


class CodedResidual(nn.Module):
    """The residuals of a map against K prototypes, each through a network of its own up to its last layer.

        r_k = sum_j log(1 + exp(x_j . c_k)) (x_j - c_k),   Gamma_k(r) = V_k GELU(U_k r),   f = 1/K sum_k Gamma_k(r_k)

    Kan et al. 2022, eq. 1-2. `forward` gives GELU(U_k r_k); V_k and the mean are `Aggregate`. With `shared` one Gamma
    is of all prototypes.
    """

    def __init__(self, prototypes: int, width: int, hidden: int, shared: bool = False) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.empty(prototypes, width).uniform_(-(width**-0.5), width**-0.5))
        self.inner = Perspectives(1 if shared else prototypes, width, hidden)

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

    def __init__(self, prototypes: int, hidden: int, dim: int, shared: bool = False) -> None:
        super().__init__()
        self.prototypes = prototypes
        self.outer = Perspectives(1 if shared else prototypes, hidden, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.outer(hidden.unflatten(1, (self.prototypes, -1))).mean(1)


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

    Switches of section 4.4: `shared_gamma` has one Gamma for all prototypes (table 7), `shared_branches` one set of K_2
    prototypes and of first layers U_k for both branches, which differ by their last layers (tables 9 and 10; all alike
    they would give one embedding), and `coded` off consistency of two plain embeddings (table 6, without CRT).
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
        shared_gamma: bool = setting(False, "Kan et al. 2022, eq. 2; table 7 without", later=True)
        shared_branches: bool = setting(False, "Kan et al. 2022, table 8; tables 9 and 10 with", later=True)
        coded: bool = setting(True, "Kan et al. 2022; table 6 without CRT", later=True)

    @classmethod
    def misfit(cls, backbone: nn.Module) -> str:
        return needs_map(backbone)

    def __init__(self, backbone: Backbone, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        s = self.settings
        if s.coded:
            self._code(backbone.local_dim, dim)
        else:
            self.wide_embedding: nn.Module = nn.Linear(backbone.dim, s.wide_dim)
        self.wide_objective = objective.sibling(s.wide_dim)

    def _code(self, width: int, dim: int) -> None:
        """Both branches on a map of this width."""
        s = self.settings
        first = s.wide_prototypes if s.shared_branches else s.prototypes
        self.coding = CodedResidual(first, width, s.hidden, s.shared_gamma)
        self.embedding = Aggregate(first, s.hidden, dim, s.shared_gamma)
        if not s.shared_branches:
            self.wide_coding = CodedResidual(s.wide_prototypes, width, s.hidden, s.shared_gamma)
        self.wide_embedding = Aggregate(s.wide_prototypes, s.hidden, s.wide_dim, s.shared_gamma)

    def codings(self) -> list[CodedResidual]:
        """The codings that there are, each once: of the first branch, of the second."""
        return [module for module in self.children() if isinstance(module, CodedResidual)]

    def features(self, images: Tensor) -> Tensor:
        if not self.settings.coded:
            return super().features(images)
        return self.coding(self.backbone(images, local=True)[1]).flatten(1)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        s = self.settings
        pooled, places = self.backbone(images, local=True)
        hidden = [coding(places).flatten(1) for coding in self.codings()] or [pooled]
        first, second = self.project(hidden[0]), self.wide_embedding(hidden[-1])
        with torch.autocast(images.device.type, enabled=False):
            first, second = first.float(), second.float()
            unit = F.normalize(second, dim=1)
            disagreement = (gram(F.normalize(first, dim=1)) - gram(unit)).abs().mean()
            loss = (sum(coding.diversity() for coding in self.codings()) + s.weight * self.objective(first, labels)
                    + s.wide_weight * self.wide_objective(unit if self.objective.normalised else second, labels)
                    + s.consistency * disagreement)
        return Step(loss, first.detach())
