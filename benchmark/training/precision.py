"""In which numbers products are computed: bf16 where training on a GPU may, float32 as such where it must."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from benchmark.config.protocol import Protocol
from benchmark.utils.precision import no_tf32


def of(protocol: Protocol, device: str) -> str:
    """bf16 where the protocol asks for it, or leaves it open and the device is a GPU that has it; else fp32."""
    if protocol.precision == "auto":
        able = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if able else "fp32"
    return protocol.precision


def forward(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """Around forward passes: bf16 autocast, or float32 that is not TF32, of ten bits, under its name."""
    bf16 = of(protocol, device) == "bf16"
    return torch.autocast(torch.device(device).type, torch.bfloat16) if bf16 else no_tf32()


def backward(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """Around backward passes, which have the types of the forward pass by themselves but TF32 as it is set now."""
    return contextlib.nullcontext() if of(protocol, device) == "bf16" else no_tf32()
