"""Every objective against the paper's formula written out in loops, in float64: the loss, and its gradient.

The formulas are in `formulas.py`. Gradients are compared with central differences of the formula, through the
normalisation of the embedding where the objective wants it normalised.
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
from tests.formulas import CLASSES, DIM, LABELS, ORACLES, TRIPLETS, Points, curricularface_at, dist, dot, hinge, unit
from tests.formulas_modern import MODERN


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


@pytest.mark.parametrize("name", [*ORACLES, *MODERN])
def test_the_loss_and_its_gradient_are_the_formula(name: str) -> None:
    agree(name, (ORACLES | MODERN)[name])


@pytest.mark.parametrize(("name", "changes"), [
    ("triplet", {"squared": True}), ("margin", {"released_divisor": True}), ("margin", {"beta": 0.6}),
    ("histogram", {"nodes": 11}), ("hyp", {"radius": 0.5, "curvature": 1.0}),
    ("hyp", {"pairs_released": True}), ("softtriple", {"centres": 2}),
    ("multisimilarity", {"epsilon": 0.0}), ("arcface", {"margin": 0.0}),
    ("arcface", {"positive_cosines_released": True})])
def test_settings_enter_the_formula_where_they_should(name: str, changes: dict[str, Any]) -> None:
    agree(name, ORACLES[name], **changes)


def test_every_objective_has_an_oracle() -> None:
    own = {"quadruplet", "curricularface", "triplet-xbm", "multisimilarity-xbm", "circle", "contextual"}
    known = {methods.get(name).cls for name in (*ORACLES, *MODERN, *own)}
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
