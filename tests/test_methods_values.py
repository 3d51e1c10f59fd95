"""Every objective against the paper's formula written out in loops, in float64: the loss, and its gradient.

The oracles below work on lists of Python floats and know nothing of torch. Gradients are compared with central
differences of the oracle, through the normalisation of the embedding where the objective wants it normalised.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import methods
from methods.parts.miners import Triplets
from methods.parts.ranked import Ranked

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
    return classify(x, lambda i, c: s.scale * math.cos(math.acos(dot(x[i], unit(w[c]))) + s.margin * (c == LABELS[i])),
                    all_classes)


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

    terms = [-math.log(math.exp(similar(a, p)) / (math.exp(similar(a, p)) + sum(math.exp(similar(a, n))
                                                                               for n in negatives(a))))
             for a in range(len(x)) for p in positives(a)]
    return sum(terms) / len(terms)


def settings_of(name: str, **changes: Any) -> Any:
    return dataclasses.replace(methods.get(name).settings(), **changes)


def raw_points(seed: int = 3, count: int = len(LABELS)) -> np.ndarray:
    """Points of one class near each other, so that hinges and mined sets are neither all on nor all off."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(CLASSES, DIM))
    return centres[LABELS[:count]] + 0.6 * random.normal(size=(count, DIM))


def agree(name: str, oracle: Callable[[Points, Any, Any], float], *, prepare: Callable[[Any], None] = lambda o: None,
          **changes: Any) -> None:
    """Value and gradients, for the embeddings and the objective's own parameters."""
    settings = settings_of(name, **changes)
    torch.manual_seed(0)
    objective = methods.get(name).cls(settings, CLASSES, DIM).double()
    parameters = list(objective.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.1 * torch.randn_like(parameter))
    raw = torch.tensor(raw_points(), requires_grad=True)
    labels = torch.tensor(LABELS)
    prepare(objective)

    def points(flat: np.ndarray) -> Points:
        rows = flat.reshape(-1, DIM).tolist()
        return [unit(v) for v in rows] if objective.normalised else rows

    # pytorch-metric-learning keeps centres in columns
    columns = any(name.endswith("W") for name, _ in objective.named_parameters())
    own = [parameter.detach().numpy() for parameter in parameters]
    weights = own[0] if own else np.zeros((0,))

    def by_loops(flat: np.ndarray, weight: np.ndarray) -> float:
        return oracle(points(flat), settings, (weight.T if columns else weight).tolist())

    embeddings = F.normalize(raw, dim=1) if objective.normalised else raw
    if isinstance(objective, Ranked):
        chosen = torch.tensor(TRIPLETS).T
        loss = objective.loss(embeddings, labels, Triplets(*chosen, torch.ones(len(TRIPLETS), dtype=torch.bool)))
    else:
        loss = objective(embeddings, labels)
    flat = raw.detach().numpy().copy()
    assert loss.item() == pytest.approx(by_loops(flat, weights), rel=1e-9)
    loss.backward()
    np.testing.assert_allclose(raw.grad, central(lambda v: by_loops(v, weights), flat), rtol=2e-5, atol=2e-6)
    assert float(raw.grad.abs().sum()) > 0
    if own:
        np.testing.assert_allclose(parameters[0].grad, central(lambda v: by_loops(flat, v), weights.copy()),
                                   rtol=2e-5, atol=2e-6)


