"""Thresholds against loops over all pairs in float64, on embeddings whose similarities are exact in float32."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmark.metrics.thresholds import Pairs, error_rates, open_set_recall, opis, r_auroc, tar_at_far, thresholds_at
from benchmark.utils.errors import UserError


def corners(seed: int, count: int = 40, classes: int = 6, dim: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Corners of a cube, near one corner for each class: of length 1, with similarities that are multiples of 1/32."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count)
    centres = random.choice([-1, 1], size=(classes, dim))
    turned = np.where(random.random((count, dim)) < 0.25, -1, 1)
    return centres[labels] * turned / math.sqrt(dim), labels


def pairs(x: np.ndarray, y: np.ndarray) -> tuple[list[float], list[float]]:
    """Similarities of the positive and of the negative pairs."""
    found: tuple[list[float], list[float]] = ([], [])
    for i, j in itertools.combinations(range(len(x)), 2):
        found[int(y[i] != y[j])].append(sum(float(a) * float(b) for a, b in zip(x[i], x[j])))
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_thresholds_and_rates_over_all_pairs(seed: int, chunk: int | None) -> None:
    x, y = corners(seed)
    positive, negative = pairs(x, y)
    rates = (0.001, 0.01, 0.1, 0.5, 1.0)
    thresholds = thresholds_at(x, y, rates, chunk=chunk)
    values = sorted({-2.0, *positive, *negative})
    for rate, threshold in zip(rates, thresholds):
        # the lowest value that some pair has, or anything beyond the last, at which few enough negatives are accepted
        steps = [v for v in [*values, 2.0] if sum(s >= v for s in negative) <= rate * len(negative)]
        assert [s >= threshold for s in positive] == [s >= steps[0] for s in positive]
        assert [s >= threshold for s in negative] == [s >= steps[0] for s in negative]
    for threshold, got in zip(thresholds, error_rates(x, y, thresholds, chunk=chunk)):
        assert got.false_accepts == pytest.approx(np.mean([s >= threshold for s in negative]))
        assert got.false_rejects == pytest.approx(np.mean([s < threshold for s in positive]))
    assert tar_at_far(x, y, rates, chunk=chunk) == pytest.approx(
        [np.mean([s >= t for s in positive]) for t in thresholds])


@pytest.mark.parametrize("rate", [0.29, 0.57, 0.58])
def test_a_rate_is_used_up_though_its_product_rounds_down(rate: float) -> None:
    """0.29 of 100 negative pairs are 29, though 0.29 * 100 is 28.999999999999996."""
    x, y = np.random.default_rng(0).normal(size=(20, 5)), np.repeat([0, 1], 10)
    (found,) = error_rates(x, y, thresholds_at(x, y, (rate,)))
    assert found.false_accepts == pytest.approx(rate, abs=1e-12)


def test_the_lowest_threshold_is_just_above_the_first_negative_too_many() -> None:
    x, y = corners(9)
    _, negative = pairs(x, y)
    (threshold,) = thresholds_at(x, y, (0.01,))
    value = sorted(negative, reverse=True)[math.floor(0.01 * len(negative))]
    assert threshold == np.nextafter(np.float32(value), np.float32(2))


@pytest.mark.parametrize("guess", [2.0, 0.5, -2.0])
def test_a_guess_changes_the_work_and_not_the_threshold(guess: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = corners(2, count=120)
    expected = thresholds_at(x, y)
    monkeypatch.setattr(Pairs, "_guess", lambda *_: guess)
    assert thresholds_at(x, y) == expected


def test_a_threshold_fixed_elsewhere_drifts() -> None:
    """Classes that lie closer together let more pairs through the threshold of the others."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 10)
    wide = random.normal(size=(10, 16))[y] + 0.5 * random.normal(size=(100, 16))
    close = (random.normal(size=(10, 16)) + 2)[y] + 0.5 * random.normal(size=(100, 16))
    fixed = thresholds_at(wide, y, (0.01,))
    assert error_rates(wide, y, fixed)[0].false_accepts <= 0.01
    assert error_rates(close, y, fixed)[0].false_accepts > 0.1


