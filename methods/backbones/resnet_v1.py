"""ResNet-50 as He et al. published it: stages 2 to 4 halve the map in their first 1x1 convolution, not in the 3x3 one.

Caffe's and Keras's weights belong to this layout, torchvision's and timm's to the other. Names and shapes are the same
in both, so that a checkpoint would load into the wrong one without complaint and compute wrong features. Some numbers
of the weights that most others were trained from tell them apart, and features of a fixed image whether He et al.'s
were converted well.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from methods.method import MethodError

NAME = "resnet50_v1"
OTHER = "resnet50"


class Sample(NamedTuple):
    """Some numbers of a tensor of known weights."""

    tensor: str
    at: tuple[Any, ...]
    values: tuple[float, ...]

    def off(self, state: dict[str, Tensor]) -> float:
        """How far a checkpoint is from them, ||x - v|| / ||v||; infinitely where it has no such tensor.

        >>> Sample("a", (0,), (3.0, 4.0)).off({"a": torch.tensor([[3.0, 4.5]])})
        0.1
        """
        try:
            found = state[self.tensor][self.at].flatten()
        except (KeyError, IndexError):
            return float("inf")
        return distance(found, self.values) if len(found) == len(self.values) else float("inf")


def distance(found: Tensor, values: tuple[float, ...]) -> float:
    """||x - v|| / ||v||."""
    known = torch.tensor(values, dtype=torch.float64)
    return float((found.double().cpu() - known).norm() / known.norm())


KERNEL = Sample("layer1.0.conv1.weight", (0, slice(16), 0, 0), (
    0.086888, 0.013565, -0.027768, 0.047396, -0.0053938, 0.035481, -0.0090532, 0.021583, -0.031913, -0.085058, -0.18537,
    -0.021585, -0.029842, -0.073676, -0.053961, -0.022229))
"""Of He et al.'s ImageNet weights, which no converter changes by more than rounding."""

TORCHVISION = Sample("conv1.weight", (0, 0, slice(3), [0, 1, 2, 4, 5, 6]), (
    0.013335, 0.014664, -0.015351, -0.040896, -0.043034, -0.070755, 0.0041205, 0.0058477, 0.014948, 0.002206, -0.020912,
    -0.038517, 0.022331, 0.023595, 0.01612, 0.10281, 0.062641, 0.051977))
"""Of torchvision's first ImageNet weights (`tv_in1k`), as the documentation of MMCV prints them."""

PIXELS = Sample("conv1.weight", (4, slice(3), 3), (
    -3.0682, -5.5831, -7.812, -9.0592, -9.9203, -7.9521, -4.1874, 0.86902, -0.06676, -0.16874, 0.18681, 0.36849,
    0.78524, 0.8255, 2.224, 5.2487, 7.7916, 9.3071, 7.939, 6.4103, 4.0168))
"""Of He et al.'s filter of blue against red, for red first and pixels of mean 0 and deviation 1: with blue first it is
2 off, for pixels of 0 .. 255 it is 0.98 off."""

NEAR = 0.4
"""How far weights that were trained on from known ones may be from these; others are 1 and more away from them."""

UNTRAINED = (
    KERNEL,
    Sample("layer4.2.conv3.weight", (0, slice(8), 0, 0), (
        0.017641, 0.0065775, 0.019698, -0.018804, -0.019947, -0.0088487, 0.024461, 0.0049839)),
    Sample("layer4.2.bn3.weight", (slice(8),), (1.3452, 1.3966, 1.4453, 1.5415, 1.8641, 2.2292, 1.2848, 1.6986)),
    Sample("layer4.2.bn3.running_mean", (slice(8),), (
        -0.12826, -0.086367, -0.07195, -0.096541, -0.084106, -0.10678, -0.059038, -0.083513)),
)
"""Of the first and the last layers: where all are as He et al. left them, nothing was trained on."""

ROUNDING = 6e-4
"""How far half precision may bring a number from itself: 2^-11. A dozen steps of training bring it further."""

FEATURES = (0.5202, 0.5714, 0.0, 0.0, 4.0674, 0.0, 2.5617, 0.0, 0.0, 2.7928, 0.2332, 0.0, 0.0, 0.0, 0.0, 0.0)
"""The first features that He et al.'s weights give `fixed_image()`."""

CLOSE = 0.1
"""How far features may be from FEATURES: bfloat16 brings them 0.015 away, wrong conversions 0.2 and more."""


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
    """Refuse weights that come from known ones of one layout for a network of the other, or that want other pixels.

    Of weights that come from neither a warning says which layout was assumed.

    Args:
        name: of the network that is to take them; timm's tag behind it tells the layout.
        state: the checkpoint's tensors by name.
        source: what to call the checkpoint.
    """
    he, torchvision = KERNEL.off(state) < NEAR, TORCHVISION.off(state) < NEAR
    if he and name != NAME:
        raise MethodError(f"{source} holds the weights of He et al., with which {name} would compute wrong features: "
                          f"its stages halve the map in another convolution; take --backbone {NAME}")
    if torchvision and name == NAME:
        raise MethodError(f"{source} holds the weights of torchvision, with which {name} would compute wrong features: "
                          f"its stages halve the map in another convolution; take --backbone {OTHER}")
    if he and PIXELS.off(state) > NEAR:
        raise MethodError(f"{source} holds the weights of He et al., but its conv1.weight is not for red, green, blue "
                          "of mean 0 and deviation 1 (it is probably for Caffe's pixels: blue first, 0 .. 255); "
                          "`oodml weights convert` makes it so from Keras's weights")
    if name in (NAME, OTHER) and not he and not torchvision:
        layout, other = ("He et al.'s", OTHER) if name == NAME else ("torchvision's", NAME)
        warnings.warn(f"{source} does not say for which layout of ResNet-50 it was trained: taken for {layout}, "
                      f"{name}; if it is the other, take --backbone {other}", stacklevel=3)


def check_features(network: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Refuse He et al.'s own weights where the network does not compute their features with them."""
    if any(sample.off(state) > ROUNDING for sample in UNTRAINED):
        return
    away = distance(features(network), FEATURES)
    if not away < CLOSE:
        raise MethodError(f"{source} holds the weights of He et al., but features of a fixed image are {away:.0%} away "
                          f"from theirs: it was converted wrongly, or its batch norm is another; `oodml weights "
                          "convert` makes it from Keras's weights")


def features(network: nn.Module) -> Tensor:
    """The first features of the fixed image, as the network computes them in evaluation."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad():
            return network(fixed_image().to(next(network.parameters()).device))[0, :len(FEATURES)]
    finally:
        for module, training in modes:
            module.training = training


def fixed_image() -> Tensor:
    """An image of 64 x 64 pixels (1, 3, h, w), another pattern in each colour, of numbers that every device has."""
    y, x = torch.arange(64).view(-1, 1), torch.arange(64).view(1, -1)
    return torch.stack([x * y % 13, 2 * (x * (y + 3) % 7), (x + 2 * y) % 11]).float()[None] / 4 - 1.5
