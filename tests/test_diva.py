"""DiVA against literal loops: decorrelation, momentum encoder and queue, heads, and where their gradients go."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import methods
from methods import MethodError
from methods.backbones import Backbone
from methods.checks.example import Small, build, glyphs, optimise
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
        method = entry.build(Small(), 6, 32, entry.settings(keys=50, hidden=64, decorrelation=rho))
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


def test_distance_adapted_contrast_by_a_loop() -> None:
    torch.manual_seed(0)
    dim, temperature, cutoff, limit = 5, 0.3, 0.5, 1.4
    q, k = (F.normalize(torch.randn(3, dim), dim=1) for _ in range(2))
    queue = Queue(8, dim)
    queue.enqueue(F.normalize(torch.randn(6, dim), dim=1))
    total = 0.0
    for i in range(3):
        densities = []
        for n in range(6):
            d = max(math.dist(q[i].tolist(), queue.keys[n].tolist()), cutoff)
            inverse = d**(2 - dim) * (1 - d * d / 4)**(-(dim - 3) / 2)
            densities.append(inverse if math.dist(q[i].tolist(), queue.keys[n].tolist()) <= limit else 0.0)
        weights = [value / sum(densities) for value in densities]
        own = math.exp(float(q[i] @ k[i]) / temperature)
        others = sum(math.exp(w * float(q[i] @ queue.keys[n]) / temperature) for n, w in enumerate(weights))
        total -= math.log(own / (own + others)) / 3
    assert distance_adapted(q, k, queue, temperature, cutoff, limit).item() == pytest.approx(total, rel=1e-4)
    assert distance_adapted(q, k, Queue(8, dim), temperature, cutoff, limit).item() == 0


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
    torch.testing.assert_close(method.queue.keys[:len(images)], keys)
