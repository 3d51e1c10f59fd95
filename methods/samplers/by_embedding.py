"""Batch samplers that look at embeddings: a small batch that stands for a large one (Revisiting DML, section 3.2).

A big batch B* of b* = 1024 images is drawn from a memory bank of embeddings, and a batch B is chosen from it: by
greedy coreset (`gc`), by the distribution of distances (`ddm`) or by the Fréchet distance (`frd`). Where B itself is
larger than that, so is B*, and little is left to choose.

The batches of the next few steps are chosen in threads while the current ones train, from a copy of their big
batches; the only work in a step is one row copy into the bank. When which copies are taken, and the random numbers
of each batch, do not depend on timing, so that a seed reproduces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from methods.method import MethodError
from methods.parts.distances import pairwise
from methods.samplers.by_label import BatchSampler, ClassTable

Distance = Callable[[Any, Any], float]
"""Fréchet distance of two sets of points, given as two (n, d) arrays."""

BIG = 1024
CANDIDATES = 10
AHEAD = 16
"""Batches chosen at a time; the bank that they are chosen from is at most twice as many steps old."""
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
"""Those that this process may use: in a container or a job of a cluster fewer than the machine has."""
WORKERS = max(1, min(8, CORES - 1))

Select = Callable[[Tensor, list[Tensor]], int]
"""Which of the candidate batches (positions in the big batch) is closest to the big batch of embeddings."""


def farthest_first(points: Tensor, first: int = 0) -> Iterator[int]:
    """Greedy k-centre: each new point is the one farthest from those already given.

        min_{B : |B| = b} max_{x* in B*} min_{x in B} d(x, x*),   within a factor of two

    >>> list(farthest_first(torch.tensor([[0.0], [1.0], [10.0]])))
    [0, 2, 1]
    """
    norms = points.square().sum(1)
    nearest = torch.full_like(norms, torch.inf)
    newest = first
    for _ in range(len(points)):
        yield newest
        nearest = torch.minimum(nearest, (norms + norms[newest] - 2 * points @ points[newest]).clamp(min=0))
        # what was given must not come again, even where only duplicates of it are left
        nearest[newest] = -torch.inf
        newest = int(nearest.argmax())


def distance_histogram(distances: Tensor, high: float, bins: int = 50) -> Tensor:
    """The normalised histogram of a matrix of distances on [0, high], without the zeros of its diagonal."""
    counts = torch.histc(distances, bins, 0.0, high)
    counts[0] -= len(distances)
    return counts / counts.sum().clamp(min=1)


def histogram_distance(first: Tensor, second: Tensor, width: float) -> float:
    """Wasserstein distance of two histograms over the same bins: the area between their cumulative sums."""
    return float((first.cumsum(0) - second.cumsum(0)).abs().sum()) * width


def match_distances(big: Tensor, candidates: list[Tensor]) -> int:
    """DDM: the candidate whose distances are distributed most like those of the big batch.

    The released code hands the *heights* of the two histograms to a Wasserstein distance of samples; here it is
    the distance of the two distributions.
    """
    distances, bins = pairwise(big), 50
    high = float(distances.max())
    target = distance_histogram(distances, high, bins)
    costs = [histogram_distance(distance_histogram(distances[c][:, c], high, bins), target, high / bins)
             for c in candidates]
    return int(np.argmin(costs))


def match_frechet(distance: Distance) -> Select:
    """FRD: the candidate at the smallest Fréchet distance from the big batch.

    Where the candidate spans far fewer dimensions than there are, the distance is asked for in these alone, which is
    several times quicker: with Q an orthonormal basis of them,

        FRD(B, B*) = FRD(B Q, B* Q) + |(I - Q Q^T)(mu - mu*)|^2 + tr((I - Q Q^T) Sigma*)
    """

    def cost(candidate: Tensor, big: Tensor, centred: Tensor) -> float:
        if 2 * len(candidate) > candidate.shape[1]:
            return distance(candidate.numpy(), big.numpy())
        basis = torch.linalg.qr((candidate - candidate.mean(0)).T)[0][:, :-1]
        within = big @ basis
        lost = (centred.square().sum() - (within - within.mean(0)).square().sum()) / (len(big) - 1)
        gap = candidate.mean(0) - big.mean(0)
        aside = gap.square().sum() - (gap @ basis).square().sum()
        return distance((candidate @ basis).numpy(), within.numpy()) + float(lost + aside)

    def select(big: Tensor, candidates: list[Tensor]) -> int:
        if len(candidates[0]) < 3:
            return 0
        big = big.double()
        centred = big - big.mean(0)
        return int(np.argmin([cost(big[c], big, centred) for c in candidates]))

    return select


class Banked(BatchSampler):
    """A sampler over a memory bank: one embedding for each training image, overwritten as training goes on."""

    needs_bank = True
    n = 2

    def __init__(self, labels: Tensor, batch_size: int) -> None:
        super().__init__(labels, batch_size)
        self.big = min(max(BIG, self.batch_size), len(self.labels))
        self.table = ClassTable(self.labels)
        self.bank = torch.empty(0)

    def start(self, embeddings: Tensor) -> None:
        if len(embeddings) != len(self.labels):
            raise MethodError(f"the memory bank needs {len(self.labels)} embeddings and was given {len(embeddings)}")
        self.bank = embeddings.detach().clone().float()

    def remember(self, ids: Tensor, embeddings: Tensor) -> None:
        # after a resume the bank is where the checkpoint was read to
        self.bank = self.bank.to(embeddings.device)
        # an image can be in a batch twice; which copy a GPU keeps would be left to chance
        unique, first = np.unique(ids.cpu().numpy(), return_index=True)
        rows = torch.from_numpy(first).to(embeddings.device, non_blocking=True)
        where = torch.from_numpy(unique).to(self.bank.device, non_blocking=True)
        # as `start` was given them: objectives may train on embeddings of any length, which would lie far from the rest
        self.bank.index_copy_(0, where, F.normalize(embeddings.detach()[rows].to(self.bank), dim=1))

    def state_dict(self) -> dict[str, Tensor]:
        return {"bank": self.bank}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.bank = state["bank"].clone()

    def epoch(self, generator: torch.Generator) -> Iterator[Tensor]:
        if not len(self.bank):
            raise MethodError("this batch sampler needs its memory bank filled: call start(embeddings) first")
        seeds = torch.randint(2**62, (len(self),), generator=generator).tolist()
        pool = ThreadPoolExecutor(WORKERS)
        try:
            tasks = [(pool.submit(self._draw, seed), seed) for seed in seeds]
            chunks = [tasks[i:i + AHEAD] for i in range(0, len(tasks), AHEAD)]
            chosen = self._submit(pool, chunks[0])
            for upcoming in [*chunks[1:], []]:
                ready = [future.result() for future in chosen]
                chosen = self._submit(pool, upcoming)
                yield from ready
        finally:
            pool.shutdown(cancel_futures=True)

    def _draw(self, seed: int) -> Tensor:
        """The ids of a big batch: two images of each of many classes, so that there are positives to choose."""
        generator = torch.Generator().manual_seed(seed)
        ids = self.table.batch(self.big, self.n, generator).unique()
        short = self.batch_size - len(ids)
        if short > 0:  # classes of one image gave it twice: without others the batch would be too small
            rest = torch.ones(len(self.labels)).index_fill(0, ids, 0.0)
            ids = torch.cat([ids, rest.multinomial(short, generator=generator)])
        return ids

    def _submit(self, pool: ThreadPoolExecutor, tasks: list[tuple[Future[Tensor], int]]) -> list[Future[Tensor]]:
        """Copies the big batches' embeddings as they are now, and has a batch chosen from each."""
        if not tasks:
            return []
        drawn = [future.result() for future, _ in tasks]
        points = self.bank[torch.cat(drawn).to(self.bank.device)].cpu().split([len(ids) for ids in drawn])
        return [pool.submit(self._choose_ids, ids, own, torch.Generator().manual_seed(seed + 1))
                for ids, own, (_, seed) in zip(drawn, points, tasks)]

    def _choose_ids(self, ids: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        return ids[self.choose(self.labels[ids], points, generator)]

    def choose(self, labels: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        """Positions of a batch in a big batch with these labels and embeddings."""
        raise NotImplementedError


class Matching(Banked):
    """The best of m = 10 random SPC-2 batches of the big batch, by some measure of likeness."""

    def __init__(self, labels: Tensor, batch_size: int, select: Select) -> None:
        super().__init__(labels, batch_size)
        self.select = select

    def choose(self, labels: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        table, size = ClassTable(labels), min(self.batch_size, len(labels))
        candidates = [table.batch(size, self.n, generator) for _ in range(CANDIDATES)]
        return candidates[self.select(points, candidates)]


class Coreset(Banked):
    """Greedy coreset: images of the big batch that lie farthest apart, each with another one of its class.

    The partner keeps positive pairs in the batch, as in the released code (which by a slip mapped its choice
    through another random order, so that its batches were random ones).
    """

    def choose(self, labels: Tensor, points: Tensor, generator: torch.Generator) -> Tensor:
        order = torch.randperm(len(labels), generator=generator).tolist()
        mates: dict[int, list[int]] = {}
        for position in order:
            mates.setdefault(int(labels[position]), []).append(position)
        chosen: dict[int, None] = {}
        for centre in farthest_first(points, order[0]):
            if centre not in chosen:
                partners = [p for p in mates[int(labels[centre])] if p not in chosen and p != centre]
                chosen.update(dict.fromkeys([centre, *partners[:self.n - 1]]))
            if len(chosen) >= self.batch_size:
                break
        return torch.tensor(list(chosen)[:self.batch_size])
