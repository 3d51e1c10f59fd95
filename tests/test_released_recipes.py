"""The protocol `released`: networks and rates of each recipe against torch's own layers, optimisers and schedulers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import methods
from benchmark.config import protocol as protocols
from benchmark.config.plan import Overrides, base_settings
from benchmark.training.optimising import groups_of, set_rates
from methods import Method
from methods.backbones import create

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


def test_a_method_without_a_recipe_is_trained_as_in_oodml() -> None:
    facts = [protocols.load(name, dataset="cub", method="margin").identity() for name in ("released", "oodml")]
    assert {**facts[0], "name": ""} == {**facts[1], "name": ""}
