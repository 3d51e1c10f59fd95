"""Bookkeeping of training steps and of parameter groups that are optimised in their own way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Counter(nn.Module):
    """Counts steps without asking the GPU; its state travels in a state dict.

    >>> counter = Counter()
    >>> counter.count += 3
    >>> Counter().load_state_dict(counter.state_dict())
    <All keys matched successfully>
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.count)

    def set_extra_state(self, state: Tensor) -> None:
        self.count = int(state)


def apart(groups: list[dict[str, Any]], name: str, module: nn.Module, **options: Any) -> list[dict[str, Any]]:
    """The groups with a module's parameters taken out of theirs and put into one of its own."""
    mine = {id(parameter) for parameter in module.parameters()}
    kept = [{**group, "params": [p for p in group["params"] if id(p) not in mine]} for group in groups]
    own = [p for group in groups for p in group["params"] if id(p) in mine]
    return [group for group in kept if group["params"]] + ([{"name": name, "params": own, **options}] if own else [])
