"""Methods that change the network or the step: what a training step costs beside the plain one on the same backbone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

import methods
from methods import Method, Objective
from methods.backbones import create
from tests.bench import Row, seconds


def step_of(name: str, backbone: str, device: str, batch: int, size: int, dim: int) -> Callable[[], None]:
    """One training step: forward, backward, optimiser; bf16 on a GPU."""
    torch.manual_seed(0)
    method: Method = methods.get(name).build(create(backbone), batch // 2, dim).to(device).train()
    optimiser = torch.optim.Adam(method.groups(1e-5, 4e-4), lr=1e-5, fused=device != "cpu")
    images = torch.randn(batch, 3, size, size, device=device)
    images = images if method.views == 1 else torch.stack([images] * method.views)
    labels = torch.arange(batch // 2, device=device).repeat_interleave(2)

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=device != "cpu"):
            loss = method.step(images, labels).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        method.after_step()

    return run


def measure(device: str) -> Iterator[Row]:
    batch, size = (112, 224) if device != "cpu" else (16, 64)
    if device == "cpu":
        torch.set_num_threads(1)
    for backbone, base in (("resnet50" if device != "cpu" else "resnet18", "margin"), ("vit_small", "curricularface")):
        plain = seconds(step_of(base, backbone, device, batch, size, 512), device=device)
        yield Row(f"{base} on {backbone}, batch {batch}, {size} px", plain)
        for name in methods.names():
            entry = methods.get(name)
            tuned = entry.family == "parameter-efficient"
            if issubclass(entry.cls, Objective) or entry.family in ("floor", "mixup") or tuned != (base != "margin"):
                continue
            taken = seconds(step_of(name, backbone, device, batch, size, 512), device=device)
            yield Row(f"{name} on {backbone}", taken, plain, f"{base}")
