"""S2SD, Uniform Prior and CRT against literal loops, and where their gradients go."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from scipy.special import log_softmax, softmax
from scipy.stats import entropy
from torch import nn

import methods
from methods import MethodError
from methods.backbones.examples import small_cnn, small_vit
from methods.checks.example import Small, build, glyphs, optimise, views
from methods.crt import Aggregate, CodedResidual
from methods.layers.adversary import Discriminator
from methods.s2sd import similarity_divergence

NAMES = ("s2sd", "diva", "uniform-prior", "crt")


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
    # each target ranks with boundaries of its own, all at the network's rate
    rates = {g["name"]: g["lr"] for g in method.groups(3e-4, 0.0)}
    assert rates["targets.0.objective.beta"] == rates["objective.beta"] == rates["backbone"] == 3e-4


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


@pytest.mark.parametrize("saturating", [False, True])
def test_a_discriminator_of_the_released_code_learns_nothing_from_what_fools_it_entirely(saturating: bool) -> None:
    """Against its formula in double, and where a float32 sigmoid is 1: there the released loss is 100, its slope 0."""
    judge = build(methods.get("uniform-prior"), saturating_released=saturating).discriminator
    for logit in (-20.0, -3.0, 0.0, 5.0, 8.0, 20.0):
        fakes = torch.full((4, judge.layers[0].in_features), 0.5)
        with torch.no_grad():
            judge.layers[-1].weight.zero_()
            judge.layers[-1].bias.fill_(logit)
        judge.zero_grad()
        loss = judge.own_loss(fakes, fakes)
        loss.backward()
        lost = math.log1p(math.exp(-logit)), 100.0 if saturating and logit > 17 else math.log1p(math.exp(logit))
        assert loss.item() == pytest.approx(sum(lost), rel=1e-3)
        slope = (0.0 if saturating and logit > 17 else 1 / (1 + math.exp(-logit))) - 1 / (1 + math.exp(logit))
        assert judge.layers[-1].bias.grad.item() == pytest.approx(slope, abs=1e-4)


def test_the_discriminator_learns_only_every_so_often() -> None:
    images, labels = glyphs()
    method = build(methods.get("uniform-prior"), every=3)
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
    method = build(methods.get("uniform-prior"), chunk=10)
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
    method = build(methods.get("crt"))
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


def gamma_by_loops(coding: CodedResidual, last: Aggregate, places: torch.Tensor) -> torch.Tensor:
    """f = 1/K sum_k Gamma(r_k) with one network for all prototypes, k by k."""
    c = coding.prototypes.detach()
    first, final = coding.inner, last.outer
    assert len(first.weight) == len(final.weight) == 1
    rows = []
    for x in places:
        total = torch.zeros(final.weight.shape[-1], dtype=places.dtype)
        for k in range(len(c)):
            r = sum((math.log(1 + math.exp(float(x[j] @ c[k]))) * (x[j] - c[k]) for j in range(len(x))),
                    torch.zeros(x.shape[1], dtype=places.dtype))
            total += F.gelu(r @ first.weight[0] + first.bias[0, 0]) @ final.weight[0] + final.bias[0, 0]
        rows.append(total / len(c))
    return torch.stack(rows)


def test_one_gamma_for_all_prototypes_by_a_loop() -> None:
    """Table 7: other prototypes, the same network."""
    torch.manual_seed(0)
    coding, last = CodedResidual(5, 4, 6, shared=True).double(), Aggregate(5, 6, 7, shared=True).double()
    nn.init.normal_(coding.prototypes)
    places = torch.randn(2, 3, 4, dtype=torch.double)
    torch.testing.assert_close(last(coding(places).flatten(1)), gamma_by_loops(coding, last, places).detach())
    method = build(methods.get("crt"), shared_gamma=True)
    assert {len(part.weight) for part in (method.coding.inner, method.embedding.outer, method.wide_coding.inner,
                                          method.wide_embedding.outer)} == {1}
    assert len(method.coding.prototypes) == 5
    assert len(method.wide_coding.prototypes) == 6


def losses_of_branches(method: Any, first: torch.Tensor, second: torch.Tensor, labels: torch.Tensor) -> float:
    """lambda_1 and lambda_1' of the base objective and lambda_2 of the gap, pair by pair."""
    f1, f2 = F.normalize(first, dim=1), F.normalize(second, dim=1)
    gap = np.mean([[abs(float(f1[i] @ f1[j] - f2[i] @ f2[j])) for j in range(len(labels))] for i in range(len(labels))])
    return float(method.objective(f1, labels) + 0.1 * method.objective(f2, labels)) + 0.9 * float(gap)


def test_branches_that_share_all_but_their_last_layers() -> None:
    """Tables 9 and 10: K_2 prototypes for both, counted once in the diversity; fewer parameters, two embeddings."""
    images, labels = glyphs()
    method, apart = build(methods.get("crt"), shared_branches=True), build(methods.get("crt"))
    assert not [name for name in method.state_dict() if name.startswith("wide_coding")]
    assert len(method.coding.prototypes) == 6
    count = {kind: sum(p.numel() for p in one.parameters()) for kind, one in (("one", method), ("two", apart))}
    assert count["one"] < count["two"]
    with torch.no_grad():
        loss = method.step(images, labels).loss.item()
        hidden = method.coding(method.backbone(images, local=True)[1]).flatten(1)
        expected = losses_of_branches(method, method.embedding(hidden), method.wide_embedding(hidden), labels)
        assert loss == pytest.approx(expected + float(method.coding.diversity()), rel=1e-4)
        torch.testing.assert_close(method.embed(images), F.normalize(method.embedding(hidden), dim=1))


def test_consistency_without_coded_residuals() -> None:
    """Table 6, without CRT: two linear layers on the pooled features, and their similarities are to agree."""
    images, labels = glyphs()
    method = build(methods.get("crt"), coded=False)
    assert {name.partition(".")[0] for name in method.state_dict()} == {"backbone", "embedding", "wide_embedding"}
    with torch.no_grad():
        loss = method.step(images, labels).loss.item()
        pooled = method.backbone(images)
        first = pooled @ method.embedding.weight.T + method.embedding.bias
        second = pooled @ method.wide_embedding.weight.T + method.wide_embedding.bias
        assert loss == pytest.approx(losses_of_branches(method, first, second, labels), rel=1e-4)
        torch.testing.assert_close(method.embed(images), F.normalize(first, dim=1))


@pytest.mark.parametrize("switch", [{"shared_gamma": True}, {"shared_branches": True}, {"coded": False},
                                    {"shared_gamma": True, "shared_branches": True}])
def test_each_switch_of_crt_learns_with_all_its_parameters(switch: dict[str, bool], tmp_path: Path) -> None:
    images, labels = glyphs()
    method = build(methods.get("crt"), **switch)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    losses = optimise(method, images, labels, 12)
    assert losses[-1] < losses[0]
    assert all(not torch.equal(p, before[name]) for name, p in method.named_parameters())
    save_file(method.state_dict(), tmp_path / "weights.safetensors")  # refuses tensors that are kept twice


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
    assert methods.get(name).misfit("conv4") == methods.get(name).misfit("vit_small") == ""
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
