"""A batch in pieces: the gradient is that of the whole, for every method that allows it, and the others say no."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import methods
from benchmark.config import protocol
from benchmark.training import compiling, micro_batch
from benchmark.utils.errors import UserError
from methods import Method
from methods.backbones import create
from methods.checks import example
from methods.margin import Margin

SIZE = 7
"""Of a piece: of 24 images the last one has three."""


def gradients(method: Method, images: Tensor, labels: Tensor, steps: compiling.Compiled | int) -> dict[str, Tensor]:
    """Loss and gradients of one step."""
    method.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    with (compiling.Compiled(method, micro_batch=steps) if isinstance(steps, int) else steps)():
        loss = method.step(images, labels).loss
        loss.backward()
    return {"loss": loss.detach()} | {name: parameter.grad.clone() for name, parameter in method.named_parameters()
                                      if parameter.grad is not None}


def twins(name: str) -> tuple[Method, Method, Tensor, Tensor]:
    """A method twice in float64 with the same weights and buffers, a batch as it wants it, and its labels."""
    entry = methods.get(name)
    images, labels = example.glyphs()
    one, other = (example.build(entry).double().train() for _ in range(2))
    for method in (one, other):  # dropout draws other numbers in pieces: its own test is below
        for module in method.modules():
            for key in ("p", "drop_prob", "keep"):
                if isinstance(getattr(module, key, None), float):
                    setattr(module, key, 1.0 if key == "keep" else 0.0)
    return one, other, example.views(one, images.double()), labels


@pytest.mark.parametrize("name", [name for name in methods.names() if example.trained(methods.get(name))])
def test_gradients_are_those_of_the_whole_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "float", Tensor.double)  # objectives work in float32
    one, other, images, labels = twins(name)
    if one.whole_batch:
        with pytest.raises(UserError, match="mixes the images of a batch within the network"):
            micro_batch.check(one, SIZE)
        return
    micro_batch.check(one, SIZE)
    expected, found = gradients(one, images, labels, 0), gradients(other, images, labels, SIZE)
    assert set(expected) == set(found)
    scale = max(float(value.abs().max()) for value in expected.values())
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-6, atol=1e-6 * scale, msg=key)


class Noisy(nn.Module):
    """A linear layer with dropout, counting its calls."""

    name, dim = "noisy", 5

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop, self.calls = nn.Linear(12, 5), nn.Dropout(0.5), 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return self.drop(torch.tanh(self.layer(images.flatten(1))))


def test_dropout_is_the_same_in_both_passes() -> None:
    """Against the pieces one after the other with everything kept, which draw the same numbers once; the first call,
    of several pieces at a time, shows that numbers are drawn and is done again, in the first step alone."""
    torch.manual_seed(0)
    method = Method(Noisy(), Margin(Margin.Settings(), 4, 3), 3).double().train()
    images, labels = torch.randn(10, 3, 2, 2, dtype=torch.float64), torch.arange(10) % 4
    backbone: Any = method.backbone
    steps = compiling.Compiled(method, micro_batch=4)
    for calls in (6, 5):  # two pieces twice, the last once; and one call of two pieces together
        backbone.calls = 0
        found = gradients(method, images, labels, steps)
        assert backbone.calls == calls
    plain = backbone.forward
    backbone.forward = lambda x: torch.cat([plain(piece) for piece in x.split(4)])
    expected = gradients(method, images, labels, 0)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-12, msg=key)


def test_without_random_numbers_the_first_pass_takes_several_pieces_and_the_last_is_seen_once() -> None:
    method = Method(Noisy(), Margin(Margin.Settings(), 4, 3), 3).double().eval()
    backbone: Any = method.backbone
    images, labels = torch.randn(23, 3, 2, 2, dtype=torch.float64), torch.arange(23) % 4
    found = gradients(method, images, labels, 2)  # 11 pieces of two and one image
    assert backbone.calls == 3 + 11 + 1
    for key, value in gradients(method, images, labels, 0).items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-12, msg=key)


def test_autocast_casts_the_weights_of_the_last_piece_anew() -> None:
    """Those that were cast for the pieces before it have no graph, and autocast keeps them."""
    method = Method(Noisy(), Margin(Margin.Settings(), 4, 3), 3).eval()
    images = torch.randn(10, 3, 2, 2)
    weight = method.backbone.layer.weight
    found = []
    for size in (0, 4):
        with compiling.Compiled(method, micro_batch=size)(), torch.autocast("cpu", torch.bfloat16):
            out = method.backbone(images).float().square().sum()
        found.append(torch.autograd.grad(out, weight, allow_unused=True)[0] if not micro_batch else None)
        if micro_batch:
            weight.grad = None
            out.backward()
            found[-1] = weight.grad
    torch.testing.assert_close(*found, rtol=0.02, atol=0.02)


def test_images_get_their_gradient_too() -> None:
    method = Method(Noisy(), Margin(Margin.Settings(), 4, 3), 3).double().eval()
    images = torch.randn(10, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    found = []
    for size in (0, 4):
        with compiling.Compiled(method, micro_batch=size)():
            found.append(torch.autograd.grad(method(images).square().sum(), images)[0])
    torch.testing.assert_close(*found)


def test_who_needs_the_whole_batch_says_no() -> None:
    method = Method(create("conv4"), Margin(Margin.Settings(), 4, 3), 3).train()
    with pytest.raises(UserError, match=r"batch norms of conv4 .* frozen_norm=statistics"):
        micro_batch.check(method, 4)
    micro_batch.check(method, 0)
    micro_batch.check(method.eval(), 4)
    with pytest.raises(UserError, match="micro_batch = 200 is larger than batch_size = 112"):
        protocol.load("oodml", overrides={"micro_batch": "200"})


def test_runs_without_it_are_the_same_runs_as_before() -> None:
    plain = protocol.load("oodml")
    assert "micro_batch" not in plain.identity()
    assert replace(plain, micro_batch=16).identity()["micro_batch"] == 16
