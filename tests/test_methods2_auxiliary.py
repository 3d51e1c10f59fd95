"""S2SD, DiVA, Uniform Prior and CRT against literal loops, and where their gradients go."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax, softmax
from scipy.stats import entropy
from torch import nn

import methods
from methods import MethodError
from methods.crt import Aggregate, CodedResidual
from methods.parts.adversary import Decorrelation, Discriminator, reverse
from methods.parts.backbones import Backbone
from methods.parts.examples import small_cnn, small_vit
from methods.parts.miners import within_class
from methods.parts.momentum import Momentum, Queue, distance_adapted
from methods.s2sd import similarity_divergence
from tests.conformance import Small, build, glyphs, optimise, views

NAMES = ("s2sd", "diva", "uniform-prior", "crt")


def moved(name: str, **settings: object) -> methods.Method:
    entry = methods.get(name)
    torch.manual_seed(0)
    return entry.build(getattr(entry.cls, "example_backbone", Small)(), 6, 8, entry.settings(**{
        **getattr(entry.cls, "example_settings", {}), **settings}))


def test_divergence_is_scipy_s_over_rows() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, 5, 5))
    expected = 4.0 * np.mean([entropy(softmax(t / 2), softmax(s / 2)) for s, t in zip(source, target)])
    got = similarity_divergence(torch.tensor(source), torch.tensor(target), 2.0)
    assert got.item() == pytest.approx(expected)


def test_targets_get_no_gradient_from_the_source() -> None:
    source, target = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    similarity_divergence(source, target, 1.0).backward()
    assert source.grad is not None
    assert target.grad is None


def test_s2sd_loss_by_its_parts() -> None:
    """The whole loss from numpy similarities, with multi-similarity (nothing random) as the base."""
    images, labels = glyphs()
    entry = methods.get("s2sd:multisimilarity")
    torch.manual_seed(0)
    method = entry.build(small_cnn(), 6, 8, entry.settings(targets=(16, 24), temperature=0.5))
    loss = method.step(images, labels).loss.item()
    with torch.no_grad():
        maps = method.backbone.network.blocks(images)
        rich = maps.mean((2, 3)) + maps.amax((2, 3))
        source = F.normalize(method.embedding(method.backbone(images)), dim=1)
        targets = [F.normalize(t.layers(rich), dim=1) for t in method.targets]

    def divergence(of: torch.Tensor) -> float:
        teacher, taught = (x.numpy().astype(np.float64) @ x.numpy().T / 0.5 for x in (of, source))
        rows = softmax(teacher, 1) * (log_softmax(teacher, 1) - log_softmax(taught, 1))
        return 0.25 * rows.sum() / len(rows)

    others = np.mean([method.objective(t, labels).item() for t in targets])
    base = (method.objective(source, labels).item() + others) / 2
    expected = base + 50 * np.mean([divergence(t) for t in targets]) + 50 * divergence(F.normalize(rich, dim=1))
    assert loss == pytest.approx(expected, rel=1e-4)


def test_feature_distillation_waits() -> None:
    """With a delay of two steps the third has a further term."""
    images, labels = glyphs()
    entry = methods.get("s2sd:multisimilarity")
    losses = {}
    for delay in (0, 2):
        torch.manual_seed(0)
        method = entry.build(small_cnn(), 6, 8, entry.settings(targets=(16,), delay=delay))
        losses[delay] = []
        for _ in range(3):
            losses[delay].append(method.step(images, labels).loss.item())
            method.after_step()
    assert losses[2][0] < losses[0][0]
    assert losses[2][2] == losses[0][2]


def test_s2sd_settings_of_the_released_runs() -> None:
    sop = methods.get("s2sd").settings("sop")
    assert (sop.weight, sop.feature_weight, sop.pool, sop.delay) == (5.0, 5.0, False, 1000)
    torch.manual_seed(0)
    method = methods.get("s2sd").build(small_cnn(), 6, 8, methods.get("s2sd").settings("sop", targets=(4,)))
    assert method.targets[0].layers[0].in_features == small_cnn().dim
    # each target ranks with boundaries of its own, at the rate of the objective
    rates = {g["name"]: g["lr"] for g in method.groups(1e-5, 0.0)}
    assert rates["targets.0.objective.beta"] == rates["objective.beta"] == 5e-4


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
    method = moved("diva", keys=50)
    other = images.flip(3)
    method.step(torch.stack([images, other]), labels)
    keys = F.normalize(method.encoder(other)[:, 4:6], dim=1)
    torch.testing.assert_close(method.queue.keys[:len(images)], keys)


def test_discriminator_and_features_learn_against_each_other() -> None:
    torch.manual_seed(0)
    judge = Discriminator(4, 6)
    fake = torch.randn(10, 4, requires_grad=True)
    real = torch.rand(10, 4) * 2 - 1
    judge.fooling_loss(fake).backward()
    assert fake.grad is not None
    assert all(parameter.grad is None for parameter in judge.parameters())
    fake.grad = None
    own = judge.own_loss(real, fake)
    own.backward()
    assert fake.grad is None
    logits = torch.cat([judge(real), judge(fake)])
    truth = torch.cat([torch.ones(10), torch.zeros(10)])
    assert own.item() == pytest.approx(2 * F.binary_cross_entropy_with_logits(logits, truth).item(), rel=1e-5)
    assert judge.fooling_loss(fake).item() == pytest.approx(
        F.binary_cross_entropy(judge(fake).sigmoid(), torch.ones(10)).item(), rel=1e-4)


def test_the_discriminator_learns_only_every_so_often() -> None:
    images, labels = glyphs()
    method = moved("uniform-prior", every=3)
    groups = {group["name"]: group for group in method.groups(1e-3, 1e-4)}
    assert groups["discriminator"]["betas"] == (0.5, 0.999)
    assert groups["discriminator"]["weight_decay"] == 0
    optimiser = torch.optim.Adam(method.groups(1e-3, 1e-4), lr=1e-3)
    seen = []
    for _ in range(4):
        before = method.discriminator.layers[0].weight.detach().clone()
        optimiser.zero_grad()
        method.step(images, labels).loss.backward()
        optimiser.step()
        method.after_step()
        seen.append(not torch.equal(before, method.discriminator.layers[0].weight))
    assert seen == [True, False, False, True]


def test_features_are_cut_into_chunks_in_order() -> None:
    method = moved("uniform-prior", chunk=10)
    pieces = method.chunks(torch.arange(48.0).reshape(2, 24))
    assert pieces.tolist() == [[float(i) for i in range(s, s + 10)] for s in (0, 10, 24, 34)]


def test_coded_residuals_by_a_loop_in_double() -> None:
    torch.manual_seed(0)
    b, n, width, k, hidden, dim = 2, 3, 4, 5, 6, 7
    coding, last = CodedResidual(k, width, hidden).double(), Aggregate(k, hidden, dim).double()
    nn.init.normal_(coding.prototypes)
    x = torch.randn(b, n, width, dtype=torch.double)
    c = coding.prototypes.detach()
    for i in range(b):
        f = torch.zeros(dim, dtype=torch.double)
        for a in range(k):
            r = torch.zeros(width, dtype=torch.double)
            for j in range(n):
                r += math.log(1 + math.exp(float(x[i, j] @ c[a]))) * (x[i, j] - c[a])
            inner = F.gelu(r @ coding.inner.weight[a] + coding.inner.bias[a, 0])
            f += (inner @ last.outer.weight[a] + last.outer.bias[a, 0]) / k
        torch.testing.assert_close(last(coding(x).flatten(1))[i], f)


def test_diversity_and_consistency_by_loops() -> None:
    torch.manual_seed(0)
    coding = CodedResidual(4, 3, 2).double()
    nn.init.normal_(coding.prototypes)
    c = coding.prototypes.detach().numpy()
    expected = sum(abs(c[i] @ c[j]) / np.linalg.norm(c[i]) / np.linalg.norm(c[j])
                   for i in range(4) for j in range(4) if i != j) / 12
    assert coding.diversity().item() == pytest.approx(expected)
    images, labels = glyphs()
    method = moved("crt")
    with torch.no_grad():
        loss = method.step(images, labels).loss.item()
        places = method.backbone(images, local=True)[1]
        f1 = F.normalize(method.embedding(method.coding(places).flatten(1)), dim=1)
        f2 = F.normalize(method.wide_embedding(method.wide_coding(places).flatten(1)), dim=1)
        gap = np.mean([[abs(float(f1[i] @ f1[j] - f2[i] @ f2[j])) for j in range(len(labels))]
                       for i in range(len(labels))])
        expected = float(method.coding.diversity() + method.wide_coding.diversity()
                         + method.objective(f1, labels) + 0.1 * method.objective(f2, labels)) + 0.9 * gap
    assert loss == pytest.approx(expected, rel=1e-4)


def test_crt_reads_maps_of_both_kinds() -> None:
    """Places of a convolutional map in order, and the patches of a transformer without its class token."""
    images = torch.randn(2, 3, 32, 32)
    cnn = small_cnn()
    pooled, places = cnn(images, local=True)
    maps = cnn.network.blocks(images)
    assert torch.equal(places[1, 2], maps[1, :, 0, 2])
    assert torch.equal(pooled, cnn(images))
    vit = small_vit().eval()
    pooled, places = vit(images, local=True)
    tokens = vit.network.forward_features(images)
    torch.testing.assert_close(places, tokens[:, 1:])
    torch.testing.assert_close(pooled, vit(images))
    for backbone in (cnn, vit):
        method = methods.get("crt").build(backbone, 6, 8)
        assert method.embed(images).shape == (2, 8)


@pytest.mark.parametrize("name", ["s2sd", "crt"])
def test_a_backbone_without_maps_is_refused_in_a_line(name: str) -> None:
    assert methods.get(name).fits("conv4") == methods.get(name).fits("vit_small") == ""
    with pytest.raises(MethodError, match="works on the last map"):
        methods.get(name).build(Small(), 6, 8)


@pytest.mark.parametrize("name", NAMES)
def test_what_serves_training_alone_is_not_needed_in_search(name: str) -> None:
    """Embeddings of the trained method do not change when everything but the backbone and the last layer is lost."""
    images, labels = glyphs()
    method = build(methods.get(name))
    optimise(method, images, labels, 2)
    before = method.eval().embed(images)
    kept = ("backbone", "embedding", "coding")
    for part, module in method.named_children():
        if part not in kept:
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
    assert torch.equal(method.embed(images), before)
    assert method.step(views(method, images), labels).embeddings.shape[0] == len(images)
