"""The protocol `released`: networks and rates of each recipe against torch's own layers, optimisers and schedulers."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import methods
from benchmark.config import protocol as protocols
from benchmark.config.plan import Overrides, base_settings
from benchmark.training.optimising import groups_of, optimiser_of, set_rates, start_head
from methods import Method
from methods.backbones import create
from methods.samplers import batches

Rates = dict[str, float]


def made(name: str, pooling: str) -> tuple[Method, protocols.Protocol]:
    entry = methods.get(name)
    own = protocols.load("released", dataset="cub", method=name, tags=entry.kinds)
    assert own.backbone == f"resnet50@{pooling}"
    below = base_settings(entry, "cub", "released", Overrides())
    settings = entry.settings("cub", **protocols.settings_of("released", entry))
    base = entry.base.settings("cub", **below) if entry.base else None
    return entry.build(create(f"test_resnet@{pooling}"), 12, own.dim, settings, base), own


def rates(method: Method, own: protocols.Protocol) -> list[Rates]:
    """The learning rate of each part of the method in every epoch, 0 where its parameters take no gradient."""
    groups, found = groups_of(method, own), []
    start = [group["lr"] for group in groups]
    optimiser = torch.optim.SGD(groups, lr=own.lr)
    for epoch in range(1, own.epochs + 1):
        set_rates(optimiser, start, own, epoch)
        found.append({group["name"]: group["lr"] * any(parameter.requires_grad for parameter in group["params"])
                      for group in optimiser.param_groups})
    return found


def stepwise(first: float, gamma: float, steps: int | list[int], epochs: int) -> list[float]:
    """What torch's scheduler makes of a rate, epoch by epoch."""
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=first)
    scheduler = (torch.optim.lr_scheduler.StepLR(optimiser, steps, gamma) if isinstance(steps, int) else
                 torch.optim.lr_scheduler.MultiStepLR(optimiser, steps, gamma))
    found = []
    for _ in range(epochs):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("name", "pooling", "steps", "gamma", "warmup", "first"), [
    ("proxyanchor", "meanmax", 5, 0.5, 5, {"backbone": 1e-4, "head": 1e-4, "proxies": 1e-2}),
    ("hier", "meanmax-ln", 5, 0.5, 1, {"backbone": 1e-4, "head": 1e-4, "proxies": 1.0, "hierarchy": 5e-3}),
    ("contextual", "max-ln", [15, 30, 45], 0.3, 0, {"backbone": 4e-5, "head": 8e-5}),
    ("roadmap", "max-ln", 1000, 1.0, 0, {"backbone": 1e-6, "head": 1e-6}),
])
def test_every_part_learns_at_the_released_rate_in_every_epoch(name: str, pooling: str, steps: int | list[int],
                                                               gamma: float, warmup: int, first: Rates) -> None:
    method, own = made(name, pooling)
    found = rates(method, own)
    assert len(found[0]) == len(first), found[0]
    for part, rate in first.items():
        key = next(key for key in found[0] if part in key)
        wanted = stepwise(rate, gamma, steps, own.epochs)
        if part == "backbone":
            wanted = [0.0] * warmup + wanted[warmup:]
        assert [one[key] for one in found] == pytest.approx(wanted), part


def batches_of_roadmap(sizes: list[int]) -> int:
    """As samplers/m_per_class_sampler.py makes them, each of the first classes that have four images left."""
    left, made = list(sizes), 0
    while True:
        chosen = [k for k, count in enumerate(left) if count >= 4][:32]
        if len(chosen) < 32:
            return made
        left = [count - 4 * (k in chosen) for k, count in enumerate(left)]
        made += 1


