"""The optimiser of a run: where it starts, its parameter groups, how their rates change, how gradients are clipped."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from benchmark.config.protocol import Protocol
from methods import Method, Objective
from methods.layers.momentum import Momentum


def groups_of(method: Method, protocol: Protocol) -> list[dict[str, Any]]:
    """The method's parameter groups at the protocol's rates and decays; its last layer's rate is `head_rate` lr."""
    objectives = {id(parameter) for module in method.modules() if isinstance(module, Objective)
                  for parameter in module.parameters()}
    groups = []
    for group in method.groups(protocol.lr, protocol.weight_decay):
        if group["name"] == "head":
            group["lr"] *= protocol.head_rate
        elif protocol.objective_decay and objectives.issuperset(map(id, group["params"])):
            group["weight_decay"] = protocol.objective_decay
        groups.append(group)
    return groups


def start_head(method: Method, protocol: Protocol) -> None:
    """The first weights of the embedding layer, where not torch's own: then its bias, if any, is 0."""
    if protocol.head_start == "uniform":
        return
    for layer in method.embedding.modules():
        if isinstance(layer, nn.Linear):
            if protocol.head_start == "normal":
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")
            else:
                nn.init.orthogonal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    whole = nn.Sequential(method.backbone, method.embedding).state_dict()
    for module in method.modules():  # a momentum encoder of both begins as a copy of them
        if isinstance(module, Momentum) and module.network.state_dict().keys() == whole.keys():
            module.network.load_state_dict(whole)


def optimiser_of(groups: list[dict[str, Any]], protocol: Protocol, device: str) -> torch.optim.Optimizer:
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[protocol.optimiser]
    return kind(groups, lr=protocol.lr, eps=protocol.epsilon, fused=device.startswith("cuda"))


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
