"""Small trainable modules that stand beside the frozen ones of a vision transformer: adapters and low-rank updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer


class Addition(nn.Module):
    """What is added to a frozen network and trained: the mark by which its owner finds it.

    `keep` is the probability that it acts on a sample in training, where what it gives is divided by that; in
    evaluation it always acts.
    """

    def __init__(self, keep: float = 1.0) -> None:
        super().__init__()
        from timm.layers import DropPath

        self.drop = DropPath(1 - keep)


class Adapter(Addition):
    """Down, ReLU, up: scale * ReLU(x W_down) W_up, stochastic for each sample with keep < 1.

    Kim et al. 2025 (PUMA), eq. 4-5; W_up starts at zero, so that nothing changes at first. W_down is He-uniform in the
    width, as the paper says; the released code draws it transposed, and so sqrt(width / bottleneck) times as large.
    """

    def __init__(self, width: int, bottleneck: int, *, keep: float = 1.0, scale: float = 0.1,
                 bias: bool = False) -> None:
        super().__init__(keep)
        self.down = nn.Linear(width, bottleneck, bias=bias)
        self.up = nn.Linear(bottleneck, width, bias=bias)
        self.scale = scale
        nn.init.kaiming_uniform_(self.down.weight, a=1)
        nn.init.zeros_(self.up.weight)
        if bias:
            nn.init.zeros_(self.down.bias)
            nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.scale * self.up(self.down(x).relu()))


class LowRank(Addition):
    """Updates of some of the three projections of attention: (x A_i) B_i for i in `projections`, zero for the others.

    Hu et al. 2021; B starts at zero.
    """

    def __init__(self, width: int, rank: int, projections: str, *, keep: float = 1.0) -> None:
        super().__init__(keep)
        self.projections = projections
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in projections)
        self.up = nn.ModuleList(nn.Linear(rank, width, bias=False) for _ in projections)
        for layer in self.up:
            nn.init.zeros_(layer.weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        updates = {name: up(down(x)) for name, down, up in zip(self.projections, self.down, self.up)}
        nothing = torch.zeros_like(next(iter(updates.values())))
        return self.drop(torch.cat([updates.get(name, nothing) for name in "qkv"], -1))


class Parallel(nn.Module):
    """A frozen module and an addition on the same input; their outputs are summed."""

    def __init__(self, frozen: nn.Module, addition: Addition) -> None:
        super().__init__()
        self.frozen = frozen
        self.addition = addition

    def forward(self, x: Tensor, *arguments: Any, **named: Any) -> Tensor:
        return self.frozen(x, *arguments, **named) + self.addition(x)


def add_adapters(vit: VisionTransformer, bottleneck: int, *, layers: int = 0, attention: bool = True,
                 **options: Any) -> None:
    """An adapter beside the MLP, and with `attention` beside the attention, of the first `layers` blocks (0: all).

    Both see what their neighbour sees, the layer-normed input. In a network with layer scale, that scales them too.
    """
    for block in list[Any](vit.blocks)[:layers or len(vit.blocks)]:
        if attention:
            block.attn = Parallel(block.attn, Adapter(vit.embed_dim, bottleneck, **options))
        block.mlp = Parallel(block.mlp, Adapter(vit.embed_dim, bottleneck, **options))


def add_low_rank(vit: VisionTransformer, rank: int, projections: str, *, keep: float = 1.0) -> None:
    """Low-rank updates of these projections (letters of `qkv`) in every block."""
    for block in list[Any](vit.blocks):
        block.attn.qkv = Parallel(block.attn.qkv, LowRank(vit.embed_dim, rank, projections, keep=keep))
