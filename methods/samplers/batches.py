"""Batch samplers: which training images come together in a batch (Revisiting DML, section 3.2).

`create("spc-2", labels, 112)` gives a sampler; its `epoch(generator)` yields the ids of floor(N / b) batches.
"""

from __future__ import annotations

from torch import Tensor

from methods.method import MethodError, near
from methods.samplers.by_embedding import Coreset, Distance, Matching, match_distances, match_frechet
from methods.samplers.by_label import BatchSampler, RandomWithPair, SamplesPerClass, Shuffled

__all__ = ["NAMES", "BatchSampler", "create"]

NAMES = ("spc-2", "spc-4", "spc-8", "spc-r", "random", "gc", "ddm", "frd")


def create(name: str, labels: Tensor, batch_size: int, *, distance: Distance | None = None) -> BatchSampler:
    """The sampler of this name over training images with these labels.

    `distance` is the Fréchet distance that `frd` compares batches by. Any `spc-N` works, not only the named ones.

    >>> import torch
    >>> sampler = create("spc-2", torch.tensor([0, 0, 0, 1, 1, 2]), 4)
    >>> [len(batch) for batch in sampler.epoch(torch.Generator().manual_seed(0))]
    [4]
    """
    if name == "random":
        return Shuffled(labels, batch_size)
    if name == "spc-r":
        return RandomWithPair(labels, batch_size)
    if name.startswith("spc-") and name[4:].isdigit() and int(name[4:]) > 0:
        return SamplesPerClass(labels, batch_size, int(name[4:]))
    if name == "gc":
        return Coreset(labels, batch_size)
    if name == "ddm":
        return Matching(labels, batch_size, match_distances)
    if name == "frd":
        if distance is None:
            raise MethodError("the batch sampler 'frd' needs a Fréchet distance: pass distance=frechet_distance")
        return Matching(labels, batch_size, match_frechet(distance))
    raise MethodError(f"unknown batch sampler '{name}'{near(name, NAMES)}; there are {', '.join(NAMES)}")
