"""ResNet-50 in He et al.'s layout: weights of the other one, and wrong conversions of theirs, are refused."""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmark.data import weights
from benchmark.training import checkpoint
from benchmark.utils.errors import UserError
from methods import MethodError
from methods.backbones import create, resnet_v1
from methods.backbones.resnet_v1 import KERNEL, PIXELS, TORCHVISION, UNTRAINED, Sample

State = dict[str, Tensor]

made = cache(create)
"""Networks to load into: each is made once, as that takes longer than a test."""


@pytest.fixture(scope="module")
def anyones() -> State:
    """Weights that nobody knows."""
    torch.manual_seed(0)
    state = {key: value.clone() for key, value in made("resnet50").network.state_dict().items()}
    for key in state:
        if key.endswith("bn3.weight"):  # timm starts them at zero, which silences the convolutions
            state[key].fill_(1.0)
    return state


@pytest.fixture
def state(anyones: State) -> State:
    return {key: value.clone() for key, value in anyones.items()}


def planted(state: State, *samples: Sample) -> State:
    """The weights with numbers of known ones in them."""
    for sample in samples:
        found = state[sample.tensor][sample.at]
        state[sample.tensor][sample.at] = torch.tensor(sample.values).view(found.shape)
        assert sample.off(state) < 1e-6
    return state


def loads(name: str, state: State) -> None:
    """Takes the weights without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(name).load(state, "file")


def test_it_halves_the_map_where_he_et_al_do(state: State) -> None:
    """Names and shapes of both layouts agree, features do not."""
    ours, theirs = made("resnet50_v1"), made("resnet50")
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for backbone in (ours, theirs):
            backbone.network.load_state_dict(state)
        maps = [backbone.eval().network.forward_features(images) for backbone in (ours, theirs)]
    assert maps[0].shape == maps[1].shape
    assert not torch.allclose(*maps, atol=1e-3)


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.network.", "module.backbone.network."])
def test_weights_of_either_layout_are_refused_by_the_other(state: State, prefix: str) -> None:
    """Also where they were trained on, are those of a whole method or have the prefix of data parallel training."""
    he = planted({key: value.clone() for key, value in state.items()}, KERNEL, PIXELS)
    named = {prefix + key: value + 0.1 * value.std() if value.ndim == 4 else value for key, value in he.items()}
    loads("resnet50_v1", named)
    for name in ("resnet50", "resnet50:mine", "resnet50.a1_in1k"):
        with pytest.raises(MethodError, match=r"file holds the weights of He et al.*--backbone resnet50_v1"):
            made(name).load(named, "file")
    named = {prefix + key: value for key, value in planted(state, TORCHVISION).items()}
    loads("resnet50", named)
    with pytest.raises(MethodError, match=r"file holds the weights of torchvision.*--backbone resnet50$"):
        made("resnet50_v1@gem").load(named, "file")


@pytest.mark.parametrize("wrong", [lambda kernel: kernel.flip(1), lambda kernel: kernel / (0.225 * 255),
                                   lambda kernel: kernel / 0.225, lambda kernel: kernel.flip(1) / 57])
def test_he_et_als_weights_for_other_pixels_are_refused(state: State, wrong) -> None:
    """Blue first, pixels of 0 .. 255, pixels of 0 .. 1, and Caffe's own; trained on or not."""
    planted(state, KERNEL, PIXELS)
    state["conv1.weight"] = wrong(state["conv1.weight"])
    with pytest.raises(MethodError, match=r"file .* conv1.weight is not for red, green, blue.*oodml weights convert"):
        made("resnet50_v1").load(state, "file")


def test_he_et_als_own_weights_must_give_their_features(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a conversion did: here to the variances of one batch norm."""
    planted(state, *UNTRAINED, PIXELS)
    with pytest.raises(MethodError, match=r"file .* features of a fixed image are .* away"):
        made("resnet50_v1").load(state, "file")
    right = made("resnet50_v1").network
    right.load_state_dict(state)
    monkeypatch.setattr(resnet_v1, "FEATURES", tuple(resnet_v1.features(right).tolist()))
    loads("resnet50_v1", state)
    loads("resnet50_v1", {key: value.half() if value.is_floating_point() else value for key, value in state.items()})
    state["layer4.0.bn3.running_var"] *= 9
    with pytest.raises(MethodError, match=r"file .* features of a fixed image are .* away"):
        made("resnet50_v1").load(state, "file")


@pytest.mark.parametrize("tensor", [sample.tensor for sample in UNTRAINED])
def test_he_et_als_weights_that_were_trained_on_are_not_held_to_their_features(state: State, tensor: str) -> None:
    """All of the network, only its end, only scale and shift, or only its statistics."""
    planted(state, *UNTRAINED, PIXELS)
    state[tensor] *= 1.01
    loads("resnet50_v1", state)


def test_the_check_leaves_the_network_as_it_was() -> None:
    network = create("resnet50_v1").network
    network.bn1.eval()
    before = {name: module.training for name, module in network.named_modules()}
    statistics = {key: value.clone() for key, value in network.state_dict().items()}
    resnet_v1.features(network)
    assert {name: module.training for name, module in network.named_modules()} == before
    assert all(torch.equal(value, statistics[key]) for key, value in network.state_dict().items())


def test_of_unknown_weights_it_is_said_which_layout_was_assumed(state: State) -> None:
    with pytest.warns(UserWarning, match=r"file does not say.*taken for He et al.'s.*--backbone resnet50$"):
        made("resnet50_v1:mine").load(state, "file")
    with pytest.warns(UserWarning, match=r"file does not say.*taken for torchvision's.*--backbone resnet50_v1$"):
        made("resnet50").load(state, "file")
    loads("resnet50.a1_in1k", state)  # timm says it by the tag
    loads("resnet18", create("resnet18").network.state_dict())


@pytest.mark.parametrize(("name", "other"), [("resnet50_v1", "resnet50"), ("resnet50", "resnet50_v1")])
def test_the_weights_of_a_run_name_their_backbone(state: State, tmp_path, name: str, other: str) -> None:
    """So that they are known wherever the file is carried; without the name only their numbers could tell."""
    method = {f"backbone.network.{key}": value for key, value in state.items()}
    checkpoint.save_weights(tmp_path / "mine.safetensors", method, f"{name}@gem")
    with pytest.raises(UserError, match=rf"mine.safetensors: this run trained {name}@gem, not {other}; add --backbone"):
        weights.pretrained(other, tmp_path / "mine.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = weights.pretrained(f"{name}:mine", tmp_path / "mine.safetensors")
    assert torch.equal(found.network.conv1.weight, state["conv1.weight"])
    save_file(method, tmp_path / "nameless.safetensors")
    with pytest.warns(UserWarning, match="does not say for which layout"):
        weights.pretrained(name, tmp_path / "nameless.safetensors")
