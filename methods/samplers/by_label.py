"""Batch samplers that look at labels alone (Revisiting DML, section 3.2), and what every batch sampler offers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from methods.method import MethodError


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
    """The images of each class, for drawing n different ones of many classes at once.

    >>> table = ClassTable(torch.tensor([1, 0, 1, 1]))
    >>> table.draw(torch.tensor([1]), torch.tensor([3]), torch.Generator().manual_seed(0)).sort().values
    tensor([0, 2, 3])
    """

    def __init__(self, labels: Tensor) -> None:
        self.order = labels.argsort(stable=True)
        self.classes, self.counts = torch.unique(labels, return_counts=True)
        self.starts = self.counts.cumsum(0) - self.counts

    def members(self, position: int) -> Tensor:
        """All images of the class at this position of `classes`."""
        return self.order[self.starts[position]:self.starts[position] + self.counts[position]]

    def draw(self, chosen: Tensor, n: Tensor, generator: torch.Generator) -> Tensor:
        """n[i] images of the class at position chosen[i]: different ones as long as it has them, then round again."""
        counts = self.counts[chosen][:, None]
        keys = torch.rand(len(chosen), int(counts.max()), generator=generator)
        shuffled = keys.masked_fill(torch.arange(keys.shape[1]) >= counts, 2.0).argsort(1)
        turn = torch.arange(int(n.max()))
        drawn = self.order[self.starts[chosen][:, None] + shuffled.gather(1, turn % counts)]
        return drawn[turn < n[:, None]]

    def batch(self, size: int, n: int, generator: torch.Generator) -> Tensor:
        """`size` images, n of each class: different classes while there are any, then more images of each."""
        slots, classes = -(-size // n), len(self.classes)
        chosen = torch.randperm(classes, generator=generator)[:slots]
        share, more = divmod(slots, len(chosen))
        return self.draw(chosen, n * (share + (torch.arange(len(chosen)) < more)), generator)[:size]


class SamplesPerClass(BatchSampler):
    """SPC-n: b/n different classes, n different images of each where the class has them.

    With fewer than b/n classes each gives more images, so that the batch keeps its size; a class with fewer than
    n images gives some twice.
    """

    def __init__(self, labels: Tensor, batch_size: int, n: int) -> None:
        super().__init__(labels, batch_size)
        self.n = n
        self.table = ClassTable(self.labels)

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        for _ in range(len(self)):
            yield self.table.batch(self.batch_size, self.n, generator)


class WithReplacement(SamplesPerClass):
    """`spc-N-released`: n images of each of b/n classes, both drawn with replacement, as in the code of Revisiting DML.

    Of k classes a batch has about k (1 - (1 - 1/k)^(b/n)): 43 of 98 where the other sampler has 56, some of them with
    four images or more, and now and then one image twice.
    """

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        table, slots = self.table, -(-self.batch_size // self.n)
        for _ in range(len(self)):
            chosen = torch.randint(len(table.classes), (slots, 1), generator=generator)
            within = torch.rand(slots, self.n, generator=generator, dtype=torch.float64) * table.counts[chosen]
            yield table.order[table.starts[chosen] + within.long()].flatten()[:self.batch_size]


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
            free = [i for i in self.table.members(int(self.position[member])).tolist() if i not in taken]
            if free:
                return torch.tensor([free[int(torch.randint(len(free), (1,), generator=generator))]])
        others = [i for i in range(len(self.labels)) if i not in taken]
        return torch.tensor([others[int(torch.randint(len(others), (1,), generator=generator))]])
