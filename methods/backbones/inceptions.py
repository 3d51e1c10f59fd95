"""The Inception networks of the older papers, which timm lacks: GoogLeNet (torchvision's) and BN-Inception."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torchvision
from torch import Tensor, nn


class GoogLeNet(torchvision.models.GoogLeNet):
    """torchvision's GoogLeNet up to its last map, without the auxiliary classifiers of training."""

    num_features = 1024

    def __init__(self) -> None:
        super().__init__(aux_logits=False, init_weights=False)
        self.fc = nn.Identity()

    def forward_features(self, images: Tensor) -> Tensor:
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(images)))))
        x = self.maxpool3(self.inception3b(self.inception3a(x)))
        x = self.inception4e(self.inception4d(self.inception4c(self.inception4b(self.inception4a(x)))))
        return self.inception5b(self.inception5a(self.maxpool4(x)))

    def forward_head(self, maps: Tensor) -> Tensor:
        return self.avgpool(maps).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


class Branches(NamedTuple):
    """Widths of one block: 1x1 (0: none, and stride 2), 3x3, two 3x3, pooling and the projection after it."""

    single: int
    three: tuple[int, int]
    double: tuple[int, int]
    pool: str
    projection: int


BLOCKS = {
    "3a": Branches(64, (64, 64), (64, 96), "avg", 32),
    "3b": Branches(64, (64, 96), (64, 96), "avg", 64),
    "3c": Branches(0, (128, 160), (64, 96), "max", 0),
    "4a": Branches(224, (64, 96), (96, 128), "avg", 128),
    "4b": Branches(192, (96, 128), (96, 128), "avg", 128),
    "4c": Branches(160, (128, 160), (128, 160), "avg", 128),
    "4d": Branches(96, (128, 192), (160, 192), "avg", 128),
    "4e": Branches(0, (128, 192), (192, 256), "max", 0),
    "5a": Branches(352, (192, 320), (160, 224), "avg", 128),
    "5b": Branches(352, (192, 320), (192, 224), "max", 128),
}
"""Ioffe and Szegedy 2015, table of the network, with the widths of the Caffe model whose weights are in use."""


class BNInception(nn.Module):
    """Inception with batch normalisation (Ioffe and Szegedy 2015).

    Parameters are named as in the only ImageNet weights in circulation (`bn_inception-*.pth` of the package
    pretrainedmodels, from Caffe), so that this file can be given as it is. Those want blue first, in 0 .. 255:
    `mean` and `std` of the backbone give the range, the network turns the channels round.
    """

    num_features = 1024

    def __init__(self) -> None:
        super().__init__()
        self._unit("conv1_7x7_s2", 3, 64, 7, 2)
        self._unit("conv2_3x3_reduce", 64, 64, 1)
        self._unit("conv2_3x3", 64, 192, 3)
        width = 192
        for name, block in BLOCKS.items():
            width = self._block(f"inception_{name}", block, width)
        self.shrink = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.smooth = nn.AvgPool2d(3, stride=1, padding=1, ceil_mode=True)
        self.spread = nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True)

    def _unit(self, name: str, before: int, after: int, size: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(before, after, size, stride, size // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(after))

    def _block(self, name: str, block: Branches, width: int) -> int:
        stride = 1 if block.single else 2
        if block.single:
            self._unit(f"{name}_1x1", width, block.single, 1)
        self._unit(f"{name}_3x3_reduce", width, block.three[0], 1)
        self._unit(f"{name}_3x3", *block.three, 3, stride)
        self._unit(f"{name}_double_3x3_reduce", width, block.double[0], 1)
        self._unit(f"{name}_double_3x3_1", *block.double, 3)
        self._unit(f"{name}_double_3x3_2", block.double[1], block.double[1], 3, stride)
        if block.projection:
            self._unit(f"{name}_pool_proj", width, block.projection, 1)
        return block.single + block.three[1] + block.double[1] + (block.projection or width)

    def _apply_units(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = getattr(self, f"{name}_bn")(getattr(self, name)(x)).relu()
        return x

    def _apply_block(self, x: Tensor, name: str, block: Branches) -> Tensor:
        branches = [self._apply_units(x, f"{name}_1x1")] if block.single else []
        branches += [self._apply_units(x, f"{name}_3x3_reduce", f"{name}_3x3"),
                     self._apply_units(x, f"{name}_double_3x3_reduce", f"{name}_double_3x3_1", f"{name}_double_3x3_2")]
        if block.projection:
            pooled = (self.smooth if block.pool == "avg" else self.spread)(x)
            branches.append(self._apply_units(pooled, f"{name}_pool_proj"))
        else:
            branches.append(self.shrink(x))
        return torch.cat(branches, 1)

    def forward_features(self, images: Tensor) -> Tensor:
        x = self.shrink(self._apply_units(images.flip(1), "conv1_7x7_s2"))
        x = self.shrink(self._apply_units(x, "conv2_3x3_reduce", "conv2_3x3"))
        for name, block in BLOCKS.items():
            x = self._apply_block(x, f"inception_{name}", block)
        return x

    def forward_head(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))
