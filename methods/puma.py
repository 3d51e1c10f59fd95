"""PUMA, its ablations and its combinations with LoRA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from methods import Step, register, setting
from methods.backbones import Backbone
from methods.layers.adapters import add_adapters, add_low_rank
from methods.layers.prompts import Prompt, Prompted, PromptPool
from methods.layers.tuned import KIM, TunedTransformer

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

COMMON: dict[str, Any] = {"family": "parameter-efficient", "papers": ["uml"], "tags": ["parameter-efficient"],
                          "base": "curricularface", "cite": KIM}
REST = "the last layer, and what its objective has"


@register("puma", trains=f"adapters, prompts, {REST}", **COMMON)
@register("puma-prompt", trains=f"prompts, {REST}", defaults={"bottleneck": 0}, **COMMON)
@register("puma-adapter", trains=f"adapters, {REST}", defaults={"prompts": 0}, **COMMON)
@register("puma-static-adapter", trains=f"adapters, {REST}", defaults={"prompts": 0, "keep": 1.0}, **COMMON)
@register("puma-single-static", trains=f"adapters, a prompt, {REST}", defaults={"prompts": 1, "keep": 1.0}, **COMMON)
@register("puma+lora", trains=f"adapters, prompts, low-rank updates, {REST}", defaults={"rank": 128}, **COMMON)
@register("puma+stochastic-lora", trains=f"adapters, prompts, low-rank updates, {REST}",
          defaults={"rank": 128, "rank_keep": 0.5}, **COMMON)
class Puma(TunedTransformer):
    """Adapters that act on a random half of the samples, and prompts mixed for each image, in a frozen transformer.

        z'_l = MSA(LN(z_{l-1})) + z_{l-1} + gamma' s ReLU(LN(z_{l-1}) W'_down) W'_up,   gamma' ~ Bernoulli(p) / p
        z_l  = MLP(LN(z'_l)) + z'_l + gamma s ReLU(LN(z'_l) W_down) W_up
        z_0  = [e_cls, sum_m cos(q * A_m, K_m) P_m, E],   q = AvgPool(E) + MaxPool(E)

    Kim et al. 2025, eq. 4-10. The scale s and the division by p (drop-path for each sample) are those of the released
    code. It also lets A_m pass a softmax, gives prompts the class token's position and adds a regulariser, of which
    the paper says nothing: `softmax_released`, `class_position_released`, `orthogonality` (1e-6 there). Ablations of
    table 3: `puma-prompt`, `puma-adapter`, `puma-static-adapter`, `puma-single-static` (and `vpt`, the single prompt);
    of table 7: `puma+lora`, `puma+stochastic-lora`. `layers=12` is the ViT-L with a dagger of table 6.
    """

    @dataclass(frozen=True)
    class Settings(TunedTransformer.Settings):
        bottleneck: int = setting(128, "Kim et al. 2025, section 5.1 (r); 0: no adapters")
        keep: float = setting(0.5, "Kim et al. 2025, section 5.1 (p)")
        scale: float = setting(0.1, "UML, released code (s)")
        layers: int = setting(0, "Kim et al. 2025, table 6: blocks with adapters from the first on; 0: all")
        prompts: int = setting(20, "Kim et al. 2025, section 5.1 (M); 1: one for all images, 0: none")
        length: int = setting(8, "Kim et al. 2025, section 5.1 (N_p)")
        rank: int = setting(0, "Kim et al. 2025, table 7: 128 with LoRA; 0: none")
        rank_keep: float = setting(1.0, "Kim et al. 2025, table 7: .5 with stochastic LoRA")
        softmax_released: bool = setting(False, "Kim et al. 2025, eq. 8")
        class_position_released: bool = setting(False, "Kim et al. 2025, eq. 10")
        orthogonality: float = setting(0.0, "Kim et al. 2025 have none; the released code 1e-6")

    def extend(self, backbone: Backbone, vit: VisionTransformer) -> None:
        s = self.settings
        if s.rank:
            add_low_rank(vit, s.rank, "qk", keep=s.rank_keep)
        if s.bottleneck:
            add_adapters(vit, s.bottleneck, layers=s.layers, keep=s.keep, scale=s.scale)
        self.pool = s.prompts > 1
        if s.prompts:
            prompts = (PromptPool(s.prompts, s.length, vit.embed_dim, softmax=s.softmax_released) if self.pool
                       else Prompt(s.length, vit.embed_dim, vit.patch_embed.patch_size[0]))
            backbone.network = Prompted(vit, prompts, at_class=s.class_position_released)

    def step(self, images: Tensor, labels: Tensor) -> Step:
        loss, embeddings = super().step(images, labels)
        if self.pool and self.settings.orthogonality:
            loss = loss + self.settings.orthogonality * self.backbone.network.prompts.orthogonality()  # type: ignore
        return Step(loss, embeddings)
