"""Kernels of our own are torch's: maps and gradients of frozen norms and of depthwise convolutions."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

NORMS = """
import copy, sys
import torch
from timm.layers import BatchNormAct2d
from torch import nn
from benchmark.training.frozen_norm import fused

device = sys.argv[1]
torch.manual_seed(0)
made = {"plain": nn.BatchNorm2d(40), "none": BatchNormAct2d(40, apply_act=False), "ReLU": BatchNormAct2d(40),
        "ReLU6": BatchNormAct2d(24, act_layer=nn.ReLU6), "odd": nn.BatchNorm2d(6),
        "SiLU": BatchNormAct2d(8, act_layer=nn.SiLU)}
for name, norm in made.items():
    for values in (norm.weight.data, norm.bias.data, norm.running_mean):
        values.normal_()
    norm.running_var.uniform_(0.5, 2)
    network = nn.Sequential(norm).eval().to(device, memory_format=torch.channels_last)
    found = []
    for layout in (torch.channels_last, torch.contiguous_format):
        maps = 3 * torch.randn(5, norm.num_features, 7, 9)
        maps, toward = maps.to(device, memory_format=layout), torch.randn_like(maps).to(device)
        for kernels in (False, True):
            given = maps.clone(memory_format=torch.preserve_format).requires_grad_()
            if kernels:
                with fused(network):
                    own = "forward" in vars(norm)
                    result = network(given)
            else:
                result = network(given)
            assert "forward" not in vars(norm)
            found.append((result, *torch.autograd.grad((result * toward).sum(), (given, norm.weight, norm.bias))))
        for one, other in zip(*found[-2:]):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert own == (name not in ("odd", "SiLU")), name
norm = nn.BatchNorm2d(8).to(device)
with fused(norm):
    assert "forward" not in vars(norm)  # in training
"""
"""Frozen norms, with every activation that may follow."""

CONVOLUTIONS = """
import copy, sys
import torch
from timm.layers import Conv2dSame
from torch import nn
from methods.backbones import depthwise_kernels
from methods.backbones.convolutions import replace_depthwise

device, calls = sys.argv[1], []
convolve = depthwise_kernels.convolve
depthwise_kernels.convolve = lambda *given: calls.append(given) or convolve(*given)
torch.manual_seed(0)
torch.backends.cudnn.allow_tf32 = False
layers = [kind(channels, channels, kernel, stride, padding, groups=channels, bias=False)
          for channels, kernel, stride in ((8, 1, 2), (8, 3, 1), (40, 3, 2), (24, 5, 2), (8, 5, 1), (8, 5, 4))
          for kind, padding in ((nn.Conv2d, kernel // 2), (nn.Conv2d, kernel - 1), (Conv2dSame, 0))]
others = [nn.Conv2d(6, 6, 3, groups=6, bias=False), nn.Conv2d(8, 8, 3, groups=8),
          nn.Conv2d(8, 8, 3, 3, 1, groups=8, bias=False), nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8, bias=False),
          nn.Conv2d(8, 8, (3, 5), 1, (1, 2), groups=8, bias=False)]
for layer in layers + others:
    plain = copy.deepcopy(layer).to(device)
    network = nn.Sequential(layer)
    replace_depthwise(network)
    network.to(device, memory_format=torch.channels_last)
    found, before = [], len(calls)
    maps = torch.randn(2, layer.in_channels, 6, 5).to(device)
    for how, given in ((plain, maps), (network[0].on_gpu, maps.to(memory_format=torch.channels_last))):
        given = given.clone(memory_format=torch.preserve_format).requires_grad_()
        result = how(given)
        toward = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(device)
        weight = plain.weight if how is plain else layer.weight
        found.append((result, *torch.autograd.grad((result * toward).sum(), (given, weight))))
    for one, other in zip(*found):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)
    assert (len(calls) > before) == (layer in layers), layer
with torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"):
    result = layers[6](torch.randn(2, 40, 6, 6, device=device)) if device == "cuda" else None
    assert result is None or result.dtype == torch.bfloat16
assert len(calls) == 1 + len(layers) + (device == "cuda")  # with the trial
"""
"""Depthwise convolutions, with every padding and stride."""

LOOP = """
import torch
import triton
import triton.language as tl


@triton.jit
def count(total, steps):
    counted = 0
    for _ in range(steps):
        counted += 1
    tl.store(total, counted)


total = torch.zeros(1, dtype=torch.int64)
count[1,](total, 3)
assert total.item() == 3
"""
"""Nothing of ours: what Triton's interpreter must be able to do."""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=os.environ | environment, capture_output=True, text=True,
                          check=False)


def python(script: str, *given: str, **environment: str) -> str:
    done = run("-c", script, *given, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What Triton's interpreter says of a plain loop, where it fails; that of 3.6 did in ours, with a newer NumPy."""
    script = tmp_path_factory.mktemp("loop") / "loop.py"
    script.write_text(LOOP)  # its functions are read again from their file
    return run(str(script), TRITON_INTERPRET="1").stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("works", ["benchmark.training.frozen_norm import works; print(works(cpu, torch.float32))",
                                   "methods.backbones.depthwise_kernels import works; print(works(cpu))"])
def test_without_triton_torchs_are_taken(works: str) -> None:
    script = "import sys; sys.modules['triton'] = None; import torch; cpu = torch.device('cpu'); from " + works
    assert python(script) == "False\n"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))])
@pytest.mark.parametrize("script", [NORMS, CONVOLUTIONS], ids=["norms", "convolutions"])
def test_they_are_torchs(script: str, device: str, interpreter: str) -> None:
    """On a CPU Triton's interpreter does what the kernels say; it is chosen before Triton is imported."""
    if device == "cpu" and interpreter:
        pytest.skip(f"Triton's interpreter fails on a plain loop: {interpreter}")
    python(script, device, **({"TRITON_INTERPRET": "1"} if device == "cpu" else {}))
