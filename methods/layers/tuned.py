"""Parameter-efficient tuning: a backbone that stays as it was, and small additions that train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from methods.backbones import Backbone
from methods.backbones.examples import small_vit
from methods.layers.adapters import Addition
from methods.method import Method, Objective, setting

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

KIM = """
@inproceedings{kim2025puma, title={Universal Metric Learning with Parameter-Efficient Transfer Learning},
  author={Kim, Sungyeon and Kim, Donghyun and Kwak, Suha}, booktitle={WACV}, year={2025}}"""


class Tuned(Method):
    """A frozen backbone under a trainable last layer. Subclasses put their additions into it."""

    @dataclass(frozen=True)
    class Settings:
        rate: float = setting(10.0, "times lr: UML, released code, additions and last layer")

    def __init__(self, backbone: nn.Module, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> Tuned:
        """What is frozen stays in evaluation mode, its running statistics too."""
        super().train(mode)
        self.backbone.eval()
        for module in self.backbone.modules():
            if isinstance(module, Addition):
                module.train(mode)
        return self

    def groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """All that trains of the network is one group, `head`: there is no backbone to rest in a warm-up."""
        parts = super().groups(lr, weight_decay)
        own = [p for group in parts if group["name"] in ("backbone", "head") for p in group["params"]]
        head = {"name": "head", "params": own, "lr": lr * self.settings.rate, "weight_decay": weight_decay}
        return [head] + [group for group in parts if group["name"] not in ("backbone", "head")]


class TunedTransformer(Tuned):
    """A frozen plain vision transformer with additions to its blocks or to its input."""

    example_backbone = staticmethod(small_vit)

    @classmethod
    def misfit(cls, backbone: nn.Module) -> str:
        network = getattr(backbone, "network", backbone)
        if hasattr(network, "blocks"):
            from timm.models.vision_transformer import VisionTransformer

            if isinstance(network, VisionTransformer) and all(hasattr(block, "mlp") and hasattr(block.attn, "qkv")
                                                              for block in network.blocks):
                return ""
        name = getattr(backbone, "name", type(backbone).__name__)
        return f"it adapts the blocks of a plain vision transformer, which {name} is not; take --backbone vit_small"

    def __init__(self, backbone: Backbone, objective: Objective, dim: int, settings: Any = None) -> None:
        super().__init__(backbone, objective, dim, settings)
        self.extend(backbone, backbone.network)  # type: ignore[arg-type]

    def extend(self, backbone: Backbone, vit: VisionTransformer) -> None:
        """Put the additions in."""
        raise NotImplementedError
