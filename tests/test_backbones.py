"""Backbones and where their weights come from."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from benchmark import weights
from benchmark.errors import UserError
from methods import MethodError
from methods.parts.backbones import create


def test_the_embedded_network_is_imagenet_trained() -> None:
    backbone = weights.pretrained("efficientnet_lite0").eval()
    assert backbone.dim == 1280
    # the file's own name carries the beginning of its hash
    assert weights.identify("efficientnet_lite0").startswith("57934424")
    first = backbone.network.conv_stem.weight
    state = weights.read(weights._locate("efficientnet_lite0", None)[0])
    assert torch.equal(first, next(iter(state.values())))
    assert backbone(torch.zeros(2, 3, 64, 64)).shape == (2, 1280)


def test_weights_from_a_file_and_from_the_folder(tmp_path, monkeypatch) -> None:
    donor = create("resnet18")
    state = {k: torch.randn_like(v) if v.is_floating_point() else v for k, v in donor.network.state_dict().items()}
    path = tmp_path / "resnet18.tv_in1k.safetensors"
    save_file({**state, "fc.weight": torch.zeros(10, 512), "fc.bias": torch.zeros(10)}, path)
    by_file = weights.pretrained("resnet18", path)
    assert torch.equal(by_file.network.conv1.weight, state["conv1.weight"])
    monkeypatch.setenv("OODML_WEIGHTS", str(tmp_path))
    assert torch.equal(weights.pretrained("resnet18").network.conv1.weight, state["conv1.weight"])
    assert weights.identify("resnet18") == weights.identify("resnet18", path)


def test_a_checkpoint_that_does_not_fit_is_refused_with_its_first_keys(tmp_path) -> None:
    torch.save({"state_dict": {"conv1.weight": torch.zeros(1), "nonsense": torch.zeros(2)}}, tmp_path / "bad.pth")
    with pytest.raises(MethodError, match=r"does not fit resnet18.*conv1.weight.*nonsense"):
        weights.pretrained("resnet18", tmp_path / "bad.pth")


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys) -> None:
    torch.save({"x": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(UserError, match="cannot be read"):
        weights.pretrained("resnet18", tmp_path / "evil.pth")
    assert "code ran" not in capsys.readouterr().out


def test_a_missing_file_and_an_unknown_backbone_are_one_line(tmp_path) -> None:
    with pytest.raises(UserError, match="no such file"):
        weights.pretrained("resnet18", tmp_path / "none.pth")
    with pytest.raises(MethodError, match="did you mean 'resnet50'"):
        create("resnet5O")


def test_no_weights_anywhere_names_the_tag_and_what_to_give(monkeypatch) -> None:
    import timm

    def refuse(*a, pretrained=False, **k):
        raise OSError("no network")

    backbone = create("resnet18")
    monkeypatch.setattr(weights, "create", lambda *a, **k: backbone)
    monkeypatch.setattr(timm, "create_model", refuse)
    monkeypatch.delenv("OODML_WEIGHTS", raising=False)
    with pytest.raises(UserError, match=r"OODML_WEIGHTS is not set.*resnet18.tv_in1k.*--weights FILE"):
        weights.pretrained("resnet18")


def test_frozen_norm_keeps_statistics_and_trains_scale() -> None:
    backbone = create("resnet18", frozen_norm=True).train()
    before = backbone.network.bn1.running_mean.clone()
    backbone(torch.randn(4, 3, 32, 32)).sum().backward()
    assert torch.equal(backbone.network.bn1.running_mean, before)
    assert backbone.network.bn1.weight.grad is not None
    moving = create("conv4").train()
    moving(torch.randn(4, 3, 32, 32))
    assert moving.network.layers[1].running_mean.abs().sum() > 0
