"""ResNet-50 as He et al. published it: stages 2 to 4 halve the map in their first 1x1 convolution, not in the 3x3 one.

Caffe's and Keras's weights belong to this layout, torchvision's and timm's to the other. Names and shapes are the same
in both, so that a checkpoint would load into the wrong one without complaint and compute wrong features; a probe of its
first convolution tells whose weights it holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.method import MethodError

NAME = "resnet50_v1"
PROBE = ("layer1.0.conv1.weight", (0.0869, 0.0136, -0.0278, 0.0474))
"""A tensor of He et al.'s ImageNet weights that converters change by rounding alone, and its first numbers."""


def resnet50_v1() -> Any:
    """timm's ResNet-50 with the strides where He et al. have them.

    >>> resnet50_v1().layer3[0].conv1.stride
    (2, 2)
    """
    import timm

    network: Any = timm.create_model("resnet50", pretrained=False, num_classes=0)
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    return network


def check_layout(name: str, state: dict[str, Tensor], source: str) -> None:
    """Refuse ImageNet weights of one layout for a network of the other.

    Args:
        name: of the backbone that is to take them.
        state: the checkpoint's tensors by name.
        source: what to call the checkpoint in an error.
    """
    probed = state.get(PROBE[0], torch.zeros(4)).flatten()[:4].float()
    he = probed.shape == (4,) and torch.allclose(probed, torch.tensor(PROBE[1]), atol=2e-4)
    if he and name != NAME:
        raise MethodError(f"{source} holds the weights of He et al., with which {name} would compute wrong features: "
                          f"its stages halve the map in another convolution; take --backbone {NAME}")
    if name == NAME and not he:
        raise MethodError(f"{source} does not hold He et al.'s ImageNet weights (Caffe's or Keras's), the only ones "
                          f"known to have the layout of {NAME}; for torchvision's or timm's take --backbone resnet50")
