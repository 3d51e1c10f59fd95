"""The course of a run so far, and how it goes on from its last checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmark.training import checkpoint
from methods import Method
from methods.samplers.by_label import BatchSampler


@dataclass
class History:
    """The course of a run: one entry an epoch, with the measures where it was evaluated."""

    epochs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    images: int = 0
    steps: int = 0
    evaluating: float = 0.0
    """Seconds of all evaluations; `seconds` are those of training."""
    earlier: dict[str, float] = field(default_factory=dict)
    """What the attempts before this one spent, up to the checkpoint that was resumed."""
    threads: int = 0
    """With how many threads a run on a CPU computes, which decide on its last bits."""

    def with_earlier(self, now: Mapping[str, float]) -> dict[str, float]:
        """What all attempts spent, of which this one spent `now`."""
        return {key: self.earlier.get(key, 0.0) + now.get(key, 0.0) for key in {**self.earlier, **now}}


def resume(folder: Path, method: Method, optimiser: torch.optim.Optimizer, sampler: BatchSampler,
           history: History) -> int:
    """Resume the last checkpoint that fits if there is one; returns the number of finished epochs."""
    while (saved := checkpoint.load(folder)) is not None:
        tensors, state = saved
        fresh = copy.deepcopy(({"method": method.state_dict(), "optimiser": optimiser.state_dict(),
                                "sampler": sampler.state_dict()}, {"history": vars(history), "epoch": 0}))
        try:
            return _restore(tensors, state, method, optimiser, sampler, history)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            _restore(*fresh, method, optimiser, sampler, history)
            checkpoint.set_aside(folder, f"{type(error).__name__}: {error}")
    return 0


def _restore(tensors: dict[str, Any], state: dict[str, Any], method: Method, optimiser: torch.optim.Optimizer,
             sampler: BatchSampler, history: History) -> int:
    """Put a run into the state of a checkpoint; returns the number of its finished epochs."""
    before = {key: type(value) for key, value in vars(history).items()}
    wrong = [key for key, value in state["history"].items() if not isinstance(value, before.get(key, ()))
             and not (before.get(key) is float and type(value) is int)]
    if wrong or type(state["epoch"]) is not int:
        raise ValueError(f"its state has another '{(wrong or ['epoch'])[0]}' than runs of this version")
    method.load_state_dict(tensors["method"])
    optimiser.load_state_dict(tensors["optimiser"])
    sampler.load_state_dict(tensors["sampler"])
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            kept = optimiser.state.get(parameter, {})
            for key, value in kept.items():
                # files know no channels-last, and the fused optimisers want all of a kind
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    kept[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    for key, value in state["history"].items():
        setattr(history, key, value)
    return int(state["epoch"])
