"""Ranking surrogates, retention and thresholds against literal loops and against pytorch-metric-learning."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import methods
from methods import MethodError
from methods.checks.example import Small, build, glyphs, optimise
from methods.layers import hierarchy
from tests.formulas import CLASSES, DIM, LABELS, dot, hinge, moebius, unit
from tests.formulas_modern import MODERN, circle_at, contextual_at, recall_of
from tests.test_methods_values import agree, central, raw_points, settings_of

SQUARE = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
"""As many classes as images of each, the only shape in which pytorch-metric-learning's SmoothAPLoss is right."""


def points(count: int = len(LABELS), seed: int = 3) -> torch.Tensor:
    """Unit vectors in float64."""
    return F.normalize(torch.tensor(np.random.default_rng(seed).normal(size=(count, DIM))), dim=1)


def objective(name: str, classes: int = CLASSES, **changes: Any) -> methods.Objective:
    torch.manual_seed(0)
    return methods.get(name).cls(settings_of(name, **changes), classes, DIM).double()


@pytest.mark.parametrize(("name", "changes"), [
    *(("pnp", {"variant": variant}) for variant in ("o", "iu", "ib", "ds")),
    *((name, {"itself_released": True}) for name in ("smoothap", "pnp", "recall-at-k", "roadmap")),
    ("smoothap", {"temperature": 0.3}), ("recall-at-k", {"k": (1, 3), "step": 0.5, "temperature": 0.2}),
    ("roadmap", {"weight": 0.0}), ("roadmap", {"delta": 0.2, "offset": 3.0}), ("subcenter-arcface", {"centres": 1})])
def test_settings_enter_the_formula_where_they_should(name: str, changes: dict[str, Any]) -> None:
    agree(name, MODERN[name], **changes)


@pytest.mark.parametrize(("name", "at"), [("circle", circle_at), ("contextual", contextual_at)])
def test_weights_and_steps_without_their_own_gradient(name: str, at: Any) -> None:
    agree(name, at([unit(v) for v in raw_points().tolist()]))


def test_smoothap_is_the_average_precision_of_scikit_learn_when_its_steps_are_sharp() -> None:
    from sklearn.metrics import average_precision_score

    x, y = points(12), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    expected = []
    for a in range(12):
        rest = [k for k in range(12) if k != a]
        expected.append(1 - average_precision_score((y[rest] == y[a]).numpy(), (x[rest] @ x[a]).numpy()))
    assert objective("smoothap", temperature=1e-7)(x, y).item() == pytest.approx(np.mean(expected), abs=1e-6)


def test_the_same_as_pytorch_metric_learning_where_both_mean_the_same() -> None:
    from pytorch_metric_learning import losses

    x, y = points(9), SQUARE
    assert objective("smoothap", itself_released=True)(x, y).item() == pytest.approx(losses.SmoothAPLoss()(x, y).item())
    assert objective("circle")(x, y).item() == pytest.approx(losses.CircleLoss()(x, y).item())
    for variant in ("o", "iu", "ib", "ds", "dq"):
        theirs = losses.PNPLoss(b=2, alpha=4, variant=variant.capitalize())
        ours = objective("pnp", variant=variant, alpha=4.0, itself_released=True)
        assert ours(x, y).item() == pytest.approx(theirs(x, y).item()), variant

    ours = objective("subcenter-arcface", 3)
    theirs = losses.SubCenterArcFaceLoss(num_classes=3, embedding_size=DIM, margin=math.degrees(0.5), scale=16)
    theirs.W.data = ours.proxies.detach().T.clone()
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item())


def test_an_unknown_variant_of_pnp_is_named() -> None:
    with pytest.raises(MethodError, match=r"pnp\.variant = 'du': there are o, iu"):
        objective("pnp", variant="du")


def test_similarity_mixup_adds_a_point_between_every_two_of_a_class() -> None:
    x, y = points(), torch.tensor(LABELS)
    loss = objective("recall-at-k", mix=True)
    torch.manual_seed(4)
    value = loss(x, y).item()
    torch.manual_seed(4)
    pairs = [(i, j) for i in range(len(LABELS)) for j in range(i + 1, len(LABELS)) if LABELS[i] == LABELS[j]]
    alpha = torch.rand(len(pairs), 1, dtype=torch.float64)[:, 0].tolist()
    rows = x.tolist()
    more = [[a * u + (1 - a) * v for u, v in zip(rows[i], rows[j])] for (i, j), a in zip(pairs, alpha)]
    labels = LABELS + [LABELS[i] for i, _ in pairs]
    assert len(pairs) == 5
    assert value == pytest.approx(recall_of(rows + more, labels, loss.settings))


def parts(name: str, **changes: Any) -> tuple[methods.Method, float, float]:
    """A method on the small network after three steps, the loss of the glyphs, and its objective's share of that."""
    images, labels = glyphs()
    method = build(methods.get(name), **changes)
    optimise(method, images, labels, 3)
    loss = method.step(images, labels).loss.item()
    with torch.no_grad():
        return method, loss, method.objective(method.project(method.features(images)), labels).item()


