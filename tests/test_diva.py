"""DiVA against literal loops: decorrelation, momentum encoder and queue, heads, and where their gradients go."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import methods
from methods import MethodError, diva
from methods.backbones import Backbone
from methods.checks.example import Small, build, glyphs, optimise
from methods.layers import momentum
from methods.layers.adversary import Decorrelation, reverse
from methods.layers.momentum import Momentum, Queue, distance_adapted
from methods.parts.miners import within_class


def test_reversal_turns_the_sign() -> None:
    """The network above learns for the loss, what stands below against it."""
    torch.manual_seed(0)
    weight, x = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    (weight * reverse(x)).sum().backward()
    assert torch.equal(weight.grad, x.detach())
    assert torch.equal(x.grad, -weight.detach())


def test_decorrelation_by_a_loop_and_its_two_players() -> None:
    torch.manual_seed(0)
    separator = Decorrelation(3, 5).double()
    target, source = (F.normalize(torch.randn(4, 3, dtype=torch.double), dim=1).requires_grad_() for _ in range(2))
    loss = separator(target, source)
    total = 0.0
    for i in range(4):
        guess = separator.layers(source[i])
        guess = guess / guess.norm()
        total += sum((target[i, d] * guess[d]).item()**2 for d in range(3))
    assert loss.item() == pytest.approx(-total / 12)
    loss.backward()
    step = 1e-3
    # the network's step along its gradient lowers the loss (more is shared), the embeddings' raises it
    with torch.no_grad():
        for parameter in separator.parameters():
            parameter -= step * parameter.grad
    assert separator(target, source) < loss
    with torch.no_grad():
        for parameter in separator.parameters():
            parameter += step * parameter.grad
        assert separator(target - step * target.grad, source - step * source.grad) > loss


def decorrelation_share(dim: int, **settings: object) -> float:
    """What the adversaries add to DiVA's loss, over heads that point anywhere: from the steps with and without them."""
    entry = methods.get("diva")
    torch.manual_seed(0)
    method = entry.build(Random(), 8, dim, entry.settings(keys=600, hidden=16, **settings))
    without = entry.build(Random(), 8, dim, entry.settings(keys=600, hidden=16, decorrelation=0.0))
    without.load_state_dict(method.state_dict())
    images, labels = torch.randn(2, 512, 3, 4, 4), torch.arange(512) % 8
    losses = []
    for one in (method, without):
        torch.manual_seed(1)
        losses.append(one.step(images, labels).loss.item())
    return losses[1] - losses[0]


class Random(nn.Module):
    """Features that are the pixels: with normal pixels the heads are spread over the sphere."""

    dim = 48

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)


def test_decorrelation_weighs_the_same_in_heads_of_any_width() -> None:
    """Of two independent unit vectors, E (a_i b_i)^2 = 1/d^2: without the factor, 32 numbers weigh 16 times 128."""
    shares = {dim: decorrelation_share(dim) for dim in (128, 512)}
    # three adversaries whose guesses are independent of the heads, as published for 4 x 128: rho 3 / 128^2
    assert shares[512] == pytest.approx(1500 * 3 / 128**2, rel=0.3)
    assert shares[128] == pytest.approx(shares[512], rel=0.3)


