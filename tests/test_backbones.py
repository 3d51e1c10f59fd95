"""Backbones and where their weights come from."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import socket
import time
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import constants, hf_hub_download
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import methods
from benchmark.data import weights
from benchmark.utils.errors import UserError
from methods import MethodError, backbones
from methods.backbones import create
from tests import tiny_runs


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
    with pytest.raises(MethodError, match=r"does not fit resnet18.*conv1.weight.*; 1 unknown, such as nonsense; name"):
        weights.pretrained("resnet18", tmp_path / "bad.pth")
    own = create("resnet18").network.state_dict()
    torch.save({**own, "nonsense": torch.zeros(2)}, tmp_path / "more.pth")
    with pytest.raises(MethodError, match=r"does not fit resnet18: 1 unknown, such as nonsense; name"):
        weights.pretrained("resnet18", tmp_path / "more.pth")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A finished run of two steps with conv4."""
    made = tiny_runs.finished(tmp_path_factory.mktemp("runs"), {"normsoftmax": (0,)})
    (record,) = made.runs.rglob("record.json")
    return record.parent


def test_the_backbone_of_a_finished_run_to_the_bit(run_folder) -> None:
    """The file of a run holds its whole method; read by another road, its backbone is what a new run starts from."""
    with safe_open(run_folder / "weights.safetensors", "pt") as file:
        kept = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        assert file.metadata() == {weights.BACKBONE: "conv4"}
    assert any(key.startswith("objective.") for key in kept)
    for given in (run_folder / "weights.safetensors", str(run_folder)):
        found = weights.pretrained("conv4", given).network.state_dict()
        assert len(found) == sum(key.startswith("backbone.") for key in kept)
        assert all(torch.equal(value, kept[f"backbone.network.{key}"]) for key, value in found.items())
    digest = hashlib.sha256((run_folder / "weights.safetensors").read_bytes()).hexdigest()
    assert weights.identify("conv4", run_folder) == digest


def test_a_run_of_another_backbone_is_refused(run_folder, tmp_path, monkeypatch) -> None:
    alone = shutil.copy(run_folder / "weights.safetensors", tmp_path / "resnet18.tv_in1k.safetensors")
    for given in (run_folder, alone):
        with pytest.raises(UserError, match=r"trained conv4, not resnet18; add --backbone conv4"):
            weights.identify("resnet18", given)
    monkeypatch.setenv("OODML_WEIGHTS", str(tmp_path))
    with pytest.raises(UserError, match=r"trained conv4, not resnet18; add --backbone conv4"):
        weights.identify("resnet18")
    save_file(load_file(alone), tmp_path / "nameless.safetensors")  # as runs of older versions kept theirs
    with pytest.raises(MethodError, match=r"does not fit resnet18.*conv1.weight.*unknown.*layers"):
        weights.pretrained("resnet18", tmp_path / "nameless.safetensors")
    with pytest.raises(UserError, match=r"weights.safetensors: no such file.*scratch"):
        weights.pretrained("conv4", tmp_path)


def test_a_run_fits_every_name_of_its_network(tmp_path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps({"protocol": {"backbone": "resnet18"}}))
    donor = create("resnet18")
    save_file({f"backbone.{key}": value for key, value in donor.state_dict().items()}, tmp_path / "weights.safetensors")
    found = weights.pretrained("resnet18.a1_in1k", tmp_path)
    assert torch.equal(found.network.conv1.weight, donor.network.conv1.weight)