def test_an_epoch_of_cub_has_as_many_steps_as_in_the_released_code() -> None:
    pin = json.loads((Path(__file__).parents[1] / "splits/pinned/cub@v1.json").read_text())
    sizes = [known["images"] for known in pin["classes"][:100]]
    assert sum(sizes) == 5864
    orders = [random.Random(seed).sample(sizes, 100) for seed in range(20)]
    usual = Counter(map(batches_of_roadmap, orders)).most_common(1)[0][0]
    wanted = {"proxyanchor": sum(sizes) // 120,  # drop_last
              "hier": sum(sizes) // 180,  # hier/sampler.py
              "contextual": min(42, 5 * (100 // (128 // 4))),  # sampling.py: as many rounds as tries
              "roadmap": usual}
    labels = torch.arange(100).repeat_interleave(torch.tensor(sizes))
    for name, steps in wanted.items():
        own = protocols.load("released", dataset="cub", method=name)
        whole = len(batches.create(own.batches, labels, own.batch_size))
        assert min(whole, own.steps_per_epoch or whole) == steps, name


def test_proxy_anchor_has_the_released_network() -> None:
    method, own = made("proxyanchor", "meanmax")
    images = torch.randn(4, 3, 64, 64)
    method.train()
    maps = method.backbone.network.forward_features(images)  # type: ignore[operator]
    pooled = nn.AdaptiveMaxPool2d(1)(maps) + nn.AdaptiveAvgPool2d(1)(maps)
    torch.testing.assert_close(method.backbone(images), pooled.flatten(1))
    assert not any(norm.training for norm in method.backbone.batch_norms())
    assert (own.epochs, own.batch_size, own.batches, own.optimiser) == (60, 120, "random", "adamw")
    assert (own.weight_decay, own.clip_value, own.size, own.resize) == (1e-4, 10.0, 224, 256)


def test_every_parameter_moves_as_the_released_optimiser_of_hier_moves_it() -> None:
    """One AdamW with epsilon 1e-4 and one weight decay for network and proxies, here against its formula."""
    method, own = made("hier", "meanmax-ln")
    groups = groups_of(method, own)
    optimiser = optimiser_of(groups, own, "cpu")
    rate_of = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    before = {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
    torch.manual_seed(1)
    for parameter in method.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-4
    optimiser.step()
    for name, parameter in method.named_parameters():
        rate, slope = rate_of[id(parameter)], parameter.grad
        # after one step the means of Adam, freed of their bias, are the gradient and its square
        wanted = before[name] * (1 - rate * 1e-2) - rate * slope / (slope.abs() + 1e-4)
        torch.testing.assert_close(parameter.detach(), wanted, msg=name)


def test_proxies_decay_in_the_recipe_of_proxy_anchor_and_nowhere_else() -> None:
    method, own = made("proxyanchor", "meanmax")
    assert {group["name"]: group["weight_decay"] for group in groups_of(method, own)} == {
        "backbone": 1e-4, "head": 1e-4, "objective.proxies": 1e-4}
    usual = protocols.load("oodml", dataset="cub", method="proxyanchor")
    assert [group["weight_decay"] for group in groups_of(method, usual)] == [4e-4, 4e-4, 0.0]


@pytest.mark.parametrize("name", ["uniform-prior", "diva", "s2sd"])
def test_the_decay_of_objectives_leaves_groups_of_methods_alone(name: str) -> None:
    method = methods.create(name, "conv4", classes=12)
    usual = protocols.load("oodml", dataset="cub", method=name)
    decays = [{group["name"]: group["weight_decay"] for group in groups_of(method, own)}
              for own in (usual, dataclasses.replace(usual, objective_decay=0.5))]
    changed = {group for group in decays[0] if decays[0][group] != decays[1][group]}
    assert changed == {group for group in decays[0] if "objective" in group or "beta" in group}, decays


def test_the_embedding_layer_starts_as_the_recipes_say() -> None:
    heads = {}
    for name, pooling in (("proxyanchor", "meanmax"), ("hier", "meanmax-ln"), ("contextual", "max-ln")):
        method, own = made(name, pooling)
        drawn = method.embedding.weight.detach().clone()
        torch.manual_seed(3)
        start_head(method, own)
        heads[name] = method.embedding
        assert torch.equal(drawn, method.embedding.weight) == (name == "contextual")
    torch.manual_seed(3)
    wanted = torch.empty_like(heads["proxyanchor"].weight)
    nn.init.kaiming_normal_(wanted, mode="fan_out")  # code/net/resnet.py
    assert torch.equal(heads["proxyanchor"].weight, wanted)
    rows = heads["hier"].weight.detach().double()
    smaller = rows if rows.shape[0] <= rows.shape[1] else rows.T
    torch.testing.assert_close(smaller @ smaller.T, torch.eye(len(smaller), dtype=torch.double), atol=1e-5, rtol=0)
    assert not heads["proxyanchor"].bias.any()
    assert not heads["hier"].bias.any()
    assert heads["contextual"].bias.any()


def test_a_momentum_encoder_begins_with_the_embedding_layer_that_it_follows() -> None:
    entry = methods.get("diva")
    for start in ("uniform", "normal", "orthogonal"):
        own = protocols.load("oodml", dataset="cub", method="diva", overrides={"head_start": start, "dim": 8})
        method = entry.build(create("test_resnet"), 12, own.dim, entry.settings("cub"), entry.base.settings("cub"))
        drawn = method.embedding.weight.detach().clone()
        start_head(method, own)
        assert torch.equal(drawn, method.embedding.weight) == (start == "uniform")
        followed = nn.Sequential(method.backbone, method.embedding).state_dict()
        assert all(torch.equal(value, followed[name]) for name, value in method.encoder.network.state_dict().items())


def test_a_method_without_a_recipe_is_trained_as_in_oodml() -> None:
    facts = [protocols.load(name, dataset="cub", method="margin").identity() for name in ("released", "oodml")]
    assert {**facts[0], "name": ""} == {**facts[1], "name": ""}