def test_decorrelation_at_the_published_width_is_the_published_one() -> None:
    """4 x 128 numbers: rho times the mean over batch and numbers, summed over three adversaries in numpy."""
    entry = methods.get("diva")
    torch.manual_seed(0)
    method = entry.build(Random(), 8, 512, entry.settings(keys=600, hidden=16))
    images, labels = torch.randn(2, 64, 3, 4, 4), torch.arange(64) % 8
    with torch.no_grad():
        heads = method.embedding(images[0].flatten(1)).numpy().astype(np.float64).reshape(64, 4, 128)
        heads /= np.linalg.norm(heads, axis=2, keepdims=True)
        expected = 0.0
        for place, name in enumerate(("shared", "selfsimilarity", "intra"), start=1):
            first, _, second = method.separators[name].layers
            hidden = np.maximum(heads[:, place] @ first.weight.numpy().T + first.bias.numpy(), 0)
            guess = hidden @ second.weight.numpy().T + second.bias.numpy()
            guess /= np.linalg.norm(guess, axis=1, keepdims=True)
            expected += 1500 * ((heads[:, 0] * guess)**2).mean()
        without = entry.build(Random(), 8, 512, entry.settings(keys=600, hidden=16, decorrelation=0.0))
        without.load_state_dict(method.state_dict())
        losses = []
        for one in (method, without):
            torch.manual_seed(1)
            losses.append(one.step(images, labels).loss.item())
    assert losses[1] - losses[0] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_diva_does_not_shrink_narrow_heads_to_a_point(seed: int) -> None:
    """Heads of 8 numbers: the published rho lets the classes come apart, 256 times that (no factor) holds them."""
    images, labels = glyphs()
    entry = methods.get("diva")
    same = labels[:, None] == labels[None, :]
    gaps = []
    for rho in (1500.0, 1500.0 * (128 / 8)**2):
        torch.manual_seed(seed)
        # boundaries at the papers' 5e-4: 50 times a rate from scratch would throw them about
        method = entry.build(Small(), 6, 32, entry.settings(keys=50, hidden=64, decorrelation=rho),
                             methods.get("margin").settings(beta_rate=5e-4 / 3e-3))
        optimise(method, images, labels, 40, lr=3e-3)
        with torch.no_grad():
            head = method.eval().heads(method.features(images))["discriminative"]
        cosines = head @ head.T
        gaps.append(float(cosines[same].mean() - cosines[~same].mean()))
    assert gaps[0] > 0.05
    assert gaps[1] < 0.02


def test_queue_is_a_ring_and_travels() -> None:
    queue = Queue(5, 1)
    for start in (0, 3, 6):
        queue.enqueue(torch.arange(start, start + 3).float()[:, None])
    assert sorted(queue.keys[:, 0].tolist()) == [4, 5, 6, 7, 8]
    twin = Queue(5, 1)
    twin.load_state_dict(queue.state_dict())
    for one in (queue, twin):
        one.enqueue(torch.tensor([[9.0]]))
    assert torch.equal(queue.keys, twin.keys)
    assert 4 not in queue.keys
    with pytest.raises(MethodError, match="smaller than a batch"):
        queue.enqueue(torch.zeros(6, 1))


@pytest.mark.parametrize("by_key", [False, True])
def test_distance_adapted_contrast_by_a_loop(by_key: bool) -> None:
    """Weights add up to one for each query over the keys; in ooDML for each key over the queries, where any is near."""
    torch.manual_seed(0)
    dim, temperature, cutoff, limit = 5, 0.3, 0.5, 1.4
    q, k = (F.normalize(torch.randn(3, dim), dim=1) for _ in range(2))
    queue = Queue(8, dim)
    queue.enqueue(F.normalize(torch.randn(6, dim), dim=1))
    inverse = np.zeros((3, 6))
    for i in range(3):
        for n in range(6):
            distance = math.dist(q[i].tolist(), queue.keys[n].tolist())
            d = max(distance, cutoff)
            inverse[i, n] = d**(2 - dim) * (1 - d * d / 4)**(-(dim - 3) / 2) if distance <= limit else 0.0
    sums = inverse.sum(0 if by_key else 1, keepdims=True)
    weights = np.divide(inverse, sums, out=np.zeros_like(inverse), where=sums > 0)
    total = 0.0
    for i in range(3):
        own = math.exp(float(q[i] @ k[i]) / temperature)
        others = sum(math.exp(weights[i, n] * float(q[i] @ queue.keys[n]) / temperature) for n in range(6))
        total -= math.log(own / (own + others)) / 3
    loss = distance_adapted(q, k, queue, temperature, cutoff, limit, by_key=by_key).item()
    assert loss == pytest.approx(total, rel=1e-4)
    other = distance_adapted(q, k, queue, temperature, cutoff, limit, by_key=not by_key).item()
    assert other != pytest.approx(total, rel=1e-4)
    assert distance_adapted(q, k, Queue(8, dim), temperature, cutoff, limit, by_key=by_key).item() == 0


