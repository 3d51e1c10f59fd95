"""A convolution that cuDNN does slowly, done another way on a GPU: the same numbers up to rounding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StridedDepthwise(nn.Conv2d):
    """A depthwise convolution with a stride, as one without whose output is thinned out.

        y[i, j] = sum w[a, b] x[s i + a, s j + b] = (w * x)[s i, s j]

    cuDNN has kernels for the latter; the former it does channel by channel in channels-last bf16: 3,457 launches and
    16 of the 20 ms of GPU time that a step of EfficientNet-Lite0 took (112 images of 64 px, H200).
    """

    same: bool = False
    """TensorFlow's padding, which depends on the size of the image."""

    def forward(self, images: Tensor) -> Tensor:
        if self.same:
            from timm.layers import pad_same

            images = pad_same(images, list(self.kernel_size), list(self.stride), list(self.dilation))
        if not images.is_cuda:
            return self._conv_forward(images, self.weight, self.bias)
        return thinned(images, self.weight, self.bias, self.stride, self.padding, self.dilation)


def thinned(images: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], padding: int | str | tuple,
            dilation: tuple[int, ...]) -> Tensor:
    """A depthwise convolution at every place, of which every `stride`-th is kept."""
    dense = F.conv2d(images, weight, bias, 1, padding, dilation, groups=len(weight))
    return dense[:, :, ::stride[0], ::stride[1]].contiguous(memory_format=torch.channels_last)


def replace_strided_depthwise(network: nn.Module) -> None:
    """Exchange the strided depthwise convolutions of a network for these; its parameters stay the very same."""
    from timm.layers import Conv2dSame

    for conv in network.modules():
        if type(conv) not in (nn.Conv2d, Conv2dSame):
            continue
        assert isinstance(conv, nn.Conv2d)
        if conv.groups == conv.in_channels == conv.out_channels > 1 and conv.stride != (1, 1):
            same = isinstance(conv, Conv2dSame)
            conv.__class__ = StridedDepthwise
            conv.same = same  # type: ignore[assignment]
