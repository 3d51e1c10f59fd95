"""Lists of backbones: those that are run together, and those that a user names."""

from __future__ import annotations

from methods.backbones import names
from methods.settings import MethodError

LISTS = {
    "generic": ("resnet50", "resnet50.swav", "vit_base_patch32_clip_224.openai", "resnetv2_50x1_bit.goog_in21k_ft_in1k",
                "resnetv2_50x1_bit.goog_in21k", "efficientnet_b0", "vit_small_patch14_dinov2.lvd142m"),
    "capacity": ("resnet18", "resnet50", "resnet101", "bninception"),
    "foundation": (
        *(f"vit_{size}_patch14_dinov2.lvd142m" for size in ("small", "base", "large")),
        *(f"vit_{size}_patch16_dinov3.lvd1689m" for size in ("small", "base", "large")),
        "vit_base_patch16_siglip_224.v2_webli", "vit_large_patch16_siglip_256.v2_webli",
        "vit_base_patch32_clip_224.openai", "vit_base_patch16_clip_224.openai", "vit_large_patch14_clip_224.openai",
        "vit_base_patch16_clip_224.laion2b", "vit_pe_core_base_patch16_224.fb", "vit_pe_core_large_patch14_336.fb",
        "vit_base_patch16_224.mae", "vit_large_patch16_224.mae", "convnext_base.fb_in1k", "convnext_base.fb_in22k",
        "convnext_base.dinov3_lvd1689m", "eva02_small_patch14_224.mim_in22k", "eva02_base_patch14_224.mim_in22k",
        "eva02_large_patch14_224.mim_m38m", "eva02_base_patch16_clip_224.merged2b", "resnetv2_50x1_bit.goog_in21k",
        "resnet50", "resnet50.tv2_in1k", "resnet50.a1_in1k", "resnet50.fb_swsl_ig1b_ft_in1k", "resnet50_v1",
        "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"),
}
"""Backbones that are run together: the generic representations of ooDML's figure 6 (its BiT is timm's BiT-M, with and
without ImageNet-1k after ImageNet-21k) with DINOv2 added, networks of different capacity, and those whose frozen
features are compared."""


def select(text: str) -> list[str]:
    """The backbones of a comma-separated list of names and of the lists in `LISTS`.

    >>> select("capacity,vit_small")
    ['resnet18', 'resnet50', 'resnet101', 'bninception', 'vit_small']
    """
    chosen: dict[str, None] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        if part not in (*LISTS, *names.TIMM, *names.OWN):
            from methods.backbones.backbone import skeleton

            skeleton(part)  # a name that is none is an error now
        chosen |= dict.fromkeys(LISTS.get(part, (part,)))
    if not chosen:
        raise MethodError(f"'{text}' names no backbone; there are the lists {', '.join(LISTS)} and any timm name")
    return list(chosen)
