"""Depthwise convolutions done another way are the same convolutions."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.layers import Conv2dSame
from torch import nn

from methods.backbones import convolutions, create
from methods.backbones.convolutions import Depthwise, Padded3x3, centred, depthwise, replace_depthwise


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_gradients_by_products_are_right(layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(3, 5, 7, 6, generator=generator).to(memory_format=layout).requires_grad_()
    toward = torch.randn(3, 4, 7, 6, generator=generator)
    found = []
    for arm in (True, False):
        monkeypatch.setattr(convolutions, "ARM", arm)
        torch.manual_seed(1)
        layer = Padded3x3(5, 4).to(memory_format=layout)
        maps = layer(images)
        assert ("ByProducts" in str(maps.grad_fn)) == arm
        found.append((maps, *torch.autograd.grad((maps * toward).sum(), (images, layer.weight))))
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(images).dtype == torch.bfloat16
    for one, other in zip(*found):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [
    (3, 1, 1), (3, 2, 0), (5, 2, 2), (5, 3, 1), ((3, 5), 1, (0, 2)), (1, 2, 0)])
def test_depthwise_gradients_by_sums_are_right(kernel: Any, stride: int, padding: Any, layout: torch.memory_format,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(3, 8, 10, 7, generator=generator).to(memory_format=layout).requires_grad_()
    network = nn.Sequential(nn.Conv2d(8, 8, kernel, stride, padding, groups=8, bias=False))
    replace_depthwise(network)
    found = []
    for arm in (True, False):
        monkeypatch.setattr(convolutions, "ARM", arm)
        maps = network(images)
        assert ("BySums" in str(maps.grad_fn)) == arm
        toward = torch.randn(maps.shape, generator=torch.Generator().manual_seed(1))
        found.append((maps, *torch.autograd.grad((maps * toward).sum(), (images, network[0].weight))))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 8, 3, padding=1, groups=8),
                                   nn.Conv2d(8, 8, 3, padding=3, groups=8, bias=False),
                                   nn.Conv2d(8, 8, 3, dilation=2, groups=8, bias=False),
                                   nn.Conv2d(8, 8, 3, padding="same", groups=8, bias=False)])
def test_other_depthwise_convolutions_stay_as_they_are(layer: nn.Conv2d, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "ARM", True)
    images = torch.randn(2, 8, 9, 9)
    expected, network = layer(images), nn.Sequential(layer)
    replace_depthwise(network)
    assert "BySums" not in str(network(images).grad_fn)
    torch.testing.assert_close(network(images), expected)


@pytest.mark.parametrize("size", [7, 8, 13])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [
    (3, (2, 2), 1, 1), (5, (2, 2), 2, 1), (5, (3, 2), 0, 1), (3, (2, 2), 2, 2), (1, (2, 2), 0, 1)])
def test_thinning_out_is_a_stride(size: int, kernel: int, stride: tuple[int, int], padding: int, dilation: int) -> None:
    generator = torch.Generator().manual_seed(size)
    images = torch.randn(2, 6, size, size + 1, generator=generator, dtype=torch.float64)
    weight = torch.randn(6, 1, kernel, kernel, generator=generator, dtype=torch.float64)
    bias = torch.randn(6, generator=generator, dtype=torch.float64)
    expected = F.conv2d(images, weight, bias, stride, padding, dilation, groups=6)
    found = depthwise(images, weight, bias, stride, (padding, padding), (dilation, dilation))
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("size", "kernel", "padding"), [
    (size, kernel, padding) for size in ((1, 1), (2, 2), (2, 5), (3, 1), (9, 9))
    for kernel, padding in ((3, 1), (5, 2), (7, 3), (5, 1), (3, 2), (4, 1)) if min(size) + 2 * padding >= kernel])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2)])
def test_filters_beyond_a_small_map_are_left_out_exactly(size: tuple[int, int], kernel: int, padding: int,
                                                         stride: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(kernel)
    images = torch.randn(2, 6, *size, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 1, kernel, kernel, generator=generator, dtype=torch.float64, requires_grad=True)
    expected = F.conv2d(images, weight, None, stride, padding, groups=6)
    found = depthwise(images, weight, None, stride, (padding, padding), (1, 1))
    torch.testing.assert_close(found, expected)
    toward = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    for one, other in zip(torch.autograd.grad((found * toward).sum(), (images, weight)),
                          torch.autograd.grad((expected * toward).sum(), (images, weight))):
        torch.testing.assert_close(one, other)
    if kernel == 2 * padding + 1:
        middle, _ = centred(weight, (padding, padding), images.shape[2:])
        assert tuple(middle.shape[2:]) == tuple(min(kernel, 2 * length - 1) for length in size)


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 8), (7, 4), (8, 8), (13, 16)])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [
    (3, 2, 1), (5, 2, 1), (3, 1, 1), (1, 2, 1), (3, 3, 1), (5, 4, 1), (7, 3, 1), (3, 2, 2), (3, 4, 1)])
def test_tensorflows_padding_is_a_choice_of_places(size: tuple[int, int], kernel: int, stride: int,
                                                   dilation: int) -> None:
    torch.manual_seed(kernel)
    network = nn.Sequential(Conv2dSame(6, 6, kernel, stride, 0, dilation, groups=6)).double()
    images = torch.randn(2, 6, *size, dtype=torch.float64)
    expected = network(images)
    convolutions.replace_depthwise(network)
    layer = network[0]
    torch.testing.assert_close(layer(images), expected)
    padding, start = layer.places(images.shape[2:])
    found = depthwise(images, layer.weight, layer.bias, layer.stride, padding, layer.dilation, start)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("name", "count"), [("efficientnet_lite0", 16), ("efficientnet_b0", 16), ("resnet50_gn", 0)])
def test_a_network_with_replaced_convolutions_is_timms(name: str, count: int) -> None:
    backbone = create(name).eval()
    replaced = [module for module in backbone.modules() if isinstance(module, Depthwise)]
    assert len(replaced) == count
    assert sum(module.stride == (2, 2) for module in replaced) == (4 if count else 0)
    plain = timm.create_model(backbone.network.pretrained_cfg["architecture"], num_classes=0).eval()
    assert list(plain.state_dict()) == list(backbone.network.state_dict())
    plain.load_state_dict(backbone.network.state_dict())
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), plain(images))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_gives_what_the_cpu_gives() -> None:
    backbone = create("efficientnet_lite0").eval()
    images = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        expected = backbone(images)
        found = backbone.to("cuda", memory_format=torch.channels_last)(images.to("cuda")).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
