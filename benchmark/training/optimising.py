"""The optimiser of a run: its parameter groups, how their rates change, and how gradients are clipped."""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmark.config.protocol import Protocol
from methods import Method


def groups_of(method: Method, protocol: Protocol) -> list[dict[str, Any]]:
    """The method's parameter groups at the protocol's rates, its last layer at `head_rate` times lr."""
    return [{**group, "lr": group["lr"] * protocol.head_rate} if group["name"] == "head" else group
            for group in method.groups(protocol.lr, protocol.weight_decay)]


def optimiser_of(groups: list[dict[str, Any]], protocol: Protocol, device: str) -> torch.optim.Optimizer:
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[protocol.optimiser]
    return kind(groups, lr=protocol.lr, fused=device.startswith("cuda"))


def set_rates(optimiser: torch.optim.Optimizer, rates: list[float], protocol: Protocol, epoch: int) -> None:
    """Milestones act on every group; during warm-up the backbone is frozen."""
    factor = protocol.decay ** sum(epoch > milestone for milestone in protocol.milestones)
    for group, rate in zip(optimiser.param_groups, rates):
        group["lr"] = rate * factor
        if protocol.warmup and group["name"] == "backbone":
            for parameter in group["params"]:
                parameter.requires_grad_(epoch > protocol.warmup)


def fall(optimiser: torch.optim.Optimizer, rates: list[float], end: float, done: float) -> None:
    """Rates along half a cosine: end + (1 - end) (1 + cos(pi done)) / 2 of their start, `done` the share of steps."""
    factor = end + (1 - end) * (1 + math.cos(math.pi * done)) / 2
    for group, rate in zip(optimiser.param_groups, rates):
        group["lr"] = rate * factor


def clip(method: Method, protocol: Protocol) -> None:
    if protocol.clip_value:
        torch.nn.utils.clip_grad_value_(method.parameters(), protocol.clip_value)
    if protocol.clip_norm:
        torch.nn.utils.clip_grad_norm_(method.parameters(), protocol.clip_norm)