def central(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    gradient = np.zeros_like(at)
    for place in np.ndindex(*at.shape):
        here = at[place]
        at[place] = here + step
        up = function(at)
        at[place] = here - step
        gradient[place] = (up - function(at)) / (2 * step)
        at[place] = here
    return gradient


ORACLES: dict[str, Callable[[Points, Any, Any], float]] = {
    "contrastive": contrastive, "triplet": triplet, "margin": margin, "snr": snr, "genlifted": genlifted,
    "npair": npair, "angular": angular, "histogram": histogram, "multisimilarity": multisimilarity, "supcon": supcon,
    "normsoftmax": normsoftmax, "cosface": cosface, "arcface": arcface, "proxynca": proxynca,
    "proxynca++": proxynca_pp, "proxyanchor": proxyanchor, "softtriple": softtriple, "hyp": hyp,
}


@pytest.mark.parametrize("name", ORACLES)
def test_the_loss_and_its_gradient_are_the_formula(name: str) -> None:
    agree(name, ORACLES[name])


@pytest.mark.parametrize(("name", "changes"), [
    ("triplet", {"squared": True}), ("margin", {"released_divisor": True}), ("margin", {"beta": 0.6}),
    ("histogram", {"nodes": 11}), ("hyp", {"radius": 0.5, "curvature": 1.0}), ("softtriple", {"centres": 2}),
    ("multisimilarity", {"epsilon": 0.0}), ("arcface", {"margin": 0.0})])
def test_settings_enter_the_formula_where_they_should(name: str, changes: dict[str, Any]) -> None:
    agree(name, ORACLES[name], **changes)


def test_every_objective_has_an_oracle() -> None:
    own = {"quadruplet", "curricularface", "triplet-xbm", "multisimilarity-xbm"}
    known = {methods.get(name).cls for name in (*ORACLES, *own)}
    for name in methods.names():
        entry = methods.get(name)
        if entry.cls.__module__.startswith("methods.") and issubclass(entry.cls, methods.Objective):
            assert any(issubclass(entry.cls, cls) for cls in known), f"{name} has no value test"


def test_quadruplet_by_loops() -> None:
    """Labels 0, 0, 1, 2: where the negative is of class 1 the fourth can only be the image of class 2, and back."""
    settings = settings_of("quadruplet")
    objective = methods.get("quadruplet").cls(settings, 3, DIM)
    raw = torch.tensor(raw_points(5, 4), requires_grad=True)
    fixed = [(0, 1, 2, 3), (1, 0, 3, 2)]
    chosen = torch.tensor([q[:3] for q in fixed] + [(2, 2, 0), (3, 3, 1)]).T
    valid = torch.tensor([True, True, False, False])
    loss = objective.loss(F.normalize(raw, dim=1), torch.tensor([0, 0, 1, 2]), Triplets(*chosen, valid))

    def by_loops(flat: np.ndarray) -> float:
        x = [unit(v) for v in flat.tolist()]
        return sum(hinge(dist(x[i], x[j]) - dist(x[i], x[k]) + settings.margin1)
                   + hinge(dist(x[i], x[j]) - dist(x[m], x[k]) + settings.margin2) for i, j, k, m in fixed) / 2

    flat = raw.detach().numpy().copy()
    assert loss.item() == pytest.approx(by_loops(flat))
    loss.backward()
    np.testing.assert_allclose(raw.grad, central(by_loops, flat), rtol=1e-5, atol=1e-6)


def test_curricularface_with_one_t_renewed_before_use() -> None:
    objective = methods.get("curricularface").cls(settings_of("curricularface"), CLASSES, DIM).double()
    for start in (0.0, 0.7):
        torch.manual_seed(0)
        twin = methods.get("curricularface").cls(settings_of("curricularface"), CLASSES, DIM).double()
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        x = [unit(v) for v in raw_points().tolist()]
        own = [dot(x[i], unit(twin.proxies[LABELS[i]].tolist())) for i in range(len(x))]
        t = 0.99 * start + 0.01 * sum(own) / len(own)
        agree("curricularface", curricularface_at(lambda c, t=t: t), prepare=lambda o, start=start: o.t.fill_(start))
    objective(F.normalize(torch.tensor(raw_points()), dim=1), torch.tensor(LABELS))
    assert objective.t.shape == (1,)
    assert float(objective.t) != 0


def test_curricularface_per_class_renews_after_the_loss_and_only_classes_it_saw() -> None:
    start = [0.125, 0.25, 0.375, 0.5]
    agree("curricularface", curricularface_at(lambda c: start[c]), per_class_released=True,
          prepare=lambda o: o.t.copy_(torch.tensor(start)))
    objective = methods.get("curricularface").cls(settings_of("curricularface", per_class_released=True), CLASSES, DIM)
    x, w = F.normalize(torch.randn(3, DIM), dim=1), F.normalize(objective.proxies.detach(), dim=1)
    objective(x, torch.tensor([2, 2, 0]))
    expected = [0.01 * float(x[2] @ w[0]), 0.0, 0.01 * float((x[0] + x[1]) @ w[2]) / 2, 0.0]
    assert objective.t.tolist() == pytest.approx(expected, abs=1e-6)


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


def on_circle(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], 1)


def test_margin_by_hand_from_angles() -> None:
    """Chords of 60 and 90 degrees are 1 and sqrt 2: [1 - 1.2 + .2]_+ = 0 and [1.2 - 1.414 + .2]_+ = 0, and so on."""
    objective = methods.get("margin").cls(settings_of("margin", margin=0.3), 2, 2).double()
    x, y = on_circle(0, 60, 90), torch.tensor([0, 0, 1])
    triplets = Triplets(*torch.tensor([(0, 1, 2), (1, 0, 2), (2, 2, 2)]).T, torch.tensor([True, True, False]))
    chord30 = 2 * math.sin(math.radians(15))
    expected = [1 - 1.2 + 0.3, 1.2 - math.sqrt(2) + 0.3, 1 - 1.2 + 0.3, 1.2 - chord30 + 0.3]
    assert objective.loss(x, y, triplets).item() == pytest.approx(sum(expected) / 4)


def test_arcface_by_hand_from_angles() -> None:
    """An embedding 30 degrees from its own centre and 90 from the other, with a margin of 30 degrees."""
    settings = settings_of("arcface", margin=math.pi / 6, scale=2.0)
    objective = methods.get("arcface").cls(settings, 2, 2).double()
    with torch.no_grad():
        objective.proxies.copy_(5 * on_circle(0, 120))
    loss = objective(on_circle(30), torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log(1 + math.exp(2 * 0) / math.exp(2 * 0.5)))


def test_the_same_as_pytorch_metric_learning_where_both_mean_the_same() -> None:
    from pytorch_metric_learning import losses

    x, y = F.normalize(torch.tensor(raw_points()), dim=1), torch.tensor(LABELS)
    torch.manual_seed(0)
    ours = methods.get("proxyanchor").cls(settings_of("proxyanchor"), CLASSES, DIM).double()
    theirs = losses.ProxyAnchorLoss(CLASSES, DIM).double()
    theirs.proxies.data.copy_(ours.proxies.data)
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item())

    ours = methods.get("proxynca++").cls(settings_of("proxynca++"), CLASSES, DIM).double()
    theirs = losses.ProxyNCALoss(CLASSES, DIM, softmax_scale=9).double()
    theirs.proxies.data.copy_(ours.proxies.data)
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item())

    ours = methods.get("margin").cls(settings_of("margin"), CLASSES, DIM).double()
    a, p, n = torch.tensor(TRIPLETS).T
    by_them = losses.MarginLoss(margin=0.2, beta=1.2)(x, y, (a, p, n))
    assert ours.loss(x, y, Triplets(a, p, n, torch.ones(len(a), dtype=torch.bool))).item() == pytest.approx(
        by_them.item())

    ours = methods.get("softtriple").cls(settings_of("softtriple", tau=0.0), CLASSES, DIM).double()
    theirs = losses.SoftTripleLoss(CLASSES, DIM).double()
    theirs.fc.data.copy_(ours.proxies.data.T)
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item())


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