def test_l2sp_is_the_squared_way_from_the_start() -> None:
    method, loss, base = parts("l2-sp", alpha=0.4, beta=0.2)
    torch.manual_seed(0)
    start = Small()
    way = sum(((p - q).double() ** 2).sum().item() for p, q in zip(method.backbone.parameters(), start.parameters()))
    last = sum((p.double() ** 2).sum().item() for p in method.embedding.parameters())
    assert way > 0
    assert loss == pytest.approx(base + 0.2 * way + 0.1 * last, rel=1e-5)


def test_ldifs_is_the_squared_way_of_the_directions_of_features() -> None:
    method, loss, base = parts("ldifs", weight=3.0)
    images, _ = glyphs()
    torch.manual_seed(0)
    start = Small()
    with torch.no_grad():
        now, then = method.backbone(images).double().numpy(), start(images).double().numpy()
    cosine = (now * then).sum(1) / np.linalg.norm(now, axis=1) / np.linalg.norm(then, axis=1)
    assert cosine.min() < 1 - 1e-6
    assert loss == pytest.approx(base + 3 * np.mean(2 - 2 * cosine), rel=1e-4)
    assert not method.train().start.training


def test_lpft_leaves_the_backbone_alone_until_the_probe_is_over() -> None:
    images, labels = glyphs()
    method = build(methods.get("lp-ft"), probe=2)
    first, last = next(method.backbone.parameters()), method.embedding.weight  # type: ignore[union-attr]
    method.train()
    assert not method.backbone.training
    history = [(first.detach().clone(), last.detach().clone())]
    for _ in range(4):
        optimise(method, images, labels, 1)
        history.append((first.detach().clone(), last.detach().clone()))
    moved = [[not torch.equal(a, b) for a, b in zip(before, after)] for before, after in itertools.pairwise(history)]
    assert moved == [[False, True], [False, True], [True, True], [True, True]]
    assert method.backbone.training
    assert not method.eval().backbone.training


def test_tcm_is_that_of_pytorch_metric_learning_on_top_of_its_base() -> None:
    from pytorch_metric_learning.losses import ThresholdConsistentMarginLoss

    images, labels = glyphs()
    method, loss, base = parts("tcm")
    with torch.no_grad():
        theirs = ThresholdConsistentMarginLoss()(method.embed(images), labels).item()
    assert theirs > 0
    assert loss == pytest.approx(base + theirs, rel=1e-4)


@pytest.mark.parametrize("plain", [False, True])
def test_anticollapse_by_the_determinant_over_classes(plain: bool) -> None:
    """log det(I + s P P^T) with a row for each class in the batch; the method takes that of P^T P."""
    images, labels = glyphs()
    method = build(methods.get("anti-collapse"), plain=plain)
    few, those = images[4:16], labels[4:16]
    loss = method.step(few, those).loss.item()
    proxies = method.objective.proxies.detach().double().numpy()[[1, 2, 3]]  # type: ignore[operator]
    proxies /= np.linalg.norm(proxies, axis=1, keepdims=True)
    rate = 0.5 * np.log(np.linalg.det(np.eye(3) + 3 / (8 * 0.5) * proxies @ proxies.T))
    with torch.no_grad():
        base = method.objective(method.project(method.features(few)), those).item()
    assert loss == pytest.approx(0.0035 * base + (-rate if plain else math.exp(-rate)), rel=1e-5)


def test_anticollapse_of_a_base_without_proxies_is_of_the_embeddings() -> None:
    images, labels = glyphs()
    method = build(methods.get("anti-collapse:multisimilarity"))
    loss = method.step(images, labels).loss.item()
    with torch.no_grad():
        x = method.embed(images).double().numpy()
        base = method.objective(method.embed(images), labels).item()
    rate = 0.5 * np.linalg.slogdet(np.eye(24) + 24 / (8 * 0.5) * x @ x.T)[1]
    assert loss == pytest.approx(0.0035 * base + math.exp(-rate), rel=1e-4)


def test_bases_of_every_kind_carry_the_terms() -> None:
    images, labels = glyphs()
    for name in ("l2-sp", "ldifs", "lp-ft", "tcm", "anti-collapse"):
        for base in ("margin", "arcface", "hyp", "softtriple"):
            assert torch.isfinite(build(methods.get(f"{name}:{base}")).step(images, labels).loss), (name, base)



def hyperbolic(rows: list[list[float]], s: Any) -> list[list[float]]:
    """Distances of every two points in the ball, by Moebius sums."""
    def into_ball(v: list[float]) -> list[float]:
        length = math.sqrt(dot(v, v))
        v = [a * min(1.0, s.radius / length) for a in v]
        length = math.sqrt(s.curvature * dot(v, v))
        return [math.tanh(length) * a / length for a in v]

    balls = [into_ball(v) for v in rows]
    gaps = [[moebius([-a for a in u], v, s.curvature) for v in balls] for u in balls]
    root = math.sqrt(s.curvature)
    return [[2 / root * math.atanh(root * math.sqrt(dot(g, g))) for g in row] for row in gaps]


