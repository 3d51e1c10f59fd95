"""Measures of a similarity threshold over all pairs of images, one by one: the oracles of what records keep.

All is in float64, by numpy and scikit-learn alone, without a grid and without blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from sklearn.metrics import roc_auc_score

from reports.storage.operating_points import RATES


def similarities(x: np.ndarray) -> np.ndarray:
    """Cosines; -2 of an image with itself."""
    x = np.asarray(x, dtype=np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    table = x @ x.T
    np.fill_diagonal(table, -2.0)
    return table


def pairs(x: np.ndarray, y: np.ndarray, of: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Similarities of the positive and of the negative pairs, of all or of those with an image of class `of`."""
    first, second = np.triu_indices(len(x), 1)
    same = y[first] == y[second]
    chosen = np.full(len(first), True) if of is None else (y[first] == of) | (y[second] == of)
    values = similarities(x)[first, second]
    return values[same & chosen], values[~same & chosen]


def share_of(rate: float, count: int) -> int:
    """The most of `count` that are no larger share than `rate`, in fractions."""
    return math.floor(Fraction(str(rate)) * count)


def thresholds_at(x: np.ndarray, y: np.ndarray, rates: Sequence[float] = RATES) -> list[float]:
    """For each false accept rate the lowest threshold that accepts no larger share of the negative pairs.

        t(f) = min {t : |{(i,j) : y_i != y_j, s_ij >= t}| <= f |negatives|}
    """
    highest = np.sort(pairs(x, y)[1])[::-1]
    allowed = [share_of(rate, len(highest)) for rate in rates]
    return [float(np.nextafter(highest[count], np.inf)) if count < len(highest) else -math.inf for count in allowed]


def error_rates(x: np.ndarray, y: np.ndarray, thresholds: Iterable[float]) -> list[tuple[float, float]]:
    """False accepts and false rejects of thresholds, wherever they were fixed.

        FAR(t) = |{y_i != y_j, s_ij >= t}| / |negatives|,   FRR(t) = |{y_i = y_j, s_ij < t}| / |positives|
    """
    positive, negative = pairs(x, y)
    return [(float(np.mean(negative >= t)), float(np.mean(positive < t))) for t in thresholds]


def tar_at_far(x: np.ndarray, y: np.ndarray, rates: Sequence[float] = RATES) -> list[float]:
    """The share of the positive pairs that is accepted at each false accept rate of the same data."""
    return [1 - rejects for _, rejects in error_rates(x, y, thresholds_at(x, y, rates))]


def opis(x: np.ndarray, y: np.ndarray, first: float, last: float, points: int = 21) -> float:
    """How much the utility of a threshold differs between classes that have two images, class by class, in equal steps.

        OPIS = mean_t mean_c (U_c(t) - mean_c U_c(t))^2,   U = 2 (1 - FAR)(1 - FRR) / ((1 - FAR) + (1 - FRR))
    """
    thresholds = np.linspace(first, last, points)
    utilities = []
    for c in sorted(set(y.tolist())):
        positive, negative = pairs(x, y, of=c)
        if len(positive):
            rates = [(np.mean(negative < t), np.mean(positive >= t)) for t in thresholds]
            utilities.append([2 * kept * good / (kept + good) if kept + good else 0.0 for kept, good in rates])
    return float(np.mean(np.var(utilities, axis=0)))


def r_auroc(x: np.ndarray, y: np.ndarray) -> float:
    """scikit-learn's area under the ROC of the nearest neighbour's similarity; right: nearer than all wrong ones."""
    table, same = similarities(x), y[:, None] == y
    right = np.where(same, table, -2).max(1) > np.where(same, -2, table).max(1)
    return float(roc_auc_score(right, table.max(1)))


def open_set_recall(x: np.ndarray, y: np.ndarray, rates: Sequence[float] = RATES) -> tuple[float, list[float]]:
    """Recall@1 of the known classes in a gallery without the others, query by query: of all, and of those accepted.

    The threshold rejects all strangers but a share of `rate`; what is above the nearest that it rejects is accepted.
    """
    classes = sorted(set(y.tolist()))
    taken = {classes[c] for c in np.random.default_rng(0).permutation(len(classes))[:round(0.5 * len(classes))]}
    table, strangers, known = similarities(x), [], []
    for i in range(len(x)):
        gallery = [j for j in range(len(x)) if y[j] not in taken and j != i]
        own = max((table[i, j] for j in gallery if y[j] == y[i]), default=-2)
        other = max(table[i, j] for j in gallery if y[j] != y[i])
        if y[i] in taken:
            strangers.append(other)
        elif sum(y == y[i]) > 1:
            known.append((own > other, max(own, other)))
    recalls = []
    for rate in rates:
        rejected = sorted(strangers, reverse=True)[share_of(rate, len(strangers)):]
        recalls.append(float(np.mean([right and value > max(rejected, default=-2) for right, value in known])))
    return float(np.mean([right for right, _ in known])), recalls
