"""A small network, a batch of drawn characters and a few steps of training: what the checks of a method run on."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from methods import Entry, Method, Step

CLASSES, PER_CLASS, SIDE, DIM = 6, 4, 32, 8
LR, WEIGHT_DECAY = 1e-3, 4e-4


@cache
def glyphs() -> tuple[Tensor, Tensor]:
    """Six characters of different scripts in four typefaces each at 32 px, in [-1, 1], and their labels.

    They are classes of `glyphs-mini`, kept as one picture (a row for each class) so that the checks depend on no
    dataset and on no version of the fonts.

    >>> [tuple(x.shape) for x in glyphs()]
    [(24, 3, 32, 32), (24,)]
    """
    with Image.open(Path(__file__).with_name("glyphs.png")) as picture:
        pixels = np.asarray(picture, dtype=np.float32) / 127.5 - 1
    tiles = torch.from_numpy(pixels).reshape(CLASSES, SIDE, PER_CLASS, SIDE, 3).permute(0, 2, 4, 1, 3)
    return tiles.reshape(-1, 3, SIDE, SIDE).contiguous(), torch.arange(CLASSES).repeat_interleave(PER_CLASS)


class Small(nn.Module):
    """A backbone of two convolutions: enough to have gradients, and quick."""

    dim = 24

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.GELU()),
            nn.Sequential(nn.Conv2d(8, 6, 3, stride=2), nn.GELU()),
        )
        self.pool = nn.AdaptiveAvgPool2d(2)

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.blocks(images)).flatten(1)


def build(entry: Entry, seed: int = 0, classes: int = CLASSES, **settings: object) -> Method:
    """The method on a small backbone (or one that it asks for by `example_backbone()`), from a seed.

    A class may name settings for so small a scale in `example_settings`.
    """
    torch.manual_seed(seed)
    chosen = entry.settings(**{**getattr(entry.cls, "example_settings", {}), **settings})
    return entry.build(getattr(entry.cls, "example_backbone", Small)(), classes, DIM, chosen)


def views(method: Method, images: Tensor) -> Tensor:
    """The images as often as the method wants to see them."""
    return images if method.views == 1 else torch.stack([images] * method.views)


def stepped(method: Method, images: Tensor, labels: Tensor) -> Step:
    """One step of the method; what it gives back must be a loss and embeddings, as training takes them apart."""
    given = method.step(views(method, images), labels)
    pair = isinstance(given, tuple) and len(given) == 2
    assert pair, f"step returns {type(given).__name__}; it is to return Step(loss, embeddings)"
    return Step(*given)


def trained(entry: Entry) -> bool:
    """Whether the method trains anything at all."""
    return bool(build(entry).groups(LR, WEIGHT_DECAY))


def optimise(method: Method, images: Tensor, labels: Tensor, steps: int, seed: int = 1, lr: float = LR) -> list[float]:
    """A few steps of Adam on one batch, with the groups the method asks for; the losses."""
    optimiser = torch.optim.Adam(method.groups(lr, WEIGHT_DECAY), lr=lr)
    method.train()
    torch.manual_seed(seed)
    losses = []
    for _ in range(steps):
        loss = stepped(method, images, labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        method.after_step()
        losses.append(float(loss.detach()))
    return losses


def losses_at(method: Method, images: Tensor, labels: Tensor, draws: int, seed: int = 100) -> np.ndarray:
    """The loss of one batch under different random numbers, from the same state."""
    values = []
    for i in range(draws):
        twin = copy.deepcopy(method).train()
        torch.manual_seed(seed + i)
        with torch.no_grad():
            values.append(float(stepped(twin, images, labels).loss))
    return np.array(values)
