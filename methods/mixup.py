"""Manifold mixup of any objective."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from methods import Method, MethodError, Objective, Step, register, setting
from methods.parts.memory import Memory

VERMA = """
@inproceedings{verma2019manifold, title={Manifold Mixup: Better Representations by Interpolating Hidden States},
  author={Verma, Vikas and Lamb, Alex and Beckham, Christopher and Najafi, Amir and Mitliagkas, Ioannis and Lopez-Paz,
  David and Bengio, Yoshua}, booktitle={ICML}, year={2019}}"""
CONTAINERS = ("blocks", "stages", "layers")


def mixing_points(backbone: nn.Module) -> list[nn.Module]:
    """The earlier half of the backbone's stages or blocks, after which states may be mixed; may be empty."""
    named = dict(backbone.named_modules())
    stages = [module for name, module in named.items() if name.rpartition(".")[2] in ("layer1", "layer2")]
    for name, module in named.items():
        if not stages and name.rpartition(".")[2] in CONTAINERS and isinstance(module, nn.Sequential | nn.ModuleList):
            stages = list(module)[:len(module) // 2]
    return stages


@contextlib.contextmanager
def mixed_after(module: nn.Module | None, share: float, partner: Tensor) -> Iterator[None]:
    """While this lasts, the module's output is share * h_i + (1 - share) * h_partner(i)."""

    def mix(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return share * output + (1 - share) * output[partner]

    handle = module.register_forward_hook(mix) if module is not None else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


@register("manifold-mixup", family="mixup", papers=["revisiting"], base="normsoftmax", cite=VERMA,
          trains="network, and what its objective has")
@register("manifold-mixup-triplet", family="mixup", papers=["revisiting"], base="triplet", cite=VERMA,
          trains="network, and what its objective has")
@register("manifold-mixup-margin", family="mixup", papers=["revisiting"], base="margin-b06", cite=VERMA,
          trains="network, and what its objective has")
class ManifoldMixup(Method):
    """Hidden states of two images are mixed, and the objective with the labels of both is weighed alike.

        h_i <- lambda h_i + (1 - lambda) h_{pi(i)},   lambda ~ Beta(alpha, alpha)
        L = lambda L_base(phi, y) + (1 - lambda) L_base(phi, y_pi)

    Verma et al. 2019; Revisiting DML eq. 30, for tuples of each of the two labels. The layer is drawn anew in each
    step: the input or one of the earlier half of the backbone's stages (Verma et al., section 4). Hooks on the
    stages do it, so the backbone must not be compiled as one graph.
    """

    compiles: ClassVar[bool] = False  # hooks on inner layers do not reach into a compiled network
    whole_batch: ClassVar[bool] = True

    @dataclass(frozen=True)
    class Settings:
        alpha: float = setting(2.0, "Revisiting DML, appendix F")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        if any(isinstance(part, Memory) for part in objective.modules()):
            # it would meet itself there under its other label, as the hardest of its negatives
            raise MethodError("manifold-mixup gives each image two labels, and a memory of past embeddings keeps one "
                              "for each; take a base without a memory, such as triplet or multisimilarity")

    def step(self, images: Tensor, labels: Tensor) -> Step:
        alpha = self.settings.alpha
        share = float(torch.distributions.Beta(alpha, alpha).sample())
        partner = torch.randperm(len(labels), device=images.device)
        points = mixing_points(self.backbone)
        layer = int(torch.randint(1 + len(points), ()))
        if layer == 0:
            images = share * images + (1 - share) * images[partner]
        with mixed_after(points[layer - 1] if layer else None, share, partner):
            embeddings = self(images)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.float()
            first, second = self.objective(embeddings, labels), self.objective(embeddings, labels[partner])
        return Step(share * first + (1 - share) * second, embeddings.detach())
