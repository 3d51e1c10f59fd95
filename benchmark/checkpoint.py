"""The state of a run between two epochs: one folder of safetensors and JSON, swapped in atomically."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

NAME = "checkpoint"


def save(folder: Path, tensors: dict[str, dict[str, Any]], state: dict[str, Any]) -> None:
    """Write a checkpoint so that a kill at any moment leaves the old one or the new one, never half of one.

    `tensors` maps a part's name (method, optimiser, sampler) to its state dict.
    """
    fresh = folder / f".{NAME}-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    flat: dict[str, Tensor] = {}
    plan = {part: _flatten(value, part, flat) for part, value in tensors.items()}
    # safetensors refuses tensors that share memory, hence the copies
    copies = {key: value.detach().cpu().contiguous().clone() for key, value in flat.items()}
    save_file(copies, fresh / "tensors.safetensors")
    (fresh / "state.json").write_text(json.dumps({"state": state, "plan": plan}))
    for path in fresh.iterdir():
        _flush(path)
    # Epochs are in the names: two renames could lose both, one new name and a late delete cannot.
    target = folder / f"{NAME}-{state['epoch']:05d}"
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    _flush(folder)
    for old in sorted(folder.glob(f"{NAME}-*"))[:-1]:
        shutil.rmtree(old, ignore_errors=True)


def save_weights(path: Path, state: dict[str, Tensor]) -> None:
    """One state dict as safetensors, all of it or nothing."""
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    save_file({key: value.detach().cpu().contiguous().clone() for key, value in state.items()}, fresh)
    _flush(fresh)
    fresh.rename(path)


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The newest checkpoint as (state dicts by part, state), or None."""
    for path in sorted(folder.glob(f"{NAME}-*"), reverse=True):
        content = json.loads((path / "state.json").read_text())
        flat = load_file(path / "tensors.safetensors")
        return {part: _restore(plan, flat) for part, plan in content["plan"].items()}, content["state"]
    return None


def remove(folder: Path) -> None:
    """Delete the checkpoints of a finished run, and what a kill left of unfinished ones."""
    for path in [*folder.glob(f"{NAME}-*"), *folder.glob(f".{NAME}-*")]:
        shutil.rmtree(path, ignore_errors=True)


def _flatten(value: Any, where: str, flat: dict[str, Tensor]) -> Any:
    """Tensors go to `flat` and leave their name; the rest stays as JSON that `_restore` reads back."""
    if isinstance(value, torch.Tensor):
        flat[where] = value
        return {"tensor": where}
    if isinstance(value, dict):
        return {"dict": [[key, _flatten(item, f"{where}.{key}", flat)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_flatten(item, f"{where}.{i}", flat) for i, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    return {"value": value}


def _restore(plan: Any, flat: dict[str, Tensor]) -> Any:
    ((kind, value),) = plan.items()
    if kind == "tensor":
        return flat[value]
    if kind == "dict":
        return {key: _restore(item, flat) for key, item in value}
    if kind in ("list", "tuple"):
        items = [_restore(item, flat) for item in value]
        return tuple(items) if kind == "tuple" else items
    return value


def _flush(path: Path) -> None:
    """Make sure that what was written survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
