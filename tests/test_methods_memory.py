"""Methods with a memory or a changed step, against the same written out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import methods
from tests.formulas import CLASSES, DIM, Points, dot, hinge, unit
from tests.test_methods_values import settings_of


def memory_case(name: str) -> tuple[Any, list[list[list[float]]], list[list[int]], torch.Tensor]:
    """An objective with a memory of ten that has seen three batches of four, and its loss on the third."""
    objective = methods.get(name).cls(settings_of(name, size=10, start=1, weight=0.5), CLASSES, DIM).double()
    random = np.random.default_rng(1)
    batches = [[unit(v) for v in random.normal(size=(4, DIM)).tolist()] for _ in range(3)]
    labels = [[0, 0, 1, 2], [1, 1, 2, 3], [0, 0, 2, 2]]
    for x, y in zip(batches, labels):
        loss = objective(torch.tensor(x), torch.tensor(y))
    return objective.settings, batches, labels, loss


def seen_by_the_third(batches: list[Points], labels: list[list[int]]) -> list[tuple[list[float], int]]:
    """The ten newest: the first two were overwritten by the last two of the third batch."""
    everything = [(x, y) for batch, ys in zip(batches, labels) for x, y in zip(batch, ys)]
    return everything[2:]


def split(anchor: tuple[list[float], int], others: list[tuple[list[float], int]]) -> tuple[list[float], list[float]]:
    x, y = anchor
    mates = [(dot(x, u), v == y) for u, v in others if u is not x]
    return [s for s, same in mates if same], [s for s, same in mates if not same]


def test_triplet_with_memory() -> None:
    s, batches, labels, loss = memory_case("triplet-xbm")
    batch = list(zip(batches[2], labels[2]))
    total = 0.0
    for others, weight in ((batch, 1.0), (seen_by_the_third(batches, labels), 0.5)):
        terms = []
        for anchor in batch:
            near, far = split(anchor, others)
            terms.append(hinge(max(far) - min(near) + s.margin))
        total += weight * sum(terms) / max(1, sum(t > 0 for t in terms))
    assert loss.item() == pytest.approx(total)


def test_multisimilarity_with_memory() -> None:
    s, batches, labels, loss = memory_case("multisimilarity-xbm")
    batch = list(zip(batches[2], labels[2]))
    total = 0.0
    for others, weight in ((batch, 1.0), (seen_by_the_third(batches, labels), 0.5)):
        terms = []
        for anchor in batch:
            near, far = split(anchor, others)
            pos = [v for v in near if v - s.epsilon < max(far)]
            neg = [v for v in far if v + s.epsilon > min(near)]
            if pos and neg:
                terms.append(math.log(1 + sum(math.exp(-s.alpha * (v - s.threshold)) for v in pos)) / s.alpha
                             + math.log(1 + sum(math.exp(s.beta * (v - s.threshold)) for v in neg)) / s.beta)
        total += weight * sum(terms) / max(1, len(terms))
    assert loss.item() == pytest.approx(total)


def test_the_memory_waits_for_its_start() -> None:
    objective = methods.get("triplet-xbm").cls(settings_of("triplet-xbm", size=8, start=2), 2, DIM)
    plain = methods.get("triplet-xbm").cls(settings_of("triplet-xbm", size=8, weight=0.0), 2, DIM)
    y = torch.tensor([0, 0, 1, 1])
    torch.manual_seed(0)
    batches = [F.normalize(torch.randn(4, DIM), dim=1) for _ in range(3)]
    same = [bool(objective(x, y) == plain(x, y)) for x in batches]
    assert same == [True, True, False]


@pytest.mark.parametrize("alone", [True, False])
def test_triplets_against_memory_are_pytorch_metric_learning_s(alone: bool) -> None:
    """Loss and gradient of UML's released code, CrossBatchMemory over cosine triplets of BatchHardMiner: alone, or
    beside the triplets of the batch as Wang et al. have it."""
    from pytorch_metric_learning import distances, losses, miners

    triplets, miner = losses.TripletMarginLoss(distance=distances.CosineSimilarity()), miners.BatchHardMiner()
    theirs = losses.CrossBatchMemory(triplets, DIM, memory_size=10, miner=miner)
    settings = settings_of("triplet-xbm", size=10, memory_alone_released=alone)
    ours = methods.get("triplet-xbm").cls(settings, CLASSES, DIM)
    torch.manual_seed(0)
    for labels in ([0, 0, 1, 2], [1, 1, 2, 3], [0, 0, 2, 2]):
        y = torch.tensor(labels)
        z = torch.randn(4, DIM)
        gradients, values = [], []
        for loss in (lambda x, y=y: (0 if alone else triplets(x, y, miner(x, y))) + theirs(x, y),
                     lambda x, y=y: ours(x, y)):
            leaf = z.clone().requires_grad_()
            value = loss(F.normalize(leaf, dim=1))
            value.backward()
            values.append(value.item())
            gradients.append(leaf.grad)
        assert values[0] == pytest.approx(values[1], rel=1e-5)
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_the_memory_is_in_use_from_the_start() -> None:
    """The second batch already feels the first: a batch drawn to one point gets ten times the gradient to leave it.

    Without memory the hardest triplets of such a batch have next to none, as that of a cosine vanishes.
    """
    torch.manual_seed(0)
    y = torch.tensor([0, 0, 1, 1])
    spread, centre = torch.randn(4, DIM), torch.randn(1, DIM)
    pulls = {}
    for name, given in (("at once", {}), ("never", {"weight": 0.0})):
        objective = methods.get("triplet-xbm").cls(settings_of("triplet-xbm", size=8, **given), 2, DIM)
        objective(F.normalize(spread, dim=1), y)
        together = (centre + 1e-2 * torch.randn(4, DIM, generator=torch.Generator().manual_seed(1))).requires_grad_()
        objective(F.normalize(together, dim=1), y).backward()
        pulls[name] = float(together.grad.norm())
    assert pulls["at once"] > 10 * pulls["never"] > 0


def test_mixup_weighs_the_labels_of_both_images() -> None:
    """One layer, mixed at the input: the embedding is that of the mixture, the loss that of two cross-entropies."""
    class Flat(torch.nn.Module):
        dim = 4

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)

    torch.manual_seed(0)
    method = methods.get("manifold-mixup").build(Flat(), CLASSES, DIM)
    images, labels = torch.rand(6, 1, 2, 2), torch.tensor([0, 1, 2, 3, 0, 1])
    torch.manual_seed(7)
    loss, embeddings = method.step(images, labels)
    torch.manual_seed(7)
    share = float(torch.distributions.Beta(2.0, 2.0).sample())
    partner = torch.randperm(6)
    mixed = F.normalize(method.embedding((share * images + (1 - share) * images[partner]).flatten(1)), dim=1)
    torch.testing.assert_close(embeddings, mixed.detach())
    logits = (mixed @ F.normalize(method.objective.loss.W, dim=0)) / 0.05
    log = logits.detach().log_softmax(1)
    expected = -sum(share * log[i, labels[i]] + (1 - share) * log[i, labels[partner[i]]] for i in range(6)) / 6
    assert loss.item() == pytest.approx(float(expected), rel=1e-5)


def test_mixup_mixes_the_hidden_states_of_a_stage() -> None:
    from methods.mixup import mixed_after, mixing_points

    class Staged(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks(x)

    network = Staged()
    points = mixing_points(network)
    assert points == list(network.blocks)[:2]
    x, partner = torch.randn(5, 3), torch.tensor([1, 2, 3, 4, 0])
    with mixed_after(points[0], 0.25, partner):
        got = network(x)
    hidden = network.blocks[0](x)
    torch.testing.assert_close(got, network.blocks[1:](0.25 * hidden + 0.75 * hidden[partner]))
    torch.testing.assert_close(network(x), network.blocks(x))
