"""One training run, from top to bottom.

Every epoch starts from random states that depend on the seed and the epoch's number alone. A run that was
killed goes on from its last whole epoch and ends, on a CPU bit for bit, as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark import checkpoint
from benchmark.loader import Loader
from benchmark.protocol import Protocol
from benchmark.task import Side
from methods import Method
from methods.parts.batches import BatchSampler

Evaluate = Callable[[Method], dict[str, Any]]
"""Measures of the method as it is now, by side: {'test': {...}, 'validation': {...}}."""


class Interrupted(Exception):
    """Somebody asked the run to stop; it was saved and can go on."""


class Diverged(Exception):
    """The loss is not a number any more."""


@dataclass
class History:
    """What a run has been through: one entry an epoch, with the measures where it was evaluated."""

    epochs: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    images: int = 0


def train(method: Method, side: Side, loader: Loader, sampler: BatchSampler, protocol: Protocol, *, seed: int,
          device: str, folder: Path, evaluate: Evaluate, stop: Callable[[], bool] = lambda: False,
          tell: Callable[[dict[str, Any]], None] = lambda event: None) -> History:
    """Train `method` on one side's images and measure it along the way.

    `folder` keeps the checkpoint and `log.jsonl`; `stop` is asked after every epoch; `tell` hears of each.
    """
    groups = method.groups(protocol.lr, protocol.weight_decay)
    history = History()
    if not groups or protocol.epochs == 0:
        history.epochs.append({"epoch": 0, **evaluate(method)})
        return history

    method.to(device, memory_format=torch.channels_last)
    optimiser = _optimiser(groups, protocol, device)
    rates = [group["lr"] for group in optimiser.param_groups]
    ids, labels = torch.from_numpy(side.ids), torch.from_numpy(side.labels)
    start = _resume(folder, method, optimiser, sampler, history)
    if sampler.needs_bank and start == 0:
        sampler.start(embed(method, loader, side.ids, protocol, device))

    for epoch in range(start + 1, protocol.epochs + 1):
        began = time.perf_counter()
        generator = _seed_everything(seed, epoch)
        method.train()
        _set_rates(optimiser, rates, protocol, epoch)
        total = torch.zeros((), device=device)
        steps = 0
        for chosen in _limited(sampler.epoch(generator), protocol.steps_per_epoch):
            images = _views(loader, ids[chosen], generator, method.views)
            with autocast(protocol, device):
                loss, embeddings = method.step(images, labels[chosen].to(device))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            _clip(method, protocol)
            optimiser.step()
            method.after_step()
            sampler.remember(chosen, embeddings)
            total += loss.detach()
            steps += 1
            history.images += len(chosen)
        mean_loss = float(total) / max(steps, 1)
        if not math.isfinite(mean_loss):
            raise Diverged(f"the loss of epoch {epoch} is {mean_loss}")
        seconds = time.perf_counter() - began
        history.seconds += seconds
        entry: dict[str, Any] = {"epoch": epoch, "loss": mean_loss}
        if epoch % protocol.evaluate_every == 0 or epoch == protocol.epochs:
            entry |= evaluate(method)
        history.epochs.append(entry)
        _log(folder, {**entry, "lr": optimiser.param_groups[0]["lr"], "seconds": seconds, "steps": steps,
                      "memory": peak_memory(device)})
        tell(entry)
        checkpoint.save(folder, {"method": method.state_dict(), "optimiser": optimiser.state_dict(),
                                 "sampler": sampler.state_dict()}, {"epoch": epoch, "history": vars(history)})
        if stop() and epoch < protocol.epochs:
            raise Interrupted(f"stopped after epoch {epoch} of {protocol.epochs}")
    return history


@torch.no_grad()
def embed(method: Method, loader: Loader, ids: np.ndarray, protocol: Protocol, device: str, batch: int = 512) -> Tensor:
    """The normalised float32 embeddings of these images, on the device."""
    method.to(device, memory_format=torch.channels_last).eval()
    parts = []
    for start in range(0, len(ids), batch):
        images = loader.evaluate(torch.from_numpy(ids[start:start + batch]))
        with autocast(protocol, device):
            parts.append(method.embed(images).float())
    return torch.cat(parts)


def autocast(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """bf16 where the protocol asks for it, or leaves it open and the device is a GPU."""
    wanted = protocol.precision == "bf16" or (protocol.precision == "auto" and device.startswith("cuda"))
    return torch.autocast(torch.device(device).type, torch.bfloat16) if wanted else contextlib.nullcontext()


def peak_memory(device: str) -> int:
    """The most bytes in use so far: of the GPU, or of this process on a CPU."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _seed_everything(seed: int, epoch: int) -> torch.Generator:
    """Seeds torch's global state (mining, dropout) and gives the generator of batches and crops."""
    mixed = int.from_bytes(hashlib.sha256(f"{seed}:{epoch}".encode()).digest()[:8], "big") >> 1
    torch.manual_seed(mixed)
    return torch.Generator().manual_seed(mixed)


def _optimiser(groups: list[dict[str, Any]], protocol: Protocol, device: str) -> torch.optim.Optimizer:
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[protocol.optimiser]
    return kind(groups, lr=protocol.lr, fused=device.startswith("cuda"))


def _set_rates(optimiser: torch.optim.Optimizer, rates: list[float], protocol: Protocol, epoch: int) -> None:
    """Milestones act on every group; during warm-up the backbone rests."""
    factor = protocol.decay ** sum(epoch > milestone for milestone in protocol.milestones)
    for group, rate in zip(optimiser.param_groups, rates):
        group["lr"] = rate * factor
        if protocol.warmup and group["name"] == "backbone":
            for parameter in group["params"]:
                parameter.requires_grad_(epoch > protocol.warmup)


def _limited(batches: Any, most: int) -> Any:
    for number, batch in enumerate(batches):
        if most and number == most:
            return
        yield batch


def _views(loader: Loader, ids: Tensor, generator: torch.Generator, views: int) -> Tensor:
    if views == 1:
        return loader.train(ids, generator)
    return torch.stack([loader.train(ids, generator) for _ in range(views)])


def _clip(method: Method, protocol: Protocol) -> None:
    if protocol.clip_value:
        torch.nn.utils.clip_grad_value_(method.parameters(), protocol.clip_value)
    if protocol.clip_norm:
        torch.nn.utils.clip_grad_norm_(method.parameters(), protocol.clip_norm)


def _resume(folder: Path, method: Method, optimiser: torch.optim.Optimizer, sampler: BatchSampler,
            history: History) -> int:
    """Take up the last checkpoint if there is one; returns the number of finished epochs."""
    found = checkpoint.load(folder)
    if found is None:
        return 0
    tensors, state = found
    method.load_state_dict(tensors["method"])
    optimiser.load_state_dict(tensors["optimiser"])
    sampler.load_state_dict(tensors["sampler"])
    for key, value in state["history"].items():
        setattr(history, key, value)
    return int(state["epoch"])


def _log(folder: Path, entry: dict[str, Any]) -> None:
    with (folder / "log.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")
