"""AdaptFormer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from methods import register, setting
from methods.backbones import Backbone
from methods.layers.adapters import add_adapters
from methods.layers.tuned import TunedTransformer

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer


@register("adaptformer", family="parameter-efficient", papers=["uml"], tags=["parameter-efficient"],
          base="curricularface", trains="adapters, the last layer, and what its objective has", cite="""
@inproceedings{chen2022adaptformer, title={{AdaptFormer}: Adapting Vision Transformers for Scalable Visual Recognition},
  author={Chen, Shoufa and Ge, Chongjian and Tong, Zhan and Wang, Jiangliu and Song, Yibing and Wang, Jue and Luo,
  Ping}, booktitle={NeurIPS}, year={2022}}""")
class AdaptFormer(TunedTransformer):
    """A bottleneck beside the MLP of every block of a frozen vision transformer.

        z_l = MLP(LN(z'_l)) + z'_l + s (ReLU(LN(z'_l) W_down + b_down) W_up + b_up)

    Chen et al. 2022 as in UML's released code: the adapter sees the layer-normed input (Chen et al.: the residual
    stream), no dropout; its width gives the parameter count of UML's table 2. W_down starts as PUMA's does, sqrt(3)
    times as large as in both codes.
    """

    @dataclass(frozen=True)
    class Settings(TunedTransformer.Settings):
        bottleneck: int = setting(256, "from the parameter count in UML, table 2; Chen et al. 2022: 64")
        scale: float = setting(0.1, "Chen et al. 2022 (s)")

    def extend(self, backbone: Backbone, vit: VisionTransformer) -> None:
        add_adapters(vit, self.settings.bottleneck, attention=False, scale=self.settings.scale, bias=True)
