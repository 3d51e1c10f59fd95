"""In which numbers products are computed: bf16 where training on a GPU may, float32 as such where it must."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from benchmark.protocol import Protocol


def of(protocol: Protocol, device: str) -> str:
    """bf16 where the protocol asks for it, or leaves it open and the device is a GPU that has it; else fp32."""
    if protocol.precision == "auto":
        able = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if able else "fp32"
    return protocol.precision


def autocast(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """Around forward passes: what products of this protocol are computed in on this device."""
    if of(protocol, device) == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(device).type, torch.bfloat16)


def as_told(protocol: Protocol, device: str) -> contextlib.AbstractContextManager[Any]:
    """Around forward and backward passes: whose protocol says fp32 gets no TF32, of ten bits, in its place."""
    return no_tf32() if of(protocol, device) == "fp32" else contextlib.nullcontext()


@contextlib.contextmanager
def no_tf32() -> Iterator[None]:
    """float32 products and convolutions as such on a GPU, whatever was switched on."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
