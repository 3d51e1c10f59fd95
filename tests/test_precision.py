"""What products are computed in: the protocol's word, and no TF32 under the name of fp32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmark.config import protocol
from benchmark.training import precision

OODML = protocol.load("oodml")


@pytest.mark.parametrize(("said", "device", "able", "expected"), [
    ("auto", "cpu", True, "fp32"), ("auto", "cuda", True, "bf16"), ("auto", "cuda:1", False, "fp32"),
    ("bf16", "cpu", False, "bf16"), ("fp32", "cuda", True, "fp32"), ("tf32", "cuda", True, "tf32")])
def test_auto_is_bf16_on_a_gpu_that_has_it(said: str, device: str, able: bool, expected: str,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: able)
    assert precision.of(replace(OODML, precision=said), device) == expected


@pytest.mark.parametrize("context", [precision.forward, precision.backward])
def test_fp32_is_no_tf32(context: Any) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with context(replace(OODML, precision="fp32"), "cpu"):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
        with context(replace(OODML, precision="tf32"), "cpu"):
            assert torch.get_float32_matmul_precision() == "high"
            assert torch.backends.cudnn.allow_tf32
        with context(replace(OODML, precision="bf16"), "cpu"):
            assert torch.backends.cudnn.allow_tf32
            assert torch.is_autocast_enabled("cpu") == (context is precision.forward)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_convolutions_in_fp32_are_right_to_its_bits() -> None:
    torch.manual_seed(0)
    images, weight = torch.randn(8, 64, 28, 28), torch.randn(64, 64, 3, 3)
    exact = torch.nn.functional.conv2d(images.double(), weight.double())
    with precision.forward(replace(OODML, precision="fp32"), "cuda"):
        found = torch.nn.functional.conv2d(images.cuda(), weight.cuda()).cpu().double()
    assert (found - exact).norm() < 1e-6 * exact.norm()
