"""Kernels of our own are torch's: maps and gradients of frozen norms and of depthwise convolutions."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

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
for number, layer in enumerate(layers + others):
    depthwise_kernels.PROGRAMS = (1, 4096)[number % 2]  # a program has both images, or one
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

SCRIPTS = {"loop": LOOP, "norms": NORMS, "convolutions": CONVOLUTIONS}


IN_TURN = """
import json, runpy, sys, traceback

failed = {}
for file in sys.argv[2:]:
    try:
        runpy.run_path(file)
    except Exception as error:
        failed[file] = f"{type(error).__name__}: {error}", traceback.format_exc()
print(json.dumps(failed))
"""
"""Scripts one after the other: a process of its own for each would import torch and timm anew."""


def python(script: str, *given: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *given], env=os.environ | environment, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, tuple[str, str]]]:
    """Of each script that fails on a device the error and its traceback, by name."""
    folder = tmp_path_factory.mktemp("scripts")
    for name, script in SCRIPTS.items():
        (folder / f"{name}.py").write_text(script)  # Triton reads functions again from their file

    @cache
    def on(device: str) -> dict[str, tuple[str, str]]:
        files = [str(folder / f"{name}.py") for name in SCRIPTS if device == "cpu" or name != "loop"]
        told = python(IN_TURN, device, *files, **({"TRITON_INTERPRET": "1"} if device == "cpu" else {}))
        return {Path(file).stem: error for file, error in json.loads(told).items()}

    return on


def test_without_triton_torchs_are_taken() -> None:
    script = ("import sys; sys.modules['triton'] = None; import torch; cpu = torch.device('cpu')\n"
              "from benchmark.training import frozen_norm; from methods.backbones import depthwise_kernels\n"
              "print(frozen_norm.works(cpu, torch.float32), depthwise_kernels.works(cpu))")
    assert python(script) == "False False\n"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))])
@pytest.mark.parametrize("script", ["norms", "convolutions"])
def test_they_are_torchs(script: str, device: str, failures: Callable[[str], dict[str, tuple[str, str]]]) -> None:
    """On a CPU Triton's interpreter does what the kernels say; it is chosen before Triton is imported.

    The interpreter of Triton 3.6 failed in a plain loop with a newer NumPy.
    """
    failed = failures(device)
    if "loop" in failed:
        pytest.skip(f"Triton's interpreter fails on a plain loop: {failed['loop'][0]}")
    assert script not in failed, failed[script][1]
