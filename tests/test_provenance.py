"""What a record says of the machine that made it."""

from __future__ import annotations

import time

import pytest
import torch

from benchmark.utils import provenance

GPU = pytest.param("cuda:0", id="gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.mark.parametrize("device", [GPU])
def test_energy_is_counted(device: str) -> None:
    began = time.monotonic()
    with provenance.Energy(device) as energy:
        matrix = torch.ones(4096, 4096, device=device)
        while time.monotonic() - began < 1:
            (matrix @ matrix).sum().item()
    watts = (energy.joules or 0) / (time.monotonic() - began)
    assert 5 < watts < 2000
    assert provenance.facts()["driver"]
