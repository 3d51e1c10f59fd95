"""VPT: visual prompt tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from methods import register, setting
from methods.backbones import Backbone
from methods.layers.prompts import Prompt, Prompted
from methods.layers.tuned import TunedTransformer

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer


@register("vpt", family="parameter-efficient", papers=["uml"], tags=["parameter-efficient"], base="curricularface",
          trains="prompts, the last layer, and what its objective has", cite="""
@inproceedings{jia2022visual, title={Visual Prompt Tuning}, author={Jia, Menglin and Tang, Luming and Chen, Bor-Chun and
  Cardie, Claire and Belongie, Serge and Hariharan, Bharath and Lim, Ser-Nam}, booktitle={ECCV}, year={2022}}""")
class VisualPrompt(TunedTransformer):
    """A few learnt tokens at the input of a frozen vision transformer.

        z_0 = [e_cls, P, E],   P in R^{N x D}

    Jia et al. 2022, shallow. It is the single prompt of UML's table 3, which has the same scores.
    """

    @dataclass(frozen=True)
    class Settings(TunedTransformer.Settings):
        length: int = setting(8, "UML, section 5.1 (N_p)")

    def extend(self, backbone: Backbone, vit: VisionTransformer) -> None:
        backbone.network = Prompted(vit, Prompt(self.settings.length, vit.embed_dim, vit.patch_embed.patch_size[0]))
