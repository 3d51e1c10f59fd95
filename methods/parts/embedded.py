"""Batch samplers that look at embeddings: a small batch that stands for a large one (Revisiting DML, section 3.2).

A big batch B* of b* = 1024 images is drawn from a memory bank of embeddings, and a batch B is chosen from it: by
greedy coreset (`gc`), by the distribution of distances (`ddm`) or by the Fréchet distance (`frd`).

The batches of the next few steps are chosen in a thread while the current ones train, from a copy of their big
batches; the only work in a step is one row copy into the bank. Which copies are taken when does not depend on
timing, so that a seed reproduces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from methods.method import MethodError
from methods.parts.batches import BatchSampler, ClassTable, Distance
from methods.parts.distances import pairwise

BIG = 1024
CANDIDATES = 10
AHEAD = 16
"""Batches chosen at a time; the bank that they are chosen from is at most twice as many steps old."""

Select = Callable[[Tensor, list[Tensor]], int]
"""Which of the candidate batches (positions in the big batch) is closest to the big batch of embeddings."""


def greedy_coreset(points: Tensor, size: int, first: int = 0) -> Tensor:
    """k-centre by farthest-first traversal: each new point is the one farthest from those already chosen.

        min_{B : |B| = b} max_{x* in B*} min_{x in B} d(x, x*),   within a factor of two

    >>> greedy_coreset(torch.tensor([[0.0], [1.0], [10.0]]), 2).tolist()
    [0, 2]
    """
    chosen = [first]
    nearest = pairwise(points[first:first + 1], points)[0]
    for _ in range(size - 1):
        chosen.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, pairwise(points[chosen[-1]:chosen[-1] + 1], points)[0])
        # a point at distance zero must not be chosen again, even where duplicates are all that is left
        nearest[chosen] = -1
    return torch.tensor(chosen)


def distance_histogram(points: Tensor, high: float, bins: int = 50) -> Tensor:
    """The normalised histogram of the distances between all pairs of these points, on [0, high]."""
    distance = torch.pdist(points)
    counts = torch.histc(distance, bins, 0.0, high)
    return counts / counts.sum().clamp(min=1)


def histogram_distance(first: Tensor, second: Tensor, width: float) -> float:
    """Wasserstein distance of two histograms over the same bins: the area between their cumulative sums."""
    return float((first.cumsum(0) - second.cumsum(0)).abs().sum()) * width


def match_distances(big: Tensor, candidates: list[Tensor]) -> int:
    """DDM: the candidate whose distances are distributed most like those of the big batch.

    The released code hands the *heights* of the two histograms to a Wasserstein distance of samples; here it is
    the distance of the two distributions.
    """
    high, bins = float(torch.pdist(big).max()), 50
    target = distance_histogram(big, high, bins)
    costs = [histogram_distance(distance_histogram(big[c], high, bins), target, high / bins) for c in candidates]
    return int(np.argmin(costs))


def match_frechet(distance: Distance) -> Select:
    """FRD: the candidate at the smallest Fréchet distance from the big batch."""

    def select(big: Tensor, candidates: list[Tensor]) -> int:
        points = big.double().numpy()
        return int(np.argmin([distance(points[c.numpy()], points) for c in candidates]))

    return select


class Embedded(BatchSampler):
    """A sampler over a memory bank: one embedding for each training image, overwritten as training goes on."""

    needs_bank = True
    n = 2

    def __init__(self, labels: Tensor, batch_size: int) -> None:
        super().__init__(labels, batch_size)
        self.big = min(BIG, len(self.labels))
        self.table = ClassTable(self.labels)
        self.bank = torch.empty(0)

    def start(self, embeddings: Tensor) -> None:
        if len(embeddings) != len(self.labels):
            raise MethodError(f"the memory bank needs {len(self.labels)} embeddings and was given {len(embeddings)}")
        self.bank = embeddings.detach().clone().float()

    def remember(self, ids: Tensor, embeddings: Tensor) -> None:
        # an image can be in a batch twice; which copy a GPU keeps would be left to chance
        ids, first = np.unique(ids.cpu().numpy(), return_index=True)
        rows = torch.from_numpy(first).to(embeddings.device, non_blocking=True)
        where = torch.from_numpy(ids).to(self.bank.device, non_blocking=True)
        self.bank.index_copy_(0, where, embeddings.detach()[rows].to(self.bank))

    def state_dict(self) -> dict[str, Tensor]:
        return {"bank": self.bank}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.bank = state["bank"].clone()

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        if not len(self.bank):
            raise MethodError("this batch sampler needs its memory bank filled: call start(embeddings) first")
        counts = [min(AHEAD, len(self) - i) for i in range(0, len(self), AHEAD)]
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(self._choose_all, self._tasks(counts[0], generator))
            for count in [*counts[1:], 0]:
                ready = pending.result()
                pending = pool.submit(self._choose_all, self._tasks(count, generator))
                yield from ready

    def _tasks(self, count: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
        """For each coming batch: the big batch's ids and embeddings now, and the batches to choose from."""
        drawn = [self.table.batch(self.big, self.n, generator) for _ in range(count)]
        if not drawn:
            return []
        ids = torch.stack(drawn)
        points = self.bank[ids.to(self.bank.device)].cpu()
        return [(i, p, self._candidates(i, generator)) for i, p in zip(ids, points)]

    def _candidates(self, ids: Tensor, generator: torch.Generator) -> list[Tensor]:
        raise NotImplementedError

    def _choose(self, points: Tensor, candidates: list[Tensor]) -> Tensor:
        """Positions in the big batch."""
        raise NotImplementedError

    def _choose_all(self, tasks: list[tuple[Tensor, Tensor, list[Tensor]]]) -> list[Tensor]:
        return [ids[self._choose(points, candidates)] for ids, points, candidates in tasks]