def test_weights_by_key_add_up_to_one_over_the_queries_that_are_near() -> None:
    torch.manual_seed(0)
    density, allowed = torch.randn(7, 9), torch.rand(7, 9) < 0.5
    allowed[:, 4] = False
    weights = momentum._softmax(density, allowed, dim=0)
    assert not weights[~allowed].any()
    torch.testing.assert_close(weights.sum(0), allowed.any(0).float())


@pytest.mark.parametrize("released", [True, False])
def test_diva_weighs_its_queue_by_key_as_released(released: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(diva, "distance_adapted", lambda *_, by_key: asked.append(by_key) or torch.zeros(()))
    entry = methods.get("diva")
    changes = {} if released else {"weights_by_key_released": False}
    method = entry.build(Random(), 8, 16, entry.settings(keys=50, hidden=8, **changes))
    method.step(torch.randn(2, 16, 3, 4, 4), torch.arange(16) % 8)
    assert asked == [released]


@pytest.mark.parametrize(("name", "released"), [("margin", True), ("margin", False), ("r-margin", True)])
def test_the_released_divisor_counts_triplets_with_an_active_pair(name: str, released: bool) -> None:
    """Pair by pair over mined triplets, among them some with two active pairs, with one and with none."""
    torch.manual_seed(0)
    entry = methods.get(name)
    objective = entry.cls(entry.settings(released_divisor=released, limit=2.0), 5, 3)
    with torch.no_grad():
        objective.beta += 0.5 * torch.randn(5)
    labels = torch.arange(40) % 5
    points = F.normalize(torch.randn(40, 3), dim=1)
    triplets = objective.mine(points, labels)
    total, pairs, active = 0.0, 0, []
    for a, p, n, valid in zip(*(column.tolist() for column in triplets)):
        near, far = (math.dist(points[a].tolist(), points[other].tolist()) for other in (p, n))
        beta = objective.beta[labels[a]].item()
        terms = [max(near - beta + 0.2, 0.0), max(beta - far + 0.2, 0.0)] if valid else [0.0, 0.0]
        total += sum(terms)
        active.append(sum(term > 1e-6 for term in terms))
        pairs += active[-1]
    assert {*active} == {0, 1, 2}
    divisor = sum(count > 0 for count in active) if released else pairs
    assert objective.loss(points, labels, triplets).item() == pytest.approx(total / divisor, rel=1e-4)


@pytest.mark.parametrize("head", ["shared", "intra"])
def test_triplets_of_permuted_labels_keep_the_boundary_of_the_anchor_s_own_class(head: str) -> None:
    """As released: the permutation picks what is ranked, the true class of the anchor has the boundary."""
    entry = methods.get("diva")
    method = entry.build(Random(), 6, 16, entry.settings(keys=50, hidden=8))
    objective = method.others[head]
    labels = torch.arange(24) % 6
    with torch.no_grad():
        objective.beta.copy_(torch.linspace(0.4, 1.6, 6))
    torch.manual_seed(3)
    points = F.normalize(torch.randn(24, 4), dim=1)
    torch.manual_seed(4)
    loss = (method._intra(points, labels) if head == "intra" else method._permuted(head, points, labels)).item()
    torch.manual_seed(4)
    permuted = labels[torch.rand(24).argsort()]
    triplets = objective.mine(points, permuted)
    assert not torch.equal(permuted, labels)
    assert torch.equal(permuted[triplets.anchor], permuted[triplets.positive])
    expected = {}
    for kind, classes in (("own", labels), ("permuted", permuted)):
        terms = []
        for a, p, n, valid in zip(*(column.tolist() for column in triplets)):
            near, far = (math.dist(points[a].tolist(), points[other].tolist()) for other in (p, n))
            beta = objective.beta[classes[a]].item()
            terms += [near - beta + 0.2, beta - far + 0.2] if valid else []
        expected[kind] = sum(term for term in terms if term > 0) / sum(term > 0 for term in terms)
    assert loss == pytest.approx(expected["own"], rel=1e-4)
    assert loss != pytest.approx(expected["permuted"], rel=1e-2)


def test_intra_within_a_class_is_the_paper_s() -> None:
    entry = methods.get("diva")
    method = entry.build(Random(), 6, 16, entry.settings(keys=50, hidden=8, permuted_intra_released=False))
    labels, points = torch.arange(24) % 6, F.normalize(torch.randn(24, 4), dim=1)
    torch.manual_seed(4)
    loss = method._intra(points, labels)
    torch.manual_seed(4)
    assert loss == method.others["intra"].loss(points, labels, within_class(points, labels))


def test_momentum_encoder_follows_slowly_and_is_no_parameter() -> None:
    source = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    slow = Momentum(source, 0.9)
    assert not list(slow.parameters())
    before = source[0].weight.detach().clone()
    with torch.no_grad():
        source[0].weight += 1
    slow.follow(source)
    torch.testing.assert_close(slow.network[0].weight, before + 0.1)


@pytest.mark.parametrize("frozen_norm", [False, True])
def test_query_and_key_of_one_picture_start_equal(frozen_norm: bool) -> None:
    """Also in training, whether batch normalisation takes the batch's statistics or frozen ones."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    layers.num_features = 4
    backbone = Backbone("tiny", layers, 4, (0.0,) * 3, (1.0,) * 3, frozen_norm=frozen_norm)
    method = methods.get("diva").build(backbone, 6, 16, methods.get("diva").settings(keys=50)).train()
    assert layers[1].training is not frozen_norm
    images = 3 + 2 * torch.randn(8, 3, 6, 6)
    keys = method.encoder(images)
    torch.testing.assert_close(keys, method.embedding(method.features(images)).detach())
    assert not keys.requires_grad


def test_diva_searches_with_the_weighted_heads() -> None:
    images, _ = glyphs()
    entry = methods.get("diva")
    torch.manual_seed(0)
    method = entry.build(Small(), 6, 8, entry.settings("cub", keys=50)).eval()
    z = method.embedding(method.backbone(images)).detach().numpy().reshape(len(images), 4, 2)
    heads = z / np.linalg.norm(z, axis=2, keepdims=True)
    joined = (heads * np.array([0.75, 1.25, 1.25, 1.25])[None, :, None]).reshape(len(images), 8)
    joined /= np.linalg.norm(joined, axis=1, keepdims=True)
    np.testing.assert_allclose(method.embed(images).detach().numpy(), joined, rtol=1e-4, atol=1e-6)


def test_diva_refuses_what_it_cannot_cut_or_rank() -> None:
    entry = methods.get("diva")
    with pytest.raises(MethodError, match="set dim=8"):
        entry.build(Small(), 6, 10)
    with pytest.raises(MethodError, match="must be a triplet objective"):
        methods.get("diva:arcface").build(Small(), 6, 8)


def test_triplets_within_a_class() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1, 2])
    drawn = within_class(torch.randn(6, 2), labels)
    assert torch.equal(labels[drawn.positive], labels)
    assert torch.equal(labels[drawn.negative], labels)
    assert drawn.valid.tolist() == [True] * 5 + [False]


def test_the_second_view_makes_the_keys() -> None:
    """DiVA's queue holds what the momentum encoder makes of the second augmentation."""
    images, labels = glyphs()
    method = build(methods.get("diva"), keys=50)
    other = images.flip(3)
    method.step(torch.stack([images, other]), labels)
    keys = F.normalize(method.encoder(other)[:, 4:6], dim=1)
    assert not method.queue.filled.any(), "not before the backward pass, which needs the keys that were there"
    method.after_step()
    torch.testing.assert_close(method.queue.keys[:len(images)], keys)
