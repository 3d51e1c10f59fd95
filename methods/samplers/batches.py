"""Batch samplers: which training images come together in a batch (Revisiting DML, section 3.2).

`create("spc-2", labels, 112)` gives a sampler; its `epoch(generator)` yields the ids of floor(N / b) batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.settings import MethodError, near

if TYPE_CHECKING:
    from torch import Tensor

    from methods.samplers.by_embedding import Distance
    from methods.samplers.by_label import BatchSampler

NAMES = ("spc-2", "spc-4", "spc-8", "spc-r", "random", "gc", "ddm", "frd", "spc-2-released")
RELEASED = "-released"
"""What the name of a sampler ends with that draws with replacement."""


def check(name: str) -> None:
    """A MethodError if there is no sampler of this name; without torch."""
    if name not in NAMES and not _per_class(name):
        raise MethodError(f"unknown batch sampler '{name}'{near(name, NAMES)}; there are {', '.join(NAMES)}")


def _per_class(name: str) -> int:
    """The N of `spc-N` and `spc-N-released`; 0 for other names."""
    count = name.removesuffix(RELEASED).removeprefix("spc-")
    return int(count) if name.startswith("spc-") and count.isdigit() else 0


def create(name: str, labels: Tensor, batch_size: int, *, distance: Distance | None = None) -> BatchSampler:
    """The sampler of this name over training images with these labels.

    `distance` is the Fréchet distance that `frd` compares batches by. Any `spc-N` works, not only the named ones, and
    `spc-N-released`.

    >>> import torch
    >>> sampler = create("spc-2", torch.tensor([0, 0, 0, 1, 1, 2]), 4)
    >>> [len(batch) for batch in sampler.epoch(torch.Generator().manual_seed(0))]
    [4]
    """
    from methods.samplers.by_embedding import Coreset, Matching, match_distances, match_frechet
    from methods.samplers.by_label import RandomWithPair, SamplesPerClass, Shuffled, WithReplacement

    check(name)
    if name == "random":
        return Shuffled(labels, batch_size)
    if name == "spc-r":
        return RandomWithPair(labels, batch_size)
    if _per_class(name):
        kind = WithReplacement if name.endswith(RELEASED) else SamplesPerClass
        return kind(labels, batch_size, _per_class(name))
    if name == "gc":
        return Coreset(labels, batch_size)
    if name == "ddm":
        return Matching(labels, batch_size, match_distances)
    if distance is None:
        raise MethodError("the batch sampler 'frd' needs a Fréchet distance: pass distance=frechet_distance")
    return Matching(labels, batch_size, match_frechet(distance))
