"""What the name of a backbone says: the network, weights of one's own, how it pools, and what it was pretrained on.

    NETWORK            a short name or timm's, `resnet50` or `vit_small_patch14_dinov2.lvd142m`
    NETWORK:LABEL      the same with weights from a file of one's own, called LABEL
    NETWORK@POOLING    the same with another pooling of its last map: token, mean, gem, max or meanmax; with -ln a layer
                       norm without scale and shift comes after it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from methods.settings import MethodError, near

if TYPE_CHECKING:
    from torch import Tensor, nn

TIMM = {
    "efficientnet_lite0": "tf_efficientnet_lite0.in1k",
    "efficientnet_lite1": "tf_efficientnet_lite1.in1k",
    "efficientnet_lite2": "tf_efficientnet_lite2.in1k",
    "efficientnet_b0": "efficientnet_b0.ra_in1k",
    "resnet18": "resnet18.tv_in1k",
    "resnet50": "resnet50.tv_in1k",
    "resnet101": "resnet101.tv_in1k",
    "vit_small": "vit_small_patch16_224.augreg_in21k_ft_in1k",
    "vit_base": "vit_base_patch16_224.augreg_in21k_ft_in1k",
    "vit_large": "vit_large_patch16_224.augreg_in21k_ft_in1k",
    "deit_small": "deit_small_patch16_224.fb_in1k",
}
"""Short names of the papers' backbones and the timm models they stand for; any other timm name works as it is."""

OWN = ("conv4", "googlenet", "bninception", "mit_b1", "mit_b2", "resnet50_v1")
"""Backbones that timm lacks: GoogLeNet is torchvision's, `resnet50_v1` timm's with other strides, the rest are ours."""

NOT_VIT = frozenset({"conv4", "googlenet", "bninception", "resnet50_v1", "resnet18", "resnet50", "resnet101",
                     "efficientnet_b0", "efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2", "mit_b1",
                     "mit_b2"})
"""Networks that are known, without making them, to have a last map and to be no plain vision transformer."""

POOLINGS = ("token", "mean", "gem", "max", "meanmax")
LAYER_NORM = "-ln"
"""What a pooling ends with where the pooled features are normalised."""
OWN_POOLING = {"avg": "mean", "token": "token", "map": "attention", "max": "max", "avgmax": "mean and max"}
"""What timm calls a network's own pooling, and what we call it."""

SETS = {
    "lvd142m": "LVD-142M", "lvd1689m": "LVD-1689M", "webli": "WebLI", "openai": "WIT-400M", "laion2b": "LAION-2B",
    "laion400m": "LAION-400M", "laiona": "LAION-A", "datacompxl": "DataComp-1B", "dfn2b": "DFN-2B",
    "metaclip": "MetaCLIP", "merged2b": "Merged-2B", "m38m": "Merged-38M", "fb_pe": "PE web images", "ig1b": "IG-1B",
    "yfcc100m": "YFCC-100M", "in21k": "ImageNet-21k", "in22k": "ImageNet-21k", "in12k": "ImageNet-12k",
    "in1k": "ImageNet-1k", "swav": "ImageNet-1k", "mae": "ImageNet-1k", "fcmae": "ImageNet-1k",
}
"""Parts of timm's tags, and the images that they stand for. EVA-02's Merged-2B is LAION-2B and COYO-700M, its
Merged-38M has ImageNet-21k in it; masked autoencoders without another part saw ImageNet-1k."""


class Outline(NamedTuple):
    """What is known of one of NOT_VIT by its name: it has a last map, and no blocks to adapt."""

    name: str
    local_dim: int = 0


class Name(NamedTuple):
    """The parts of a backbone's name."""

    network: str
    label: str = ""
    pooling: str = ""


def parse(name: str) -> Name:
    """The parts of a name.

    >>> parse("resnet50"), parse("resnet50:mine@gem")
    (Name(network='resnet50', label='', pooling=''), Name(network='resnet50', label='mine', pooling='gem'))
    """
    rest, at, pooling = name.partition("@")
    if at and pooling.removesuffix(LAYER_NORM) not in POOLINGS:
        raise MethodError(f"backbone '{name}': '{pooling}' is no pooling{near(pooling, POOLINGS)}; there are "
                          f"{', '.join(POOLINGS)}, each also with a layer norm: gem{LAYER_NORM}")
    network, _, label = rest.partition(":")
    return Name(network, label, pooling)


def pretraining(tag: str) -> tuple[str, ...]:
    """The sets of images behind timm's weights, by their tag; empty where it does not tell.

    >>> pretraining("vit_base_patch16_clip_224.openai_ft_in12k_in1k"), pretraining("vit_base_patch16_224.mae")
    (('WIT-400M', 'ImageNet-12k', 'ImageNet-1k'), ('ImageNet-1k',))
    """
    network, _, weights = tag.partition(".")
    if network.startswith("vit_pe_") and weights == "fb":
        weights = "fb_pe"
    found = {SETS[part]: weights.find(part) for part in SETS if part in weights and part not in ("mae", "fcmae")}
    if not found and weights in ("mae", "fcmae"):
        found = {SETS[weights]: 0}
    return tuple(sorted(found, key=lambda name: found[name]))


def pool(places: Tensor, maps: Tensor, pooling: str, power: float = 3.0) -> Tensor:
    """A last map (b, places, c) as features (b, c).

        mean: 1/P sum_p x_p     gem: (1/P sum_p max(x_p, eps)^3)^(1/3)     token: the class token
        max: max_p x_p          meanmax: the sum of both, as in the released code of Proxy Anchor
        -ln: (x - mean_c x) / std_c x, as in that of ROADMAP

    >>> import torch
    >>> last = torch.tensor([[[1.0, 8.0], [3.0, 2.0]]])  # two places of two channels
    >>> pool(last, last, "mean"), pool(last, last, "meanmax")
    (tensor([[2., 5.]]), tensor([[ 5., 13.]]))
    >>> pool(last, last, "meanmax-ln").round(decimals=3)
    tensor([[-1.,  1.]])
    """
    if pooling.endswith(LAYER_NORM):
        from torch.nn.functional import layer_norm  # names are read without torch

        pooled = pool(places, maps, pooling.removesuffix(LAYER_NORM), power)
        return layer_norm(pooled, pooled.shape[1:])
    if pooling == "token":
        return maps[:, 0]
    if pooling == "mean":
        return places.mean(1)
    if pooling == "max":
        return places.amax(1)
    if pooling == "meanmax":
        return places.mean(1) + places.amax(1)
    return places.clamp(min=1e-6).pow(power).mean(1).pow(1 / power)


def check_pooling(name: str, pooling: str, network: nn.Module) -> None:
    """A MethodError where a network has no class token to take."""
    if pooling.removesuffix(LAYER_NORM) == "token" and not getattr(network, "num_prefix_tokens", 0):
        raise MethodError(f"backbone '{name}': the network has no class token; take @mean or @gem")


def own_pooling(network: nn.Module) -> str:
    """How a network pools by itself, as far as it says."""
    kind = getattr(network, "global_pool", None) or getattr(getattr(network, "head", None), "global_pool", "")
    kind = kind if isinstance(kind, str) else getattr(kind, "pool_type", "")
    return OWN_POOLING.get(str(kind), "its own")