def test_no_weights_on_purpose(monkeypatch) -> None:
    """Nothing is looked for, not even what is embedded, and the seed says what the network starts from."""
    monkeypatch.setattr(weights, "_download", None)
    assert weights.identify("efficientnet_lite0", "scratch") == weights.identify("conv4") == "scratch"
    first, same, other = ([torch.manual_seed(seed), weights.pretrained("resnet18", "scratch").network.conv1.weight][1]
                          for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys) -> None:
    torch.save({"x": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(UserError, match=r"cannot be read: .* more than tensors"):
        weights.pretrained("resnet18", tmp_path / "evil.pth")
    assert "code ran" not in capsys.readouterr().out


def test_a_missing_file_and_an_unknown_backbone_are_one_line(tmp_path) -> None:
    with pytest.raises(UserError, match="no such file"):
        weights.pretrained("resnet18", tmp_path / "none.pth")
    with pytest.raises(MethodError, match="did you mean 'resnet50'"):
        create("resnet5O")


@pytest.mark.parametrize(("network", "way"), [("resnet50_v1", "oodml weights convert"), ("mit_b1", "mit_b1.pth in")])
def test_networks_that_timm_lacks_are_not_said_to_be_downloaded(network: str, way: str, monkeypatch) -> None:
    monkeypatch.delenv("OODML_WEIGHTS", raising=False)
    assert way in weights.described(network, weights.identify(network))
    with pytest.raises(UserError, match=f"no weights for {network}: timm has none of {network}; .*{way}"):
        weights.pretrained(network)


def test_no_weights_anywhere_names_the_tag_and_what_to_give(monkeypatch) -> None:
    def refuse(*a, pretrained=False, **k):
        raise OSError("no network")

    backbone = create("resnet18")
    monkeypatch.setattr("methods.backbones.create", lambda *a, **k: backbone)
    monkeypatch.setattr(timm, "create_model", refuse)
    monkeypatch.setattr(weights, "_unreachable", lambda address: "")
    monkeypatch.delenv("OODML_WEIGHTS", raising=False)
    with pytest.raises(UserError, match=r"OODML_WEIGHTS is not set.*resnet18.tv_in1k.*\(OSError\).*--weights FILE, or "
                                        "take --backbone efficientnet_lite0, which needs no download"):
        weights.pretrained("resnet18")
    monkeypatch.setattr(weights, "EMBEDDED", {})
    with pytest.raises(UserError, match=r"--weights FILE$"):
        weights.pretrained("resnet18")


def test_without_a_network_the_hub_is_neither_waited_for_nor_heard(monkeypatch, capfd, tmp_path) -> None:
    """The hub's own client is asked for a file that no cache has, at an address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("urllib.request.getproxies", dict)
        assert weights._unreachable(address) == ""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    backbone = create("resnet18")
    monkeypatch.setattr("methods.backbones.create", lambda *a, **k: backbone)
    monkeypatch.setattr(timm, "create_model", lambda *a, **k: hf_hub_download("timm/none", "none", cache_dir=tmp_path))
    began = time.monotonic()
    with pytest.raises(UserError, match=r"failed \(127.0.0.1 cannot be reached\)"):
        weights.pretrained("resnet18")
    assert time.monotonic() - began < 10
    assert capfd.readouterr() == ("", "")
    assert constants.HF_HUB_OFFLINE is False
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})
    assert weights._unreachable(address) == ""


def test_a_hub_within_reach_is_asked(monkeypatch) -> None:
    donor = create("resnet18")
    seen = []

    def give(*a, **k):
        seen.append((constants.HF_HUB_OFFLINE, logging.getLogger("huggingface_hub.any").isEnabledFor(logging.WARNING)))
        return donor.network

    level = logging.getLogger("huggingface_hub").level
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(weights, "_unreachable", lambda address: "")
    monkeypatch.setattr(timm, "create_model", give)
    assert torch.equal(weights._download("resnet18")["conv1.weight"], donor.network.conv1.weight)
    assert seen == [(False, False)]
    assert logging.getLogger("huggingface_hub").level == level


def test_frozen_norm_keeps_statistics_and_trains_scale() -> None:
    backbone = create("resnet18", frozen_norm=True).train()
    before = backbone.network.bn1.running_mean.clone()
    backbone(torch.randn(4, 3, 32, 32)).sum().backward()
    assert torch.equal(backbone.network.bn1.running_mean, before)
    assert backbone.network.bn1.weight.grad is not None
    moving = create("conv4").train()
    moving(torch.randn(4, 3, 32, 32))
    assert moving.network.layers[1].running_mean.abs().sum() > 0


@pytest.mark.parametrize("frozen_norm", ["no", "statistics", "all"])
def test_what_of_the_batch_norm_moves_in_a_step(frozen_norm: str) -> None:
    """One step of Adam on everything that a method hands to the optimiser."""
    torch.manual_seed(0)
    method = methods.get("npair").build(create("resnet18", frozen_norm=frozen_norm), 2, 8).train()
    norm = method.backbone.network.bn1
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    optimiser = torch.optim.Adam(method.groups(1e-3, 4e-4), lr=1e-3)
    method.step(torch.randn(4, 3, 32, 32), torch.tensor([0, 0, 1, 1])).loss.backward()
    optimiser.step()
    moved = {name for name, value in norm.state_dict().items() if not torch.equal(value, before[name])}
    learnt, counted = {"weight", "bias"}, {"running_mean", "running_var", "num_batches_tracked"}
    assert moved == {"no": learnt | counted, "statistics": learnt, "all": set()}[frozen_norm]
    assert any(parameter.requires_grad for parameter in method.backbone.parameters())


@pytest.mark.parametrize(("name", "dim", "millions"), [
    ("conv4", 512, 0.09768), ("googlenet", 1024, 5.599904), ("bninception", 1024, 10.270240), ("mit_b1", 512, 13.15),
    ("mit_b2", 512, 24.20), ("resnet18", 512, 11.176512), ("resnet50", 2048, 23.508032), ("resnet101", 2048, 42.500160),
    ("efficientnet_b0", 1280, 4.007548), ("vit_small", 384, 21.665664), ("vit_base", 768, 85.798656),
    ("vit_large", 1024, 303.3), ("deit_small", 384, 21.665664)])
def test_the_papers_backbones_have_their_published_size(name: str, dim: int, millions: float) -> None:
    """Torchvision's, pretrainedmodels' and timm's counts less the classifier; SegFormer's table 1 for MiT."""
    backbone = backbones.skeleton(name)
    assert backbone.dim == dim
    count = sum(p.numel() for p in backbone.parameters()) / 1e6
    assert count == pytest.approx(millions, rel=3e-4 if millions in (13.15, 24.20, 303.3) else 1e-9)


@pytest.mark.parametrize("name", ["conv4", "googlenet", "bninception", "mit_b1", "resnet18", "efficientnet_lite0"])
def test_small_images_and_maps(name: str) -> None:
    """Glyphs of 64 px go through, and the map that comes with the features is the one they are pooled from."""
    backbone = create(name).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        features, (pooled, places) = backbone(images), backbone(images, local=True)
    assert features.shape == (2, backbone.dim)
    assert places.shape[::2] == (2, backbone.local_dim)
    torch.testing.assert_close(features, pooled)
    if name != "conv4":
        torch.testing.assert_close(places.mean(1), pooled)


def test_a_vision_transformer_takes_any_size_and_its_own_unchanged() -> None:
    backbone = create("vit_tiny_patch16_224").eval()
    plain = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    backbone.load(plain.state_dict(), "timm's own")
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), plain(images))
        for size, patches in ((32, 4), (64, 16), (70, 25)):
            pooled, places = backbone(torch.randn(2, 3, size, size), local=True)
            assert places.shape == (2, patches, 192)
            assert pooled.shape == (2, 192)


def test_mix_transformer_block_against_its_formulas() -> None:
    """Attention on a reduced map and the Mix-FFN, written out for one image."""
    from methods.backbones.mit import Attention, MixFFN

    torch.manual_seed(0)
    width, side, ratio = 8, 4, 2
    attention, ffn = Attention(width, 2, ratio).double(), MixFFN(width).double()
    x = torch.randn(1, side * side, width, dtype=torch.double)
    grid = x.reshape(1, side, side, width).permute(0, 3, 1, 2)
    coarse = attention.norm(attention.sr(grid).reshape(1, width, -1).permute(0, 2, 1))[0]
    q, kv = attention.q(x)[0], attention.kv(coarse)
    out = []
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        k, v = kv[:, part], kv[:, width:][:, part]
        out.append(((q[:, part] @ k.T) / 4**0.5).softmax(1) @ v)
    torch.testing.assert_close(attention(x, side, side)[0], attention.proj(torch.cat(out, 1)))
    hidden = ffn.fc1(x).reshape(1, side, side, -1).permute(0, 3, 1, 2)
    mixed = torch.nn.functional.gelu(ffn.dwconv.dwconv(hidden)).permute(0, 2, 3, 1).reshape(1, side * side, -1)
    torch.testing.assert_close(ffn(x, side, side), ffn.fc2(mixed))


def test_googlenet_is_torchvision_s() -> None:
    import torchvision

    donor = torchvision.models.googlenet(weights=None, init_weights=False).eval()
    own = create("googlenet").eval()
    own.load(donor.state_dict(), "torchvision's own file, auxiliary classifiers and all")
    images = torch.randn(2, 3, 64, 64)
    features = []
    donor.avgpool.register_forward_hook(lambda module, inputs, output: features.append(output.flatten(1)))
    with torch.no_grad():
        donor(images)
        torch.testing.assert_close(own(images), features[0])


def test_bn_inception_sees_blue_first_in_bytes() -> None:
    """Normalised by the backbone's mean and std, a red pixel of 255 reaches the first layer as 127 in channel 2."""
    backbone = create("bninception").eval()
    red = torch.tensor([1.0, 0.0, 0.0])
    image = ((red - torch.tensor(backbone.mean)) / torch.tensor(backbone.std))[None, :, None, None].expand(1, 3, 32, 32)
    seen = []
    backbone.network.conv1_7x7_s2.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    backbone(image)
    torch.testing.assert_close(seen[0][0, :, 0, 0], torch.tensor([-104.0, -117.0, 127.0]))
    keys = set(backbone.network.state_dict())
    assert {"inception_3a_double_3x3_2_bn.running_mean", "inception_4e_3x3.bias"} <= keys


def test_lists_of_backbones() -> None:
    generic = backbones.select("generic")
    assert "resnet50.swav" in generic
    assert len(generic) == 7
    assert backbones.select("resnet18,resnet18") == ["resnet18"]
    with pytest.raises(MethodError, match="did you mean"):
        backbones.select("resnet5O")
    with pytest.raises(MethodError, match="timm has no weights 'tv_in1K' of resnet18"):
        create("resnet18.tv_in1K")


def test_the_authors_file_of_swav_loads(tmp_path) -> None:
    """Keys as in the released file: a prefix, the projection head and the prototypes."""
    state = {f"module.{key}": value for key, value in create("resnet50.swav").network.state_dict().items()}
    state |= {"module.projection_head.0.weight": torch.zeros(2, 2), "module.prototypes.weight": torch.zeros(2, 2)}
    create("resnet50.swav").load(state, "swav_800ep_pretrain.pth.tar")
