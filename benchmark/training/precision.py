"""In which numbers products are computed: bf16 where training on a GPU may, TF32 or float32 as such where it must."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from benchmark.config.protocol import Protocol
from benchmark.utils.tf32 import tf32


def of(protocol: Protocol, device: str) -> str:
    """What the protocol asks for or, where it leaves it open, bf16 on a GPU that has it and else fp32."""
    if protocol.precision == "auto":
        able = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if able else "fp32"
    return protocol.precision


def forward(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """Around forward passes: bf16 autocast, TF32, or float32 that is not TF32, of ten bits, under its name."""
    kind = of(protocol, device)
    return torch.autocast(torch.device(device).type, torch.bfloat16) if kind == "bf16" else tf32(kind == "tf32")


def backward(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """Around backward passes, which have the types of the forward pass by themselves but TF32 as it is set now."""
    kind = of(protocol, device)
    return contextlib.nullcontext() if kind == "bf16" else tf32(kind == "tf32")