def test_hier_by_loops_where_ancestors_are_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a temperature near zero the drawn ancestor of two is the proxy whose larger distance to them is least."""
    s = settings_of("hier", proxies=12, temperature=1e-7, margin=0.5)
    torch.manual_seed(2)
    loss_of = hierarchy.Hierarchy(s, CLASSES, DIM).double()
    above = loss_of.proxies.detach().numpy().copy()

    def ancestor(far: list[list[float]], *rows: int) -> int:
        return min(range(12), key=lambda c: max(far[row][c] for row in rows))

    # two proxies are as near to each other's as to their own: those with a third between them have one ancestor
    table = hyperbolic(above.tolist(), s)
    clear = [(i, j, m) for i, j, m in itertools.permutations(range(12), 3) if ancestor(table, i, j) not in (i, j)
             and ancestor(table, i, j, m) not in (i, j, m) and ancestor(table, i, j) != ancestor(table, i, j, m)]
    chosen = [[(0, 1, 2), (1, 0, 6), (4, 5, 1), (7, 2, 3)], clear[:3]]
    valid = [[True, True, True, False], [True, True, True]]
    pending = iter([(*torch.tensor(c).T, torch.tensor(v)) for c, v in zip(chosen, valid)] * 2)
    monkeypatch.setattr(hierarchy, "triplets", lambda *_: next(pending))
    raw = torch.tensor(raw_points(), requires_grad=True)
    loss = loss_of(raw, torch.tensor(LABELS))
    loss.backward()

    def by_loops(flat: np.ndarray, proxies: np.ndarray) -> float:
        rows = flat.reshape(-1, DIM).tolist()
        all_of_them = hyperbolic(rows + proxies.tolist(), s)
        total = 0.0
        for tables, those, counts in zip((all_of_them[:len(rows)], all_of_them[len(rows):]), chosen, valid):
            far = [row[len(rows):] for row in tables]
            terms = []
            for (i, j, m), counted in zip(those, counts):
                two, three = ancestor(far, i, j), ancestor(far, i, j, m)
                terms.append(counted * (two != three) * (
                    hinge(far[i][two] - far[i][three] + s.margin) + hinge(far[j][two] - far[j][three] + s.margin)
                    + hinge(far[m][three] - far[m][two] + s.margin)))
            total += sum(terms) / sum(counts)
        return total

    flat = raw.detach().numpy().copy()
    assert loss.item() > 0
    assert loss.item() == pytest.approx(by_loops(flat, above), rel=1e-8)
    for found, slope, at in ((raw.grad, central(lambda v: by_loops(v, above), flat), flat),
                             (loss_of.proxies.grad, central(lambda v: by_loops(flat, v), above), above)):
        np.testing.assert_allclose(found, riemannian(slope, at, s), rtol=1e-4, atol=1e-5)


def riemannian(slope: np.ndarray, at: np.ndarray, s: Any) -> np.ndarray:
    """Slopes at vectors that go into the ball, times (1 - c |x|^2)^2 / 4: c |x|^2 is tanh^2 of sqrt(c) |clip(v)|."""
    lengths = np.minimum(np.linalg.norm(at, axis=-1, keepdims=True), s.radius)
    return np.asarray(slope).reshape(at.shape) * (1 - np.tanh(math.sqrt(s.curvature) * lengths)**2)**2 / 4


def test_the_base_of_hier_has_riemannian_gradients_too() -> None:
    torch.manual_seed(0)
    method = methods.create("hier", "conv4", classes=CLASSES, dim=DIM, weight=0.0, proxies=12, neighbours=3)
    with torch.no_grad():
        method.embedding.weight.mul_(1000)  # every vector is clipped to the radius
    images, labels = torch.rand(len(LABELS), 3, 32, 32), torch.tensor(LABELS)
    method.step(images, labels).loss.backward()
    found = method.embedding.bias.grad.clone()
    method.zero_grad()
    method.objective(method(images), labels).backward()
    plain = method.embedding.bias.grad
    torch.testing.assert_close(found, plain * (1 - math.tanh(math.sqrt(0.1) * 2.3)**2)**2 / 4)
    assert plain.norm() > 0


def test_triplets_of_hier_are_mutual_neighbours_and_others() -> None:
    line = torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 100.0])
    torch.manual_seed(0)
    i, j, m, valid = hierarchy.triplets(-(line[:, None] - line[None, :]).abs(), 3, 40)
    groups = [{0, 1, 2}, {3, 4, 5}]
    for a, b, c, counts in zip(i.tolist(), j.tolist(), m.tolist(), valid.tolist()):
        assert counts == (a != 6)
        if counts:
            (own,) = [group for group in groups if a in group]
            assert b in own - {a}
            assert c not in own
    assert {(a, b) for a, b in zip(i.tolist(), j.tolist()) if a == 1} == {(1, 0), (1, 2)}
