"""The papers' formulas written out in loops over lists of Python floats: the oracles of the objectives.

Each takes the embeddings, the settings and the objective's own parameters, and knows nothing of torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

LABELS = [0, 0, 1, 1, 2, 2, 2, 3]
"""Two, two, three and one image of a class: unequal sizes, and an anchor without a positive."""
CLASSES, DIM = 4, 3
TRIPLETS = [(0, 1, 2), (1, 0, 6), (2, 3, 7), (3, 2, 0), (4, 5, 1), (5, 6, 7), (6, 4, 3)]
Points = list[list[float]]


def dot(x: list[float], y: list[float]) -> float:
    return sum(a * b for a, b in zip(x, y))


def dist(x: list[float], y: list[float]) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y)))


def unit(x: list[float]) -> list[float]:
    length = math.sqrt(dot(x, x))
    return [a / length for a in x]


def hinge(x: float) -> float:
    return max(x, 0.0)


def positives(i: int) -> list[int]:
    return [j for j in range(len(LABELS)) if LABELS[j] == LABELS[i] and j != i]


def negatives(i: int) -> list[int]:
    return [j for j in range(len(LABELS)) if LABELS[j] != LABELS[i]]


def contrastive(x: Points, s: Any, w: Points) -> float:
    return sum(dist(x[a], x[p]) + hinge(s.margin - dist(x[a], x[n])) for a, p, n in TRIPLETS) / len(TRIPLETS)


def triplet(x: Points, s: Any, w: Points) -> float:
    power = 2 if s.squared else 1
    return sum(hinge(dist(x[a], x[p]) ** power - dist(x[a], x[n]) ** power + s.margin)
               for a, p, n in TRIPLETS) / len(TRIPLETS)


def margin(x: Points, s: Any, w: list[float]) -> float:
    total, active, triplets = 0.0, 0, 0
    for a, p, n in TRIPLETS:
        beta = w[LABELS[a]]
        terms = [hinge(dist(x[a], x[p]) - beta + s.margin), hinge(beta - dist(x[a], x[n]) + s.margin)]
        total += sum(terms)
        active += sum(t > 0 for t in terms)
        triplets += any(t > 0 for t in terms)
    return total / (triplets if s.released_divisor else active)


def snr(x: Points, s: Any, w: Points) -> float:
    def ratio(i: int, j: int) -> float:
        return float(np.var(np.subtract(x[i], x[j]), ddof=1) / np.var(x[i], ddof=1))

    terms = [hinge(ratio(a, p) - ratio(a, n) + s.margin) for a, p, n in TRIPLETS]
    return sum(terms) / sum(t > 0 for t in terms) + s.nu * sum(abs(sum(v)) for v in x) / len(x)


def genlifted(x: Points, s: Any, w: Points) -> float:
    terms = [hinge(math.log(sum(math.exp(dist(x[a], x[p])) for p in positives(a)))
                   + math.log(sum(math.exp(s.margin - dist(x[a], x[n])) for n in negatives(a))))
             for a in range(len(x)) if positives(a)]
    return sum(terms) / len(terms) + s.nu * sum(dot(v, v) for v in x) / len(x)


def npair(x: Points, s: Any, w: Points) -> float:
    terms = [math.log(1 + sum(math.exp(dot(x[a], x[n]) - dot(x[a], x[p])) for n in negatives(a)))
             for a in range(len(x)) for p in positives(a)]
    return sum(terms) / len(terms) + s.nu * sum(dot(v, v) for v in x) / len(x)


def angular(x: Points, s: Any, w: Points) -> float:
    tan2 = math.tan(math.radians(s.alpha)) ** 2
    u = [unit(v) for v in x]
    terms = [math.log(1 + sum(math.exp(4 * tan2 * (dot(u[a], u[n]) + dot(u[p], u[n]))
                                       - 2 * (1 + tan2) * dot(u[a], u[p])) for n in negatives(a)))
             for a in range(len(x)) for p in positives(a)]
    return npair(x, s, w) + s.weight * sum(terms) / len(terms)


def histogram(x: Points, s: Any, w: Points) -> float:
    nodes = [-1 + 2 * r / (s.nodes - 1) for r in range(s.nodes)]

    def heights(partners: Callable[[int], list[int]]) -> list[float]:
        similar = [dot(x[i], x[j]) for i in range(len(x)) for j in partners(i)]
        width = nodes[1] - nodes[0]
        return [sum(hinge(1 - abs(value - t) / width) for value in similar) / len(similar) for t in nodes]

    above, below = heights(negatives), heights(positives)
    return sum(above[r] * sum(below[:r + 1]) for r in range(s.nodes))


def mined(similar: list[float], pos: list[int], neg: list[int], epsilon: float) -> tuple[list[int], list[int]]:
    if not pos or not neg:
        return [], []
    return ([p for p in pos if similar[p] - epsilon < max(similar[n] for n in neg)],
            [n for n in neg if similar[n] + epsilon > min(similar[p] for p in pos)])


def multisimilarity(x: Points, s: Any, w: Points) -> float:
    terms = []
    for i in range(len(x)):
        similar = [dot(x[i], y) for y in x]
        pos, neg = mined(similar, positives(i), negatives(i), s.epsilon)
        if pos and neg:
            terms.append(math.log(1 + sum(math.exp(-s.alpha * (similar[p] - s.threshold)) for p in pos)) / s.alpha
                         + math.log(1 + sum(math.exp(s.beta * (similar[n] - s.threshold)) for n in neg)) / s.beta)
    return sum(terms) / len(terms)


def supcon(x: Points, s: Any, w: Points) -> float:
    terms = []
    for a in range(len(x)):
        total = sum(math.exp(dot(x[a], x[k]) / s.temperature) for k in range(len(x)) if k != a)
        logs = [math.log(math.exp(dot(x[a], x[p]) / s.temperature) / total) for p in positives(a)]
        if logs:
            terms.append(-sum(logs) / len(logs))
    return sum(terms) / len(terms)


def classify(x: Points, logit: Callable[[int, int], float], others: Callable[[int], list[int]]) -> float:
    """Mean of -log e^own / sum over `others` of e^logit."""
    terms = [-math.log(math.exp(logit(i, LABELS[i])) / sum(math.exp(logit(i, c)) for c in others(i)))
             for i in range(len(x))]
    return sum(terms) / len(terms)


def all_classes(i: int) -> list[int]:
    return list(range(CLASSES))


def normsoftmax(x: Points, s: Any, w: Points) -> float:
    return classify(x, lambda i, c: dot(x[i], unit(w[c])) / s.temperature, all_classes)


def cosface(x: Points, s: Any, w: Points) -> float:
    return classify(x, lambda i, c: s.scale * (dot(x[i], unit(w[c])) - s.margin * (c == LABELS[i])), all_classes)


def arcface(x: Points, s: Any, w: Points) -> float:
    def logit(i: int, c: int) -> float:
        cosine = dot(x[i], unit(w[c]))
        cosine = max(cosine, 0.0) if s.positive_cosines_released else cosine
        return s.scale * math.cos(math.acos(cosine) + s.margin * (c == LABELS[i]))

    return classify(x, logit, all_classes)


def curricularface_at(t: Callable[[int], float]) -> Callable[[Points, Any, Points], float]:
    def oracle(x: Points, s: Any, w: Points) -> float:
        def logit(i: int, c: int) -> float:
            own = math.cos(math.acos(dot(x[i], unit(w[LABELS[i]]))) + s.margin)
            cosine = dot(x[i], unit(w[c]))
            if c == LABELS[i]:
                return s.scale * own
            return s.scale * (cosine if own >= cosine else cosine * (t(LABELS[i]) + cosine))

        return classify(x, logit, all_classes)

    return oracle


def proxynca(x: Points, s: Any, w: Points) -> float:
    def logit(i: int, c: int) -> float:
        return -dist([s.scale * a for a in x[i]], [s.scale * b for b in unit(w[c])]) ** 2

    return classify(x, logit, lambda i: [c for c in range(CLASSES) if c != LABELS[i]])


def proxynca_pp(x: Points, s: Any, w: Points) -> float:
    return classify(x, lambda i, c: -9 * dist(x[i], unit(w[c])) ** 2, all_classes)


def proxyanchor(x: Points, s: Any, w: Points) -> float:
    def similar(i: int, c: int) -> float:
        return dot(x[i], unit(w[c]))

    there = sorted(set(LABELS))
    pull = [math.log(1 + sum(math.exp(-s.alpha * (similar(i, c) - s.delta)) for i in range(len(x)) if LABELS[i] == c))
            for c in there]
    push = [math.log(1 + sum(math.exp(s.alpha * (similar(i, c) + s.delta)) for i in range(len(x)) if LABELS[i] != c))
            for c in range(CLASSES)]
    return sum(pull) / len(there) + sum(push) / CLASSES


def softtriple(x: Points, s: Any, w: Points) -> float:
    centres = [[unit(v) for v in w[c * s.centres:(c + 1) * s.centres]] for c in range(CLASSES)]

    def relaxed(i: int, c: int) -> float:
        weights = [math.exp(dot(x[i], v) / s.gamma) for v in centres[c]]
        return sum(a * dot(x[i], v) for a, v in zip(weights, centres[c])) / sum(weights)

    spread = sum(math.sqrt(2 - 2 * dot(centres[c][i], centres[c][j]))
                 for c in range(CLASSES) for j in range(s.centres) for i in range(j))
    return (classify(x, lambda i, c: s.scale * (relaxed(i, c) - s.delta * (c == LABELS[i])), all_classes)
            + s.tau * spread / (CLASSES * s.centres * (s.centres - 1)))


def moebius(x: list[float], y: list[float], c: float) -> list[float]:
    xy, xx, yy = dot(x, y), dot(x, x), dot(y, y)
    below = 1 + 2 * c * xy + c * c * xx * yy
    return [((1 + 2 * c * xy + c * yy) * a + (1 - c * xx) * b) / below for a, b in zip(x, y)]


def hyp(x: Points, s: Any, w: Points) -> float:
    def into_ball(v: list[float]) -> list[float]:
        length = math.sqrt(dot(v, v))
        v = [a * min(1.0, s.radius / length) for a in v]
        length = math.sqrt(s.curvature * dot(v, v))
        return [math.tanh(length) * a / length for a in v]

    points = [into_ball(v) for v in x]

    def similar(i: int, j: int) -> float:
        gap = moebius([-a for a in points[i]], points[j], s.curvature)
        return -2 / math.sqrt(s.curvature) * math.atanh(math.sqrt(s.curvature * dot(gap, gap))) / s.temperature

    def against(a: int, p: int) -> list[int]:
        if not s.pairs_released:
            return negatives(a)
        number = [LABELS[:i].count(c) for i, c in enumerate(LABELS)]
        return [n for n in negatives(a) if number[n] in (number[a], number[p])]

    terms = [-math.log(math.exp(similar(a, p)) / (math.exp(similar(a, p)) + sum(math.exp(similar(a, n))
                                                                               for n in against(a, p))))
             for a in range(len(x)) for p in positives(a)]
    return sum(terms) / len(terms)


ORACLES: dict[str, Callable[[Points, Any, Any], float]] = {
    "contrastive": contrastive, "triplet": triplet, "margin": margin, "snr": snr, "genlifted": genlifted,
    "npair": npair, "angular": angular, "histogram": histogram, "multisimilarity": multisimilarity, "supcon": supcon,
    "normsoftmax": normsoftmax, "cosface": cosface, "arcface": arcface, "proxynca": proxynca,
    "proxynca++": proxynca_pp, "proxyanchor": proxyanchor, "softtriple": softtriple, "hyp": hyp,
}