@pytest.mark.parametrize("chunk", [None, 3])
def test_opis_class_by_class(chunk: int | None) -> None:
    x, y = corners(3)
    thresholds = np.linspace(*thresholds_at(x, y, (0.2, 0.02)), 5)
    spread = []
    for threshold in thresholds:
        utilities = []
        for c in sorted(set(y.tolist())):
            accepted: tuple[list[bool], list[bool]] = ([], [])
            for i, j in itertools.combinations(range(len(x)), 2):
                if c in (y[i], y[j]):
                    accepted[int(y[i] != y[j])].append(float(x[i] @ x[j]) >= threshold)
            if accepted[0]:
                good, kept = np.mean(accepted[0]), 1 - np.mean(accepted[1])
                utilities.append(2 * good * kept / (good + kept) if good + kept else 0.0)
        middle = sum(utilities) / len(utilities)
        spread.append(sum((u - middle) ** 2 for u in utilities) / len(utilities))
    assert opis(x, y, between=(0.2, 0.02), points=5, chunk=chunk) == pytest.approx(np.mean(spread))
    assert np.mean(spread) > 0


def test_r_auroc_is_scikit_learn_s_over_nearest_neighbours() -> None:
    x, y = corners(5, classes=12)
    similarity = x @ x.T - 3 * np.eye(len(x))
    nearest = similarity.argmax(1)
    assert r_auroc(x, y) == pytest.approx(roc_auc_score(y[nearest] == y, similarity.max(1)))
    assert math.isnan(r_auroc(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1]))


@pytest.mark.parametrize("seed", range(3))
def test_open_set_recall_query_by_query(seed: int) -> None:
    x, y = corners(seed, count=60, classes=10)
    scores = open_set_recall(x, y, share=0.4, rates=(0.05, 0.3), seed=seed)
    taken = set(np.random.default_rng(seed).permutation(10)[:4].tolist())
    gallery = [j for j in range(60) if y[j] not in taken]
    strangers, known = [], []
    for i in range(60):
        near = max((j for j in gallery if j != i), key=lambda j: (x[i] @ x[j], -j))
        if y[i] in taken:
            strangers.append(x[i] @ x[near])
        elif sum(y == y[i]) > 1:
            known.append((y[near] == y[i], x[i] @ x[near]))
    assert (scores["known"], scores["unknown"]) == (len(known), len(strangers))
    assert scores["recall@1"] == pytest.approx(np.mean([right for right, _ in known]))
    for rate in (0.05, 0.3):
        limits = [t for t in sorted([*strangers, 2.0]) if sum(s >= t for s in strangers) <= rate * len(strangers)]
        # anything above the last stranger that must be rejected is accepted
        rejected = [s for s in strangers if s < limits[0]]
        hits = [right and value > max(rejected) for right, value in known]
        assert scores[f"open_recall@1@{rate:g}"] == pytest.approx(np.mean(hits))


def test_sets_without_a_pair_are_told() -> None:
    with pytest.raises(UserError, match="no two of the 3 images are of one class"):
        thresholds_at(np.eye(3), [0, 1, 2])
    with pytest.raises(UserError, match="all 3 images are of one class"):
        error_rates(np.eye(3), [0, 0, 0], [0.5])
    with pytest.raises(UserError, match="leaves no known or no unknown class"):
        open_set_recall(np.eye(3), [0, 0, 0])
    with pytest.raises(UserError, match="every embedding needs one label"):
        tar_at_far(np.eye(3), [0, 0])


def test_the_same_in_tensors_and_names() -> None:
    x, y = corners(1)
    named = np.array([f"class {c}" for c in y])
    assert thresholds_at(torch.tensor(x), named) == thresholds_at(x, y)
