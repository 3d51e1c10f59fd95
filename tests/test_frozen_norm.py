"""Frozen norms in kernels of their own are torch's: features and gradients, with every activation that may follow."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

SCRIPT = """
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
    print(name, own)
norm = nn.BatchNorm2d(8).to(device)
with fused(norm):
    print("training", "forward" in vars(norm))
"""
EXPECTED = {"plain": "True", "none": "True", "ReLU": "True", "ReLU6": "True", "odd": "False", "SiLU": "False",
            "training": "False"}


def test_without_triton_torchs_are_taken() -> None:
    script = ("import sys; sys.modules['triton'] = None; import torch; from benchmark.training import frozen_norm; "
              "print(frozen_norm.works(torch.device('cpu'), torch.float32))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU"))])
def test_they_are_torchs(device: str) -> None:
    """On a CPU Triton's interpreter does what the kernels say; it is chosen before Triton is imported."""
    interpreted = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    done = subprocess.run([sys.executable, "-c", SCRIPT, device], env=os.environ | interpreted, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == EXPECTED
