"""The miners' choices against the formulas: chi-square tests at level 1e-4 with stated seeds, and exact sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F

from methods.parts import miners
from methods.parts.miners import Triplets

LEVEL = 1e-4
DRAWS = 2000
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])
SEED = 11


def points(dim: int = 6) -> torch.Tensor:
    torch.manual_seed(SEED)
    centres = torch.randn(4, dim)
    return F.normalize(centres[LABELS] + 0.9 * torch.randn(len(LABELS), dim), dim=1)


def counts(miner: Callable[[], Triplets]) -> tuple[np.ndarray, np.ndarray]:
    """How often each image was an anchor's positive and negative; rows are anchors."""
    torch.manual_seed(SEED)
    positive, negative = np.zeros((2, len(LABELS), len(LABELS)))
    for _ in range(DRAWS):
        t = miner()
        positive[t.anchor.numpy(), t.positive.numpy()] += t.valid.numpy()
        negative[t.anchor.numpy(), t.negative.numpy()] += t.valid.numpy()
    return positive, negative


def fits(observed: np.ndarray, weights: np.ndarray) -> None:
    """Counts of one anchor are a multinomial draw with these weights; what has weight zero never occurs."""
    assert observed[weights == 0].sum() == 0
    expected = weights / weights.sum() * observed.sum()
    # cells that hardly ever occur are pooled, as the chi-square approximation demands
    rare = expected < 5
    cells = [(observed[~rare], expected[~rare])]
    if expected[rare].sum() > 0:
        cells.append((observed[rare].sum(keepdims=True), expected[rare].sum(keepdims=True)))
    o, e = (np.concatenate(part) for part in zip(*cells))
    if len(o) > 1:
        assert scipy.stats.chisquare(o, e * o.sum() / e.sum()).pvalue > LEVEL


def distances(x: torch.Tensor) -> np.ndarray:
    return np.linalg.norm(x.double().numpy()[:, None] - x.double().numpy()[None], axis=2)


def positives(i: int) -> np.ndarray:
    same = (LABELS[i] == LABELS).numpy().copy()
    same[i] = False
    return same


def negatives(i: int) -> np.ndarray:
    return (LABELS[i] != LABELS).numpy()


ANCHORS = range(9)
"""All but the last image, which is alone in its class."""


def test_random_is_uniform() -> None:
    x = points()
    positive, negative = counts(lambda: miners.random(x, LABELS))
    for i in ANCHORS:
        fits(positive[i], positives(i).astype(float))
        fits(negative[i], negatives(i).astype(float))
    assert positive[9].sum() == 0


@pytest.mark.parametrize(("cutoff", "limit", "dim"), [(0.5, 1.4, 6), (0.5, 2.0, 3), (0.9, 1.3, 16)])
def test_distance_weighted_follows_the_inverse_density(cutoff: float, limit: float, dim: int) -> None:
    """P(n|a) ~ 1 / (d^(D-2) (1 - d^2/4)^((D-3)/2)), d not below the cutoff, nothing beyond the limit."""
    x = points(dim)
    positive, negative = counts(lambda: miners.distance_weighted(x, LABELS, cutoff, limit))
    d = distances(x)
    for i in ANCHORS:
        fits(positive[i], positives(i).astype(float))
        clipped = np.maximum(d[i], cutoff)
        weights = 1 / (clipped ** (dim - 2) * (1 - clipped**2 / 4) ** ((dim - 3) / 2))
        weights = weights * negatives(i) * (d[i] < limit)
        fits(negative[i], weights if weights.any() else negatives(i).astype(float))


def test_semihard_takes_negatives_a_little_farther_than_the_positive() -> None:
    x, margin = points(), 0.3
    d = distances(x)
    torch.manual_seed(SEED)
    seen: dict[tuple[int, int], np.ndarray] = {}
    for _ in range(DRAWS):
        t = miners.semihard(x, LABELS, margin)
        for a, p, n, valid in zip(*(part.tolist() for part in t)):
            if valid:
                seen.setdefault((a, p), np.zeros(len(LABELS)))[n] += 1
    assert {a for a, _ in seen} == set(ANCHORS)
    sets = 0
    for (a, p), observed in seen.items():
        semi = negatives(a) & (d[a] > d[a, p]) & (d[a] < d[a, p] + margin)
        sets += semi.any()
        fits(observed, (semi if semi.any() else negatives(a)).astype(float))
    assert sets > 5


def test_softhard_draws_from_the_violators() -> None:
    x = points()
    d = distances(x)
    positive, negative = counts(lambda: miners.softhard(x, LABELS))
    sizes = []
    for i in ANCHORS:
        hard_positives = positives(i) & (d[i] > d[i][negatives(i)].min())
        hard_negatives = negatives(i) & (d[i] < d[i][positives(i)].max())
        sizes.append(hard_positives.sum())
        fits(positive[i], (hard_positives if hard_positives.any() else positives(i)).astype(float))
        fits(negative[i], (hard_negatives if hard_negatives.any() else negatives(i)).astype(float))
    assert min(sizes) == 0 or max(sizes) > 1


def test_batch_hard_is_the_extreme_pair() -> None:
    x = points()
    d = distances(x)
    t = miners.batch_hard(x, LABELS)
    for i in ANCHORS:
        assert d[i, t.positive[i]] == d[i][positives(i)].max()
        assert d[i, t.negative[i]] == d[i][negatives(i)].min()
    assert t.valid.tolist() == [True] * 9 + [False]


def test_multi_similarity_keeps_the_pairs_of_the_definition() -> None:
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    x = points()
    positive, negative = miners.multi_similarity(x @ x.T, *miners.masks(LABELS), epsilon=0.1)
    a1, p, a2, n = MultiSimilarityMiner(epsilon=0.1)(x, LABELS)
    assert sorted(zip(a1.tolist(), p.tolist())) == sorted(map(tuple, positive.nonzero().tolist()))
    assert sorted(zip(a2.tolist(), n.tolist())) == sorted(map(tuple, negative.nonzero().tolist()))


@pytest.mark.parametrize("p", [0.15, 0.4])
def test_switch_turns_a_share_p_of_triplets_against_their_own_class(p: float) -> None:
    x = points()
    torch.manual_seed(SEED)
    switched = 0
    for _ in range(500):
        before = miners.distance_weighted(x, LABELS)
        after = miners.switch(before, p)
        turned = after.positive == after.anchor
        switched += int(turned[:9].sum())
        assert torch.equal(after.negative[turned], before.positive[turned])
        assert torch.equal(after.negative[~turned], before.negative[~turned])
        assert torch.equal(after.positive[~turned], before.positive[~turned])
    assert scipy.stats.binomtest(switched, 500 * 9, p).pvalue > LEVEL


@pytest.mark.parametrize("miner", [miners.random, miners.semihard, miners.softhard, miners.distance_weighted,
                                   miners.batch_hard])
def test_a_seed_reproduces_and_degenerate_batches_are_all_invalid(miner: miners.Miner) -> None:
    x = points()
    torch.manual_seed(1)
    first = miner(x, LABELS)
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip(first, miner(x, LABELS)))
    assert not miner(x, torch.zeros(10, dtype=torch.long)).valid.any()
    assert not miner(x, torch.arange(10)).valid.any()
    same = miner(torch.ones(10, 6) / 6**0.5, LABELS)
    assert same.valid[:9].all()
    assert (LABELS[same.negative[:9]] != LABELS[:9]).all()
    assert (LABELS[same.positive[:9]] == LABELS[:9]).all()
