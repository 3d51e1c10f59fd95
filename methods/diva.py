"""DiVA: diverse visual feature aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods import Method, MethodError, Objective, Step, register, setting
from methods.layers.adversary import Decorrelation
from methods.layers.momentum import Momentum, Queue, distance_adapted
from methods.parts.groups import Counter, apart
from methods.parts.miners import within_class
from methods.parts.ranked import Ranked

HEADS = ("discriminative", "shared", "selfsimilarity", "intra")
PUBLISHED_WIDTH = 128
"""Of one head, in all published runs: what rho was tuned for. Heads of this width leave rho as it is."""


@register("diva", family="auxiliary", papers=["oodml"], tags=["oodml-study"], base="margin",
          trains="network, four embeddings, networks that keep them apart, and what its objectives have", cite="""
@inproceedings{milbich2020diva, title={{DiVA}: Diverse Visual Feature Aggregation for Deep Metric Learning},
  author={Milbich, Timo and Roth, Karsten and Bharadhwaj, Homanga and Sinha, Samarth and Bengio, Yoshua and Ommer,
  Bj{\\"o}rn and Cohen, Joseph Paul}, booktitle={ECCV}, year={2020}}""")
class DiVA(Method):
    """Four embeddings of a quarter of the width each: of what tells classes apart, of what they share, and of samples.

        L = L_disc + alpha_sh L_shared + alpha_ss L_self + alpha_in L_intra + rho (d/128)^2 sum_a L_dec(phi_disc, phi_a)
        phi = [w_1 phi_disc, w_2 phi_shared, w_3 phi_self, w_4 phi_intra] / |.|

    Milbich et al. 2020. The base objective ranks triplets: of the labels (disc), of labels permuted within the batch,
    so that all three images are of different classes (shared), and of one class alone (intra). L_self contrasts two
    augmentations of an image with a queue of keys from a momentum encoder; L_dec is adversarial, by gradient reversal.
    L_dec averages products of the entries of two unit vectors, so it falls as 1/d^2: the factor keeps rho what it is
    for heads of d = 128 numbers, the width of all published runs; without it narrower heads collapse. As released for
    ooDML: intra too ranks permuted labels (DiVA itself: one class, `permuted_intra_released=false`), boundaries are
    those of the true class, and the weights of L_self are normalised for each key over the queries
    (`weights_by_key_released=false`: for each query, the authors' later correction). The queue fills in the first steps
    instead of before them. The protocol oodml gives the base the released balance with L_self and L_dec: margin loss
    over the number of triplets with an active pair (`released_divisor`), of negatives at any distance (`limit` 2);
    elsewhere the base has its own settings. It learns slowly: so trained, one seed on CUB's default split has a
    Recall@1 of 43.4 after 10 epochs, 60.2 after 50, 66.8 at best (70) and 55.5 after 200; `margin` at best 63.2.
    """

    views = 2
    compiled_parts = ("losses",)
    example_settings: ClassVar[dict[str, Any]] = {"keys": 50, "hidden": 8}
    fresh: Tensor
    """The keys of a batch, for the queue once its backward pass is done."""

    @dataclass(frozen=True)
    class Settings:
        shared: float = setting(0.3, "ooDML, released runs (alpha)", search=(0.05, 0.6), cub=0.3, cars=0.15, sop=0.2)
        selfsimilarity: float = setting(0.3, "ooDML, released runs (alpha)",
                                        search=(0.05, 0.6), cub=0.3, cars=0.15, sop=0.2)
        intra: float = setting(0.3, "ooDML, released runs (alpha)", search=(0.05, 0.6), cub=0.3, cars=0.15, sop=0.2)
        decorrelation: float = setting(1500.0, "ooDML, released runs (rho)",
                                       search=(50.0, 3000.0), cub=1500.0, cars=100.0, sop=150.0)
        hidden: int = setting(512, "Milbich et al. 2020, released code: width of the decorrelating networks")
        weights: tuple[float, ...] = setting((1.0, 1.0, 1.0, 1.0), "ooDML, released code: of the heads in search",
                                             cub=(0.75, 1.25, 1.25, 1.25), cars=(0.5, 1.5, 1.5, 1.5))
        momentum: float = setting(0.9, "ooDML, released runs")
        temperature: float = setting(0.01, "ooDML, released runs (T)")
        keys: int = setting(3240, "ooDML, released code: 30 batches of 108, 70 on SOP", sop=7560)
        cutoff: float = setting(0.5, "Milbich et al. 2020, released code")
        limit: float = setting(1.4, "Milbich et al. 2020, released code")
        permuted_intra_released: bool = setting(True, "ooDML, released code; Milbich et al. 2020: within a class")
        weights_by_key_released: bool = setting(True, "ooDML, released code; corrected later in DiVA's own")
        delay: int = setting(0, "released code: L_self from the first step, on a queue that was filled before")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        if dim % len(HEADS):
            raise MethodError(f"diva cuts the embedding into {len(HEADS)} equal parts, which {dim} numbers do not "
                              f"allow; set dim={dim // len(HEADS) * len(HEADS) or len(HEADS)}")
        if not isinstance(objective, Ranked):
            raise MethodError("diva ranks triplets that it picks itself, so its base must be a triplet objective "
                              f"such as margin or triplet, not {type(objective).__name__}")
        if len(settings.weights) != len(HEADS):
            raise MethodError(f"diva.weights has {len(settings.weights)} numbers and diva {len(HEADS)} heads; give one "
                              f"for each of {', '.join(HEADS)}")
        part = dim // len(HEADS)
        super().__init__(backbone, objective.sibling(part), dim, settings)
        s = self.settings
        self.others = nn.ModuleDict({name: objective.sibling(part) for name in ("shared", "intra")})
        self.separators = nn.ModuleDict({name: Decorrelation(part, s.hidden) for name in HEADS[1:]})
        self.encoder = Momentum(nn.Sequential(self.backbone, self.embedding), s.momentum)
        self.queue = Queue(s.keys, part)
        self.steps = Counter()
        self.rho = s.decorrelation * (part / PUBLISHED_WIDTH)**2

    def heads(self, features: Tensor) -> dict[str, Tensor]:
        """The four normalised embeddings."""
        parts = self.embedding(features).chunk(len(HEADS), dim=1)
        return {name: F.normalize(part, dim=-1) for name, part in zip(HEADS, parts)}

    def project(self, features: Tensor) -> Tensor:
        return self.joined(self.heads(features))

    def joined(self, parts: dict[str, Tensor]) -> Tensor:
        """What is searched by: the heads side by side, each with its weight."""
        weighed = [w * part for w, part in zip(self.settings.weights, parts.values())]
        return F.normalize(torch.cat(weighed, 1), dim=-1)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        first, second = images
        loss, embeddings, self.fresh = self.losses(self.features(first), self.encoder(second), labels,
                                                   self.steps.count >= self.settings.delay)
        return Step(loss, embeddings)

    def losses(self, features: Tensor, slow: Tensor, labels: Tensor,
               by_samples: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, the embeddings and the keys of a batch from its features and what the slow network gives."""
        s = self.settings
        parts = self.heads(features)
        keys = slow.chunk(len(HEADS), dim=1)[HEADS.index("selfsimilarity")]
        with torch.autocast(features.device.type, enabled=False):
            parts = {name: part.float() for name, part in parts.items()}
            keys = F.normalize(keys.float(), dim=-1)
            loss = (self.objective(parts["discriminative"], labels)
                    + s.shared * self._permuted("shared", parts["shared"], labels)
                    + s.intra * self._intra(parts["intra"], labels))
            if s.selfsimilarity and by_samples:
                loss = loss + s.selfsimilarity * distance_adapted(
                    parts["selfsimilarity"], keys, self.queue, s.temperature, s.cutoff, s.limit,
                    by_key=s.weights_by_key_released)
            for name, separator in self.separators.items() if self.rho else ():
                loss = loss + self.rho * separator(parts["discriminative"], parts[name])
        return loss, self.joined(parts).detach(), keys

    def _intra(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        objective: Ranked = self.others["intra"]  # type: ignore[assignment]
        if self.settings.permuted_intra_released:
            return self._permuted("intra", embeddings, labels)
        return objective.loss(embeddings, labels, within_class(embeddings, labels))

    def _permuted(self, name: str, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Triplets of labels that are permuted within the batch; each anchor keeps the boundary of its own class."""
        objective: Ranked = self.others[name]  # type: ignore[assignment]
        # by sorting: the compiler of torch 2.11 fails on tensors indexed by a randperm, and DiVA then trains uncompiled
        permuted = labels[torch.rand(len(labels), device=labels.device).argsort()]
        return objective.loss(embeddings, labels, objective.mine(embeddings.detach(), permuted))

    def after_step(self) -> None:
        self.steps.count += 1
        self.queue.enqueue(self.fresh)
        self.encoder.follow(nn.Sequential(self.backbone, self.embedding))

    def groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """The decorrelating networks do not decay (released code)."""
        return apart(super().groups(lr, weight_decay), "separators", self.separators, lr=lr, weight_decay=0.0)
