"""LoRA: low-rank updates of the attention, always on or stochastic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from methods import MethodError, register, setting
from methods.backbones import Backbone
from methods.layers.adapters import add_low_rank
from methods.layers.tuned import KIM, TunedTransformer

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

HU = """
@inproceedings{hu2022lora, title={{LoRA}: Low-Rank Adaptation of Large Language Models}, author={Hu, Edward J. and Shen,
  Yelong and Wallis, Phillip and Allen-Zhu, Zeyuan and Li, Yuanzhi and Wang, Shean and Wang, Lu and Chen, Weizhu},
  booktitle={ICLR}, year={2022}}"""


@register("lora", family="parameter-efficient", papers=["uml"], tags=["parameter-efficient"], base="curricularface",
          trains="low-rank updates of attention, the last layer, and what its objective has", cite=HU)
@register("stochastic-lora", family="parameter-efficient", papers=["uml"], tags=["parameter-efficient"],
          base="curricularface", defaults={"keep": 0.5}, cite=HU + KIM,
          trains="low-rank updates of attention, the last layer, and what its objective has")
class LowRankAdaptation(TunedTransformer):
    """Low-rank updates of two projections of every attention in a frozen vision transformer.

        W' = W + gamma B A,   A in R^{r x D}, B in R^{D x r}, B = 0 at first,   gamma ~ Bernoulli(keep) / keep

    Hu et al. 2022; UML's tables 2 and 7, with query and key as in its released code (Hu et al.: query and value). The
    stochastic variant drops the update for each sample and layer in training.
    """

    @dataclass(frozen=True)
    class Settings(TunedTransformer.Settings):
        rank: int = setting(128, "UML, table 7 (r)")
        projections: str = setting("qk", "UML, released code; Hu et al. 2022: qv")
        keep: float = setting(1.0, "UML, table 7: .5 in the stochastic variant (p)")

    def extend(self, backbone: Backbone, vit: VisionTransformer) -> None:
        letters = self.settings.projections
        if not letters or len(set(letters)) < len(letters) or not set(letters) <= set("qkv"):
            raise MethodError(f"lora.projections = '{letters}': write letters of qkv, none of them twice, as in qv")
        add_low_rank(vit, self.settings.rank, letters, keep=self.settings.keep)