class Matching(Embedded):
    """The best of m = 10 random SPC-2 batches of the big batch, by some measure of likeness."""

    def __init__(self, labels: Tensor, batch_size: int, select: Select) -> None:
        super().__init__(labels, batch_size)
        self.select = select

    def _candidates(self, ids: Tensor, generator: torch.Generator) -> list[Tensor]:
        table = ClassTable(self.labels[ids])
        return [table.batch(self.batch_size, self.n, generator) for _ in range(CANDIDATES)]

    def _choose(self, points: Tensor, candidates: list[Tensor]) -> Tensor:
        return candidates[self.select(points, candidates)]


class Coreset(Embedded):
    """Greedy coreset: b/2 images of the big batch that lie farthest apart, each with another one of its class.

    The partner keeps positive pairs in the batch, as in the released code (which by a slip mapped its choice
    through another random order, so that its batches were random ones).
    """

    def _candidates(self, ids: Tensor, generator: torch.Generator) -> list[Tensor]:
        table = ClassTable(self.labels[ids])
        partner = torch.empty(len(ids), dtype=torch.long)
        for members in table.members:
            shuffled = members[torch.randperm(len(members), generator=generator)]
            partner[shuffled] = shuffled.roll(1)
        return [torch.randint(len(ids), (1,), generator=generator), partner]

    def _choose(self, points: Tensor, candidates: list[Tensor]) -> Tensor:
        first, partner = candidates
        centres = greedy_coreset(points, -(-self.batch_size // self.n), int(first))
        return torch.cat([centres, partner[centres]])[:self.batch_size]


SELECTORS = ("gc", "ddm", "frd")


def create(name: str, labels: Tensor, batch_size: int, distance: Distance | None) -> Embedded:
    """`gc`, `ddm` or `frd`; the last needs the Fréchet distance handed over."""
    if name == "gc":
        return Coreset(labels, batch_size)
    if name == "ddm":
        return Matching(labels, batch_size, match_distances)
    if distance is None:
        raise MethodError("the batch sampler 'frd' needs a Fréchet distance: pass distance=frechet_distance")
    return Matching(labels, batch_size, match_frechet(distance))
