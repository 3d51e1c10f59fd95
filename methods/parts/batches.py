"""Batch samplers: which training images come together in a batch (Revisiting DML, section 3.2).

`create("spc-2", labels, 112)` gives a sampler; its `epoch(generator)` yields the ids of floor(N / b) batches. The
label samplers look at labels alone; `gc`, `ddm` and `frd` (in `embedded.py`) at a memory bank of embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from methods.method import MethodError

Distance = Callable[[Any, Any], float]
"""Fréchet distance of two sets of points, given as two (n, d) arrays."""


class BatchSampler:
    """Yields the ids (positions among the training images) of each batch of an epoch, on the CPU."""

    needs_bank = False

    def __init__(self, labels: Tensor, batch_size: int) -> None:
        if len(labels) == 0:
            raise MethodError("there are no training images to make batches of")
        self.labels = labels.cpu()
        self.batch_size = min(batch_size, len(labels))

    def __len__(self) -> int:
        return max(1, len(self.labels) // self.batch_size)

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        raise NotImplementedError

    def start(self, embeddings: Tensor) -> None:
        """Fill the memory bank with the embeddings of all training images, before the first epoch."""

    def remember(self, ids: Tensor, embeddings: Tensor) -> None:
        """Overwrite these images' embeddings in the memory bank, after a step."""

    def state_dict(self) -> dict[str, Tensor]:
        """What a resumed run needs; taken and given back between epochs."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass


class ClassTable:
    """The images of each class, for drawing n different ones.

    >>> table = ClassTable(torch.tensor([1, 0, 1, 1]))
    >>> table.draw(1, 3, torch.Generator().manual_seed(0)).sort().values
    tensor([0, 2, 3])
    """

    def __init__(self, labels: Tensor) -> None:
        order = labels.argsort(stable=True)
        self.classes, counts = torch.unique(labels, return_counts=True)
        self.members = order.split(counts.tolist())

    def draw(self, position: int, n: int, generator: torch.Generator) -> Tensor:
        """n images of the class at this position: different ones as long as it has them, then round again."""
        members = self.members[position]
        rounds = -(-n // len(members))
        order = torch.cat([torch.randperm(len(members), generator=generator) for _ in range(rounds)])
        return members[order[:n]]

    def batch(self, size: int, n: int, generator: torch.Generator) -> Tensor:
        """`size` images, n of each class: different classes while there are any, then every class once more."""
        slots = -(-size // n)
        if slots <= len(self.members):
            chosen = torch.randperm(len(self.members), generator=generator)[:slots].tolist()
            return torch.cat([self.draw(c, n, generator) for c in chosen])[:size]
        share, more = divmod(slots, len(self.members))
        order = torch.randperm(len(self.members), generator=generator).tolist()
        drawn = [self.draw(c, n * (share + (i < more)), generator) for i, c in enumerate(order)]
        return torch.cat(drawn)[:size]


class SamplesPerClass(BatchSampler):
    """SPC-n: b/n different classes, n different images of each where the class has them.

    With fewer than b/n classes each gives more images, so that the batch keeps its size; a class with fewer than
    n images gives some twice. (The released code draws both with replacement.)
    """

    def __init__(self, labels: Tensor, batch_size: int, n: int) -> None:
        super().__init__(labels, batch_size)
        self.n = n
        self.table = ClassTable(self.labels)

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        for _ in range(len(self)):
            yield self.table.batch(self.batch_size, self.n, generator)


class Shuffled(BatchSampler):
    """`random`: the shuffled training set cut into batches; every image at most once an epoch."""

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        order = torch.randperm(len(self.labels), generator=generator)
        for i in range(len(self)):
            yield order[i * self.batch_size:(i + 1) * self.batch_size]


class RandomWithPair(BatchSampler):
    """SPC-R: b - 1 random images, and one more of the class of one of them, so that there is a triplet."""

    def __init__(self, labels: Tensor, batch_size: int) -> None:
        super().__init__(labels, batch_size)
        self.table = ClassTable(self.labels)
        self.position = torch.searchsorted(self.table.classes, self.labels)

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        order = torch.randperm(len(self.labels), generator=generator)
        for i in range(len(self)):
            chosen = order[i * (self.batch_size - 1):(i + 1) * (self.batch_size - 1)]
            yield torch.cat([chosen, self._partner(chosen, generator)])

    def _partner(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """An image, not yet chosen, of the class of a random member; any other image where no class has one left."""
        taken = set(chosen.tolist())
        for member in chosen[torch.randperm(len(chosen), generator=generator)].tolist():
            free = [i for i in self.table.members[int(self.position[member])].tolist() if i not in taken]
            if free:
                return torch.tensor([free[int(torch.randint(len(free), (1,), generator=generator))]])
        others = [i for i in range(len(self.labels)) if i not in taken]
        return torch.tensor([others[int(torch.randint(len(others), (1,), generator=generator))]])


NAMES = ("spc-2", "spc-4", "spc-8", "spc-r", "random", "gc", "ddm", "frd")


def create(name: str, labels: Tensor, batch_size: int, *, distance: Distance | None = None) -> BatchSampler:
    """The sampler of this name over training images with these labels.

    `distance` is the Fréchet distance that `frd` compares batches by.

    >>> sampler = create("spc-2", torch.tensor([0, 0, 0, 1, 1, 2]), 4)
    >>> [len(batch) for batch in sampler.epoch(torch.Generator().manual_seed(0))]
    [4]
    """
    from methods.parts import embedded

    if name == "random":
        return Shuffled(labels, batch_size)
    if name == "spc-r":
        return RandomWithPair(labels, batch_size)
    if name.startswith("spc-") and name[4:].isdigit() and int(name[4:]) > 0:
        return SamplesPerClass(labels, batch_size, int(name[4:]))
    if name in embedded.SELECTORS:
        return embedded.create(name, labels, batch_size, distance)
    raise MethodError(f"unknown batch sampler '{name}'; there are {', '.join(NAMES)}")
