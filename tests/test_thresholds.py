"""What is kept of all pairs against counts in float64, on embeddings whose similarities are exact and on the grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from benchmark.metrics import operating_points
from benchmark.metrics.operating_points import survey
from benchmark.metrics.thresholds import accepted_recall, share_of
from benchmark.utils.errors import UserError
from tests import exact_thresholds as exact


def corners(seed: int, count: int = 40, classes: int = 6, dim: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Corners of a cube, near one corner for each class: of length 1, with similarities that are multiples of 1/32."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count)
    centres = random.choice([-1, 1], size=(classes, dim))
    turned = np.where(random.random((count, dim)) < 0.25, -1, 1)
    return centres[labels] * turned / math.sqrt(dim), labels


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has thresholds kept at these rates, too, and shares told at them."""
    def at(*rates: float) -> None:
        monkeypatch.setattr(operating_points, "LEVELS", tuple(sorted({*operating_points.LEVELS, *rates})))
        monkeypatch.setattr(operating_points, "RATES", rates)
    return at


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_thresholds_and_rates_over_all_pairs(seed: int, chunk: int | None, ask: Any) -> None:
    x, y = corners(seed)
    positive, negative = (values.tolist() for values in exact.pairs(x, y))
    rates = (0.001, 0.01, 0.1, 0.5, 1.0)
    ask(*rates)
    fixed = operating_points.fixed_thresholds(survey(x, y))
    found = survey(x, y, fixed=fixed, chunk=chunk)
    assert operating_points.fixed_thresholds(found) == fixed
    thresholds = [fixed[f"{rate:g}"] for rate in rates]
    values = sorted({-2.0, *positive, *negative})
    for rate, threshold in zip(rates, thresholds):
        # the lowest value that some pair has, or anything beyond the last, at which few enough negatives are accepted
        steps = [v for v in [*values, 2.0] if sum(s >= v for s in negative) <= rate * len(negative)]
        assert [s >= threshold for s in positive] == [s >= steps[0] for s in positive]
        assert [s >= threshold for s in negative] == [s >= steps[0] for s in negative]
        got = found["validation"][f"{rate:g}"]
        assert got["threshold"] == threshold
        assert got["false_accepts"] == pytest.approx(np.mean([s >= threshold for s in negative]))
        assert got["false_rejects"] == pytest.approx(np.mean([s < threshold for s in positive]))
    assert list(found["tar"].values()) == pytest.approx([np.mean([s >= t for s in positive]) for t in thresholds])
    assert list(found["tar"].values()) == pytest.approx(exact.tar_at_far(x, y, rates))
    there = np.array(exact.error_rates(x, y, exact.thresholds_at(x, y, rates)))
    assert [got["false_accepts"] for got in found["validation"].values()] == pytest.approx(there[:, 0])
    assert [got["false_rejects"] for got in found["validation"].values()] == pytest.approx(there[:, 1])


@pytest.mark.parametrize("rate", [0.29, 0.57, 0.58])
def test_a_rate_is_used_up_though_its_product_rounds_down(rate: float, ask: Any) -> None:
    """0.29 of 100 negative pairs are 29, though 0.29 * 100 is 28.999999999999996."""
    x, y = np.random.default_rng(0).normal(size=(20, 5)), np.repeat([0, 1], 10)
    ask(rate)
    fixed = operating_points.fixed_thresholds(survey(x, y))
    assert survey(x, y, fixed=fixed)["validation"][f"{rate:g}"]["false_accepts"] == pytest.approx(rate, abs=1e-12)
    assert share_of(rate, 100) == exact.share_of(rate, 100) == round(100 * rate)
    strangers = np.linspace(1, -1, 100)
    assert accepted_recall(np.full(100, True), strangers, strangers, rate) == pytest.approx(rate, abs=1e-12)


def test_the_lowest_threshold_is_just_above_the_first_negative_too_many() -> None:
    x, y = corners(9)
    negative = exact.pairs(x, y)[1].tolist()
    threshold = operating_points.fixed_thresholds(survey(x, y))["0.01"]
    value = sorted(negative, reverse=True)[math.floor(0.01 * len(negative))]
    assert threshold == round(value + 1 / operating_points.HALF, 6)


def test_a_threshold_fixed_elsewhere_drifts() -> None:
    """Classes that lie closer together let more pairs through the threshold of the others."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 10)
    wide = random.normal(size=(10, 16))[y] + 0.5 * random.normal(size=(100, 16))
    close = (random.normal(size=(10, 16)) + 2)[y] + 0.5 * random.normal(size=(100, 16))
    fixed = operating_points.fixed_thresholds(survey(wide, y))
    ((accepts, _),) = exact.error_rates(wide, y, [fixed["0.01"]])
    assert accepts <= 0.01
    assert survey(wide, y, fixed=fixed)["validation"]["0.01"]["false_accepts"] == pytest.approx(accepts)
    assert survey(close, y, fixed=fixed)["validation"]["0.01"]["false_accepts"] > 0.1


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("points", [5, 21])
def test_opis_class_by_class(chunk: int | None, points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating_points, "POINTS", points)
    x, y = corners(3)
    found = survey(x, y, chunk=chunk)
    ends = (found["negative"][operating_points.LEVELS.index(rate)] for rate in (0.1, 0.01))
    assert found["opis"] == pytest.approx(exact.opis(x, y, *ends, points))
    assert found["opis"] > 0


def test_opis_leaves_a_class_with_one_image_out() -> None:
    x, y = corners(3)
    y[0] = 6
    found = survey(x, y)
    ends = (found["negative"][operating_points.LEVELS.index(rate)] for rate in (0.1, 0.01))
    assert found["opis"] == pytest.approx(exact.opis(x, y, *ends))


def test_r_auroc_is_scikit_learn_s_over_nearest_neighbours() -> None:
    x, y = corners(5, classes=12)
    assert survey(x, y)["r_auroc"] == pytest.approx(exact.r_auroc(x, y))
    assert math.isnan(survey(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])["r_auroc"])


@pytest.mark.parametrize("seed", range(3))
def test_open_set_recall_query_by_query(seed: int, ask: Any) -> None:
    x, y = corners(seed, count=60, classes=9)
    ask(0.05, 0.3)
    found = survey(x, y)
    recall, accepted = exact.open_set_recall(x, y, (0.05, 0.3))
    assert found["recall@1"] == pytest.approx(recall)
    assert list(found["open_recall@1"].values()) == pytest.approx(accepted)


def test_sets_without_a_pair_are_told() -> None:
    with pytest.raises(UserError, match="no two of the 3 images are of one class"):
        survey(np.eye(3), [0, 1, 2])
    with pytest.raises(UserError, match="all 3 images are of one class"):
        survey(np.eye(3), [0, 0, 0])
    with pytest.raises(UserError, match="every embedding needs one label"):
        survey(np.eye(3), [0, 0])


def test_the_same_in_tensors_and_names() -> None:
    x, y = corners(1)
    named = np.array([f"class {c}" for c in y])
    assert survey(torch.tensor(x), named) == survey(x, y)
