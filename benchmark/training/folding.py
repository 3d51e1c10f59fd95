"""Frozen batch norms, folded into the convolutions before them: the same network, with less to read and write."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.utils.tf32 import no_tf32

log = logging.getLogger(__name__)


class Folded(nn.Module):
    """A convolution and the frozen batch norm behind it in one.

        y = gamma (W * x - mu) / s + beta = W' * x + (beta - mu gamma / s),   W' = gamma / s W,   s^2 = var + eps

    Gradients reach W, gamma and beta through W' and the shift alone, so that the output of the convolution need
    be neither kept nor read again.
    """

    def __init__(self, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.convolution, self.norm = convolution, norm

    def forward(self, images: Tensor) -> Tensor:
        norm: Any = self.norm
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        shift = norm.bias - norm.running_mean * scale
        maps = self.convolution._conv_forward(images, self.convolution.weight * scale[:, None, None, None], None)
        # the sum is rounded once: under autocast the shift of a convolution would be rounded before
        return (maps + shift[:, None, None]).to(maps.dtype)


def folded(backbone: nn.Module, images: Tensor) -> nn.Module:
    """A twin of the backbone that shares its parameters and has its frozen batch norms folded.

    Which convolution stands before a norm is seen on these images. The backbone itself comes back where nothing can
    be folded, or where the twin's features would not be its own.
    """
    twin = copy.deepcopy(backbone, {id(value): value for value in [*backbone.parameters(), *backbone.buffers()]})
    pairs = _pairs(twin, images)
    for before, after in pairs:
        convolution, norm = twin.get_submodule(before), twin.get_submodule(after)
        twin.set_submodule(before, Folded(convolution, norm))  # type: ignore[arg-type]
        twin.set_submodule(after, nn.Identity())
    if pairs and not _alike(backbone, twin, images):
        log.warning("the batch norms of this backbone are not folded: its features would change")
        return backbone
    return twin if pairs else backbone


@torch.no_grad()
def _pairs(backbone: nn.Module, images: Tensor) -> list[tuple[str, str]]:
    """Names of convolutions and of the frozen norms that take what they give, where either is called only once."""
    made: list[tuple[str, Tensor]] = []
    pairs: list[tuple[str, str]] = []

    def gives(name: str) -> Any:
        return lambda module, inputs, output: made.append((name, output))

    def takes(name: str) -> Any:
        return lambda module, inputs: pairs.extend((before, name) for before, output in made if output is inputs[0])

    hooks = []
    for name, module in backbone.named_modules():
        if type(module) is nn.Conv2d and module.bias is None:
            hooks.append(module.register_forward_hook(gives(name)))
        elif type(module) is nn.BatchNorm2d and module.affine and not module.training:
            hooks.append(module.register_forward_pre_hook(takes(name)))
    if hooks:
        backbone(images)
    for hook in hooks:
        hook.remove()
    calls = [name for name, _ in made]
    return [(before, after) for before, after in pairs
            if calls.count(before) == 1 and [name for _, name in pairs].count(after) == 1]


@torch.no_grad()
def _alike(one: nn.Module, other: nn.Module, images: Tensor) -> bool:
    with no_tf32():
        expected, got = one(images), other(images)
    return bool((got - expected).norm() <= 1e-3 * expected.norm())
