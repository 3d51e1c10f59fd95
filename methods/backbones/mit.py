"""The Mix Transformer encoder of SegFormer (MiT-B1, MiT-B2), on which CRT was published; timm has none.

Written from Xie et al. 2021; parameters are named as in the ImageNet weights of its authors (`mit_b2.pth`), so that
those can be given as they are.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS, HEADS, REDUCTIONS = (64, 128, 320, 512), (1, 2, 5, 8), (8, 4, 2, 1)
DEPTHS = {"mit_b1": (2, 2, 2, 2), "mit_b2": (3, 4, 6, 3)}


def as_tokens(maps: Tensor) -> Tensor:
    return maps.flatten(2).transpose(1, 2)


def as_map(tokens: Tensor, height: int, width: int) -> Tensor:
    return tokens.transpose(1, 2).unflatten(2, (height, width))


class PatchEmbed(nn.Module):
    """Overlapping patches: a strided convolution and layer norm."""

    def __init__(self, before: int, after: int, size: int, stride: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(before, after, size, stride, size // 2)
        self.norm = nn.LayerNorm(after)

    def forward(self, maps: Tensor) -> tuple[Tensor, int, int]:
        maps = self.proj(maps)
        return self.norm(as_tokens(maps)), maps.shape[2], maps.shape[3]


class Attention(nn.Module):
    """Self-attention whose keys and values come from a map that is `reduction` times coarser."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.reduction = reduction
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        if reduction > 1:
            self.sr = nn.Conv2d(width, width, reduction, reduction)
            self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        coarse = x
        # a map smaller than the reduction has nothing left to coarsen; upstream never meets one
        if self.reduction > 1 and min(height, width) >= self.reduction:
            coarse = self.norm(as_tokens(self.sr(as_map(x, height, width))))
        q = self.q(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(coarse).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class DepthwiseConv(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        return as_tokens(self.dwconv(as_map(x, height, width)))


class MixFFN(nn.Module):
    """MLP(GELU(Conv3x3(MLP(x)))): the convolution stands in for position embeddings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.dwconv = DepthwiseConv(4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        return self.fc2(F.gelu(self.dwconv(self.fc1(x), height, width)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads, reduction)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = MixFFN(width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        x = x + self.attn(self.norm1(x), height, width)
        return x + self.mlp(self.norm2(x), height, width)


class MixTransformer(nn.Module):
    """Four stages at 1/4, 1/8, 1/16 and 1/32 of the image; the last map is the feature map, its mean the feature."""

    num_features = WIDTHS[-1]

    def __init__(self, name: str) -> None:
        super().__init__()
        before = 3
        for stage, (width, heads, reduction, depth) in enumerate(zip(WIDTHS, HEADS, REDUCTIONS, DEPTHS[name]), 1):
            self.add_module(f"patch_embed{stage}", PatchEmbed(before, width, *((7, 4) if stage == 1 else (3, 2))))
            self.add_module(f"block{stage}", nn.ModuleList(Block(width, heads, reduction) for _ in range(depth)))
            self.add_module(f"norm{stage}", nn.LayerNorm(width, eps=1e-6))
            before = width
        self.apply(self._start)

    @staticmethod
    def _start(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
            nn.init.normal_(module.weight, 0, math.sqrt(2 / fan_out))
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward_features(self, images: Tensor) -> Tensor:
        maps = images
        for stage in range(1, 5):
            x, height, width = getattr(self, f"patch_embed{stage}")(maps)
            for block in getattr(self, f"block{stage}"):
                x = block(x, height, width)
            maps = as_map(getattr(self, f"norm{stage}")(x), height, width)
        return maps

    def forward_head(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))
