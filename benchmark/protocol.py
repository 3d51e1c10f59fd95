"""Protocols: how a study trains and measures, one TOML file each in `protocols/`, every key with its source."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import UserError, near

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "protocols"


@dataclass(frozen=True)
class Protocol:
    """Everything about a training run that is neither the method's nor the data's own.

    A file may hold `[dataset.NAME]`, `[method.NAME]` and `[tag.NAME]` tables, whose keys replace the general
    ones for that dataset, method or every method with that tag, in this order.
    """

    name: str
    backbone: str
    """Short name or timm name."""
    dim: int
    """Numbers in an embedding."""
    epochs: int
    batch_size: int
    lr: float
    """Learning rate of the network; proxies and the like have their own in the method."""
    weight_decay: float
    optimiser: str = "adam"
    """adam or adamw."""
    batches: str = ""
    """Batch sampler; empty: the method's own."""
    steps_per_epoch: int = 0
    """Batches an epoch; 0: as many as there are whole batches in the training set."""
    size: int = 224
    """Side of the square that the network sees."""
    resize: int = 256
    """Shorter side before the centre crop of evaluation."""
    augmentation: str = "base"
    """Named augmentation: base, red, big, adv."""
    scale: tuple[float, float] = (0.08, 1.0)
    """Share of the image's area that a random crop keeps."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    frozen_norm: bool = True
    """Keep the batch-norm statistics of the pretrained network."""
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rates are multiplied by `decay`."""
    decay: float = 0.1
    warmup: int = 0
    """First epochs in which only the embedding layer and the objective train."""
    clip_value: float = 0.0
    """Clamp every gradient element to this size; 0: never."""
    clip_norm: float = 0.0
    """Scale gradients down to this norm; 0: never."""
    evaluate_every: int = 1
    """Epochs between evaluations; the last epoch is always evaluated."""
    validation: bool = False
    """Hold the split's validation classes out of training and choose an epoch by them as well."""
    seeds: int = 5
    """Seeds a study runs where none are named."""
    precision: str = "auto"
    """fp32, bf16, or auto: bf16 autocast on CUDA, fp32 elsewhere."""
    compile: str = "auto"
    """yes, no, or auto: torch.compile on CUDA only."""

    def identity(self) -> dict[str, Any]:
        """What of it changes a result; seeds are counted per run."""
        facts = dataclasses.asdict(self)
        del facts["seeds"]
        return facts


FIELDS = {field.name: field for field in dataclasses.fields(Protocol)}


def names() -> list[str]:
    """The protocols that come with the suite."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def path_of(name: str) -> Path:
    """The file of a protocol: one of the suite's by name, or any TOML file by path."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"unknown protocol '{name}'{near(name, names())}; there are {', '.join(names())}, "
                        "or give the path of a .toml file")
    return path


def load(name: str, *, dataset: str = "", method: str = "", tags: tuple[str, ...] = (),
         overrides: dict[str, Any] | None = None) -> Protocol:
    """The protocol for one dataset and method, `--set` on top.

    >>> load("oodml").epochs, load("oodml", dataset="sop").epochs
    (200, 150)
    """
    path = path_of(name)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"protocol {path}: {error}") from None
    parts = {kind: table.pop(kind, {}) for kind in ("dataset", "tag", "method")}
    values = {"name": path.stem, **table, **parts["dataset"].get(dataset, {})}
    for tag in tags:
        values |= parts["tag"].get(tag, {})
    values |= parts["method"].get(method.partition(":")[0], {})
    values |= overrides or {}
    for key in values:
        if key not in FIELDS:
            raise UserError(f"protocol {path.stem} has no key '{key}'{near(key, FIELDS)}; "
                            f"`oodml protocols show {path.stem}` lists them")
    missing = [key for key, field in FIELDS.items() if field.default is dataclasses.MISSING and key not in values]
    if missing:
        raise UserError(f"protocol {path}: missing {', '.join(missing)}")
    return Protocol(**{key: _typed(key, value, path.stem) for key, value in values.items()})


def _typed(key: str, value: Any, where: str) -> Any:
    """A TOML value or command-line text as the type that the key is declared with."""
    kind = FIELDS[key].type
    try:
        if kind == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if str(kind).startswith("tuple"):
            element = int if "int" in str(kind) else float
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(element(part) for part in parts)
        number = {"int": int, "float": float, "str": str}[str(kind)](value)
    except (KeyError, ValueError, TypeError):
        raise UserError(f"protocol {where}: {key} = {value!r} is not a {kind}") from None
    least = {"epochs": 0, "lr": 0, "weight_decay": 0, "batch_size": 2, "dim": 1,
             "size": 1, "resize": 1, "evaluate_every": 1}
    if key in least and number < least[key]:
        raise UserError(f"protocol {where}: {key} = {value!r} is out of range")
    return number

