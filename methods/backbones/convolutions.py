"""Convolutions that cuDNN or oneDNN does slowly, done another way: the same numbers up to rounding."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ARM = platform.machine() in ("aarch64", "arm64")
"""Processors on which oneDNN has no fast gradient of a convolution."""


def slow_gradient(images: Tensor) -> bool:
    """Whether oneDNN would compute the gradient of a convolution of these, and slowly."""
    return (ARM and torch.is_grad_enabled() and images.device.type == "cpu" and images.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling())


class Depthwise(nn.Conv2d):
    """A depthwise convolution, on ARM processors with gradients of its own (`_BySums`), on a GPU in kernels of its own.

    Where these cannot be had it takes a form for which cuDNN has a kernel in bf16: one with a stride is one without
    whose output is thinned out,

        y[i, j] = sum w[a, b] x[s i + a, s j + b] = (w * x)[s i, s j],

    and what of a filter can never meet a small map is left out: of 5x5 on a map of 2x2 the outer ring. Otherwise cuDNN
    goes channel by channel: on an H200 a step of EfficientNet-Lite0 with 112 images of 64 px took 3,457 launches and 16
    of 20 ms for the former, and 3,456 launches and 16 of 22 ms for three layers of the latter.
    """

    same: bool = False
    """TensorFlow's padding, which depends on the size of the image."""

    def forward(self, images: Tensor) -> Tensor:
        if images.is_cuda:
            return self.on_gpu(images)
        if self.same:
            from timm.layers import pad_same

            images = pad_same(images, list(self.kernel_size), list(self.stride), list(self.dilation))
        if (slow_gradient(images) and self.bias is None and self.dilation == (1, 1)
                and not isinstance(self.padding, str) and max(self.padding) < min(self.kernel_size)):
            return _BySums.apply(images, self.weight, self.stride, self.padding)
        return self._conv_forward(images, self.weight, self.bias)

    def on_gpu(self, images: Tensor) -> Tensor:
        padding, start = self.places(images.shape[2:])
        if self.bias is None and not isinstance(padding, str) and not torch.compiler.is_compiling():
            from methods.backbones import depthwise_kernels  # brings Triton along, which takes a moment

            if depthwise_kernels.suits(images, self.weight, self.stride, self.dilation):
                before, size = windows(images.shape[2:], self.kernel_size, self.stride, padding, start)
                return depthwise_kernels.convolve(images, self.weight, self.stride[0], before, size)
        return depthwise(images, self.weight, self.bias, self.stride, padding, self.dilation, start)

    def places(self, size: torch.Size) -> tuple[str | tuple[int, ...], tuple[int, ...]]:
        """The padding with which a map of this size has all of its places, and the first of those that are kept.

        TensorFlow pads n places by l before and r behind them, so that a stride s leaves ceil(n / s). With p = (k - 1)
        / 2 on both sides, which takes no copy of the map, these are the places p - l, p - l + s, ...
        """
        if not self.same:
            return self.padding, (0, 0)
        half = tuple((kernel - 1) * apart // 2 for kernel, apart in zip(self.kernel_size, self.dilation))
        added = (max(0, (-(-n // s) - 1) * s + 2 * p + 1 - n) for n, s, p in zip(size, self.stride, half))
        return half, tuple(p - both // 2 for p, both in zip(half, added))


def windows(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
            start: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """How far before the map the first window begins that is kept, and how many are: down and across.

    >>> windows((8, 7), (3, 3), (2, 2), (1, 1), (1, 0))
    ((0, 1), (4, 4))
    """
    every = [n + 2 * p - k + 1 for n, p, k in zip(size, padding, kernel)]
    top, left = (p - first for p, first in zip(padding, start))
    down, across = (-((first - n) // s) for n, first, s in zip(every, start, stride))
    return (top, left), (down, across)


def depthwise(images: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...],
              padding: str | tuple[int, ...], dilation: tuple[int, ...], start: tuple[int, ...] = (0, 0)) -> Tensor:
    """A depthwise convolution at every place, of which every `stride`-th is kept, with as small a filter as will do."""
    if not isinstance(padding, str) and dilation == (1, 1):
        weight, padding = centred(weight, padding, images.shape[2:])
    maps = F.conv2d(images, weight, bias, 1, padding, dilation, groups=len(weight))
    if stride == (1, 1):
        return maps
    return maps[:, :, start[0]::stride[0], start[1]::stride[1]].contiguous(memory_format=torch.channels_last)


def centred(weight: Tensor, padding: tuple[int, ...], size: torch.Size) -> tuple[Tensor, tuple[int, ...]]:
    """The middle of a filter that can meet a map of this size, and the padding that belongs to it.

    A place i of a map of n sees w[a] at i + a - p, which lies on the map for p - n < a < p + n alone.

    >>> weight, padding = centred(torch.ones(8, 1, 5, 5), (2, 2), torch.Size([2, 7]))
    >>> tuple(weight.shape), padding
    ((8, 1, 3, 5), (1, 2))
    """
    kept = []
    for axis, (pad, length) in enumerate(zip(padding, size)):
        width = weight.shape[2 + axis]
        # only filters as wide on both sides: the map's size must stay what it is
        cut = max(0, pad - (length - 1)) if width == 2 * pad + 1 else 0
        weight = weight.narrow(2 + axis, cut, width - 2 * cut)
        kept.append(pad - cut)
    return weight, tuple(kept)


class _BySums(torch.autograd.Function):
    """A depthwise convolution with padding p and stride s whose gradients are sums and a convolution.

        dL/dw[a, b] = sum_{i, j} dL/dy[i, j] x[s i + a - p, s j + b - p]

    That of the input is the convolution of dL/dy, its places s apart, with the filters turned by 180 degrees. A
    training step of EfficientNet-Lite0 takes less than half of the time on ARM that it takes with oneDNN's gradients.
    """

    @staticmethod
    def forward(context: Any, images: Tensor, weight: Tensor, stride: tuple[int, int],
                padding: tuple[int, int]) -> Tensor:
        context.save_for_backward(images, weight)
        context.stride, context.padding = stride, padding
        return F.conv2d(images, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight = context.saved_tensors
        (down, across), (above, beside), (high, wide) = context.stride, context.padding, weight.shape[2:]
        of_images = of_weight = None
        if context.needs_input_grad[0]:
            apart = gradient
            if (down, across) != (1, 1):
                count, channels, height, width = images.shape
                apart = gradient.new_zeros(count, height + 2 * above - high + 1, width + 2 * beside - wide + 1,
                                           channels).permute(0, 3, 1, 2)
                apart[:, :, ::down, ::across] = gradient
            of_images = F.conv2d(apart, weight.flip(2, 3), None, 1, (high - 1 - above, wide - 1 - beside),
                                 groups=len(weight))
        if context.needs_input_grad[1]:
            toward = gradient.permute(0, 2, 3, 1).contiguous()
            padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, beside, beside, above, above))
            last, end = down * (toward.shape[1] - 1) + 1, across * (toward.shape[2] - 1) + 1
            sums = [(toward * padded[:, a:a + last:down, b:b + end:across]).sum((0, 1, 2))
                    for a in range(high) for b in range(wide)]
            of_weight = torch.stack(sums, 1).view_as(weight)
        return of_images, of_weight, None, None


class Padded3x3(nn.Conv2d):
    """A 3x3 convolution with padding 1 whose gradients are matrix products on ARM processors.

        dW = dY^T X,   X: (places, 9 c), a window of the input a row

    The gradient of the input is the convolution of dY with the filters turned by 180 degrees, such a product too.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 3, padding=1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        if slow_gradient(images):
            return _ByProducts.apply(images, self.weight)
        return super().forward(images)


class _ByProducts(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, images: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(images, weight)
        return F.conv2d(images, weight, padding=1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        images, weight = context.saved_tensors
        of_images = of_weight = None
        if context.needs_input_grad[0]:
            turned = weight.flip(2, 3).permute(2, 3, 0, 1).flatten(0, 2)
            rows = _windows(gradient) @ turned
            of_images = rows.view(len(images), *images.shape[2:], -1).permute(0, 3, 1, 2)
        if context.needs_input_grad[1]:
            rows = gradient.permute(0, 2, 3, 1).flatten(0, 2)
            of_weight = (rows.T @ _windows(images)).unflatten(1, (3, 3, -1)).permute(0, 3, 1, 2)
        return of_images, of_weight


def _windows(images: Tensor) -> Tensor:
    """The 3x3 window around each place of (b, c, h, w) images as a row, (b h w, 9 c)."""
    count, channels, height, width = images.shape
    padded = F.pad(images.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1)).contiguous()
    image, line, place, _ = padded.stride()
    # three neighbours in a line lie one behind the other
    lines = padded.as_strided((count, height, width, 3, 3 * channels), (image, line, place, line, 1))
    return lines.reshape(count * height * width, 9 * channels)


def replace_depthwise(network: nn.Module) -> None:
    """Exchange the depthwise convolutions of a network for these; its parameters stay the very same."""
    from timm.layers import Conv2dSame

    for conv in network.modules():
        if type(conv) not in (nn.Conv2d, Conv2dSame):
            continue
        assert isinstance(conv, nn.Conv2d)
        if conv.groups == conv.in_channels == conv.out_channels > 1 and conv.padding_mode == "zeros":
            same = isinstance(conv, Conv2dSame)
            if same and not all(kernel % 2 for kernel in conv.kernel_size):
                continue  # has no middle
            conv.__class__ = Depthwise
            conv.same = same  # type: ignore[assignment]
