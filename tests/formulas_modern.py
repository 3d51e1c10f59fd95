"""Formulas of ranking surrogates, margins and neighbourhoods written out in loops over lists of Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.formulas import CLASSES, LABELS, Points, all_classes, classify, dot, hinge, negatives, positives, unit


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def anchors(itself: bool) -> list[tuple[int, list[int]]]:
    """Each image with the positives that are ranked for it."""
    found = [(a, sorted([*positives(a), a]) if itself else positives(a)) for a in range(len(LABELS))]
    return [(a, those) for a, those in found if those]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def smoothap(x: Points, s: Any, w: Points) -> float:
    losses = []
    for a, those in anchors(s.itself_released):
        precisions = []
        for p in those:
            here = dot(x[a], x[p])
            before = [1 + sum(sigmoid((dot(x[a], x[k]) - here) / s.temperature) for k in group if k != p)
                      for group in (those, [*those, *negatives(a)])]
            precisions.append(before[0] / before[1])
        losses.append(1 - mean(precisions))
    return mean(losses)


def pnp(x: Points, s: Any, w: Points) -> float:
    losses = []
    for a, those in anchors(s.itself_released):
        for p in those:
            r = sum(sigmoid((dot(x[a], x[n]) - dot(x[a], x[p])) / s.temperature) for n in negatives(a))
            value = {"o": r, "iu": (1 + r) * math.log(1 + r), "ib": r / s.b - math.log(1 + s.b * r) / s.b**2,
                     "ds": math.log(1 + r), "dq": 1 - 1 / (1 + r) ** s.alpha}[s.variant]
            losses.append(value / len(those) / len(anchors(s.itself_released)))
    return sum(losses)


def recall_of(x: Points, labels: list[int], s: Any) -> float:
    """The surrogate over any labelled points."""
    losses = []
    for a in range(len(x)):
        those = [p for p in range(len(x)) if labels[p] == labels[a] and p != a]
        if not those:
            continue
        ranked = [k for k in range(len(x)) if s.itself_released or k != a]
        ranks = [1 + sum(sigmoid((dot(x[a], x[k]) - dot(x[a], x[p])) / s.temperature) for k in ranked if k != p)
                 for p in those]
        for k in s.k:
            k = min(k, len(x))
            losses.append(1 - min(k, sum(sigmoid((k - rank) / s.step) for rank in ranks)) / min(k, len(those)))
    return mean(losses)


def recall_at_k(x: Points, s: Any, w: Points) -> float:
    return recall_of(x, LABELS, s)


def active(violations: list[float]) -> float:
    count = sum(v > 0 for v in violations)
    return sum(hinge(v) for v in violations) / count if count else 0.0


def contrast(x: Points, s: Any) -> float:
    return (active([s.positive - dot(x[a], x[p]) for a in range(len(x)) for p in positives(a)])
            + active([dot(x[a], x[n]) - s.negative for a in range(len(x)) for n in negatives(a)]))


def roadmap(x: Points, s: Any, w: Points) -> float:
    def rise(gap: float) -> float:
        if gap <= 0:
            return sigmoid(gap / s.temperature)
        return sigmoid(gap / s.temperature) + 0.5 if gap <= s.delta else s.slope * (gap - s.delta) + s.offset

    losses = []
    for a, those in anchors(s.itself_released):
        terms = []
        for p in those:
            here = dot(x[a], x[p])
            place = 1 + sum(dot(x[a], x[q]) >= here for q in those if q != p)
            terms.append(place / (place + sum(rise(dot(x[a], x[n]) - here) for n in negatives(a))))
        losses.append(1 - mean(terms))
    return (1 - s.weight) * mean(losses) + s.weight * contrast(x, s)


def circle_at(base: Points) -> Callable[[Points, Any, Points], float]:
    """Circle loss whose weights, which have no gradient, are those of the points `base`."""
    def oracle(x: Points, s: Any, w: Points) -> float:
        losses = []
        for a in range(len(x)):
            if not positives(a):
                continue
            push = sum(math.exp(s.scale * hinge(dot(base[a], base[n]) + s.margin) * (dot(x[a], x[n]) - s.margin))
                       for n in negatives(a))
            pull = sum(math.exp(-s.scale * hinge(1 + s.margin - dot(base[a], base[p]))
                                * (dot(x[a], x[p]) - 1 + s.margin)) for p in positives(a))
            losses.append(math.log(1 + push * pull))
        return mean(losses)

    return oracle


def subcenter_arcface(x: Points, s: Any, w: Points) -> float:
    def logit(i: int, c: int) -> float:
        near = max(dot(x[i], unit(v)) for v in w[c * s.centres:(c + 1) * s.centres])
        return s.scale * math.cos(math.acos(near) + s.margin * (c == LABELS[i]))

    assert len(w) == CLASSES * s.centres
    return classify(x, logit, all_classes)


def contextual_at(base: Points) -> Callable[[Points, Any, Points], float]:
    """Contextual loss whose steps are those of the points `base`, and rise from there by a slope of ten."""
    def oracle(x: Points, s: Any, w: Points) -> float:
        b = range(len(x))

        def far(points: Points, i: int, j: int) -> float:
            return max(2 - 2 * dot(points[i], points[j]), 0.0)

        def near(k: int) -> Points:
            limits = [sorted(far(base, i, j) for j in b)[k - 1] for i in b]
            return [[float(far(base, i, j) <= limits[i] + s.epsilon) + 10 * (far(base, i, j) - far(x, i, j)) for j in b]
                    for i in b]

        n, half = near(s.k), near(s.k // 2)
        hard = [[round(v) for v in row] for row in n]

        def shared(i: int, j: int) -> float:
            both = sum(n[i][m] * n[j][m] for m in b) / hard[i].count(1)
            neither = sum((1 - n[i][m]) * (1 - n[j][m]) for m in b) / max(hard[i].count(0), 1)
            return (both + neither) / 2 * n[i][j]

        def expanded(i: int, j: int) -> float:
            mutual = [half[i][m] * half[m][i] for m in b]
            return sum(mutual[m] * shared(m, j) for m in b) / sum(mutual)

        context = sum(((LABELS[i] == LABELS[j]) - (expanded(i, j) + expanded(j, i)) / 2) ** 2
                      for i in b for j in b if i != j) / len(x) ** 2
        spread = (sum(dot(x[i], x[j]) for i in b for j in b) / len(x) ** 2 - s.spread) ** 2
        return (s.weight * context + s.spread_weight * spread
                + (1 - s.weight - s.spread_weight) * contrast(x, s))

    return oracle


MODERN: dict[str, Callable[[Points, Any, Any], float]] = {
    "smoothap": smoothap, "pnp": pnp, "recall-at-k": recall_at_k, "roadmap": roadmap,
    "subcenter-arcface": subcenter_arcface,
}
