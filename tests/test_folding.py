"""Frozen batch norms in the convolutions before them: the same features and gradients, or no folding at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmark.training.folding import Folded, folded
from methods.backbones import create


class Block(nn.Module):
    """Two convolutions with norms and a way around them, and, where asked for, something that forbids to fold one."""

    def __init__(self, twist: str = "") -> None:
        super().__init__()
        self.twist = twist
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=twist == "bias")
        self.bn1 = nn.BatchNorm2d(8, eps=1e-3, affine=twist != "no scale")
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
        self.bn2 = nn.BatchNorm2d(8)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv1(images)
        start = F.relu(self.bn1(F.max_pool2d(maps, 2) if self.twist == "pooled" else maps))
        if self.twist == "read twice":
            start = start + maps
        if self.twist == "called twice":
            start = F.relu(self.bn2(self.conv2(start)))
        return F.relu(start + self.bn2(self.conv2(start))).mean((2, 3))


def frozen(network: nn.Module) -> Any:
    """In training mode but for its norms, whose statistics and parameters are none that a wrong formula survives."""
    torch.manual_seed(3)
    norms: list[Any] = [module for module in network.double().train().modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.eval()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.3, 3)
        if norm.affine:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
    return network


def images(side: int = 16) -> Tensor:
    return torch.randn(4, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradients(network: nn.Module, owner: Any, side: int) -> dict[str, Tensor]:
    """Of a loss that is not linear in the features, for the parameters under their owner's names."""
    owner.zero_grad()
    network(images(side)).square().sum().log().backward()
    return {name: parameter.grad.clone() for name, parameter in owner.named_parameters()}


@pytest.mark.parametrize(("network", "side", "count"), [(Block(), 16, 2), (create("resnet50"), 32, 53)])
def test_features_and_gradients_are_those_of_the_network(network: nn.Module, side: int, count: int) -> None:
    network = frozen(network)
    before = copy.deepcopy(network.state_dict())
    twin = folded(network, images(side))
    assert sum(isinstance(module, Folded) for module in twin.modules()) == count
    torch.testing.assert_close(twin(images(side)), network(images(side)))
    expected, found = gradients(network, network, side), gradients(twin, network, side)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)
    assert list(before) == list(network.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_what_one_learns_the_other_knows() -> None:
    network = frozen(Block())
    twin = folded(network, images())
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(3):
        gradients(twin, network, 16)
        optimiser.step()
    network.bn1.running_mean.add_(1)
    torch.testing.assert_close(twin(images()), network(images()))


@pytest.mark.parametrize(("twist", "count"), [("bias", 1), ("no scale", 1), ("pooled", 1), ("called twice", 1)])
def test_what_does_not_fit_stays_as_it_is(twist: str, count: int) -> None:
    network = frozen(Block(twist))
    twin = folded(network, images())
    assert sum(isinstance(module, Folded) for module in twin.modules()) == count
    torch.testing.assert_close(twin(images()), network(images()))


def test_a_network_that_reads_what_is_between_comes_back_itself() -> None:
    network = frozen(Block("read twice"))
    assert folded(network, images()) is network


def test_norms_that_learn_their_statistics_are_not_folded() -> None:
    network = Block().double().train()
    assert folded(network, images()) is network


def test_half_precision_is_as_near_as_without() -> None:
    """Under autocast both round; the folded network must not stray farther from the exact features."""
    network = frozen(create("resnet18")).float()
    twin, x = folded(network, images(64).float()), images(64).float()
    with torch.no_grad():
        exact = network.double()(x.double()).float()
        network.float()
        with torch.autocast("cpu", torch.bfloat16):
            plain, fast = network(x).float(), twin(x).float()
    assert (fast - exact).norm() < 1.5 * (plain - exact).norm()
