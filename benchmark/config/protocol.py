"""Protocols: how a study trains and measures, one TOML file each in `protocols/`, every key with its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from annotated_types import Ge, Gt, Le

from benchmark.config import protocol_file, toml
from benchmark.config.protocol_file import BASE, EVERY, FOLDER, KINDS, SETTINGS
from benchmark.data.transform import NAMED, Transform
from benchmark.utils.errors import UserError

if TYPE_CHECKING:
    from methods import Entry

FROZEN_NORM = {True: "statistics", False: "no"}
"""What `frozen_norm` was called before `all` came; identities still call it so."""
LATER = {"clustering": "no", "head_rate": 1.0, "cosine": None, "micro_batch": 0, "epsilon": 1e-8,
         "objective_decay": 0.0, "head_start": "uniform", "image_side": 256}
"""Keys that came later, with the value at which a run is the same as those before them: then they do not count."""
Count = Annotated[int, Ge(0), Le(10**9)]
Positive = Annotated[int, Ge(1), Le(10**9)]
Amount = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]


def key(meaning: str, default: Any = dataclasses.MISSING) -> Any:
    """A key of a protocol: what it means and, unless every file must say it, its default."""
    return dataclasses.field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Protocol:
    """Everything about a training run that is neither the method's nor the data's own.

    A file may hold `[dataset.NAME]`, `[tag.NAME]` and `[method.NAME]` tables, whose keys replace the general
    ones for that dataset, every method with that tag or family, or that method, in this order; at last
    `[both.DATASET.METHOD]` for that method on that dataset. `[settings.NAME]` changes settings of a method or of all
    with a tag, `[base.DATASET.METHOD]` those of the objective under a method, on that dataset or on `all`. A value is
    written alone or with its source, `epochs = { value = 200, source = "section 4" }`. `extends = "oodml"` takes all
    that the file does not say from another one, as if these lines stood there.
    """

    name: str = key("the file's name")
    backbone: str = key("short name or timm name of the network")
    dim: Positive = key("numbers in an embedding")
    epochs: Count = key("passes over the training set")
    batch_size: Annotated[int, Ge(2)] = key("images in a batch")
    lr: Amount = key("learning rate of the network; the method has those of proxies and the like, as multiples of it")
    weight_decay: Amount = key("weight decay of the network")
    objective_decay: Amount = key("weight decay of proxies and the like", 0.0)
    optimiser: Literal["adam", "adamw"] = key("adam or adamw", "adam")
    epsilon: Annotated[float, Gt(0)] = key("epsilon of either: gradients well above it make steps of the learning "
                                           "rate, those below it smaller ones", 1e-8)
    head_rate: Amount = key("learning rate of the embedding layer, times lr", 1.0)
    head_start: Literal["uniform", "normal", "orthogonal"] = key(
        "first weights of the embedding layer: uniform as torch draws them, normal with variance 2 / dim, orthogonal",
        "uniform")
    micro_batch: Count = key("images that the network sees at a time, where a batch does not fit in memory: the "
                             "gradient stays that of the whole batch; 0: all", 0)
    batches: str = key("batch sampler; empty: the method's own", "")
    steps_per_epoch: Count = key("at most so many batches an epoch; 0: all whole ones that the training set has", 0)
    train_shots: Count = key("images of each training class that are trained on; 0: all", 0)
    augmentation: str = key("named augmentation of training images: base, red, big, adv, adv_released", "base")
    size: Count = key("side of the square that the network sees; 0: the augmentation's own (224, big 256)", 0)
    resize: Positive = key("shorter side before the centre crop of evaluation", 256)
    image_side: Annotated[int, Ge(256), Le(10**9)] = key(
        "shorter side of the decoded images that crops are cut from, where they are larger", 256)
    scale: tuple[float, float] | None = key("share of the image's area that a random crop keeps; "
                                            "not given: the augmentation's own", None)
    flip: Share | None = key("probability of a horizontal flip; not given: the augmentation's own", None)
    interpolation: Literal["bilinear", "bicubic"] = key("filter of resizing: bilinear or bicubic", "bilinear")
    frozen_norm: Literal["statistics", "no", "all"] | bool = key(
        "what of the pretrained network's batch norm stays: its statistics, all (scale and shift too), or no",
        "statistics")
    milestones: tuple[int, ...] = key("epochs after which all learning rates are multiplied by `decay`", ())
    decay: Amount = key("factor of the milestones", 0.1)
    cosine: Share | None = key("share of their start to which all learning rates fall along half a cosine, step by "
                               "step; not given: they do not", None)
    warmup: Count = key("first epochs in which only the embedding layer and the objective train", 0)
    clip_value: Amount = key("clamp every gradient element to this size; 0: never", 0.0)
    clip_norm: Amount = key("scale gradients down to this norm; 0: never", 0.0)
    evaluate_every: Positive = key("epochs between evaluations; the last epoch is always evaluated", 1)
    train_structure: bool = key("measure the structure of the training embeddings as well", True)
    clustering: Literal["no", "last", "every"] = key(
        "NMI and F1 of a k-means clustering of the test embeddings: no, after the last epoch, or at every evaluation, "
        "so that the other rules that choose an epoch have them too", "no")
    validation: bool = key("hold the split's validation classes out of training, so that the rule `validation` can "
                           "choose an epoch beside `last` and `best-test`", False)
    seeds: Annotated[int, Ge(1), Le(10_000)] = key("seeds a study runs where none are named", 5)
    precision: Literal["auto", "fp32", "tf32", "bf16"] = key(
        "fp32, tf32, bf16, or auto: bf16 autocast on CUDA, fp32 elsewhere", "auto")
    compile: Literal["auto", "yes", "graphs", "no"] = key(
        "yes, graphs (CUDA graphs alone), no, or auto: on CUDA torch.compile for long runs, graphs for short ones",
        "auto")

    __pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}

    def __post_init__(self) -> None:
        if isinstance(self.frozen_norm, bool):  # of a run's spec
            object.__setattr__(self, "frozen_norm", FROZEN_NORM[self.frozen_norm])
        if self.micro_batch > self.batch_size:
            raise UserError(f"micro_batch = {self.micro_batch} is larger than batch_size = {self.batch_size}: it must "
                            "be a part of a batch, or 0")
        if self.cosine is not None and self.milestones:
            raise UserError(f"milestones = {list(self.milestones)} and cosine = {self.cosine}: learning rates fall by "
                            "one of them; leave cosine out, or give milestones = [] (--set milestones=)")

    def identity(self) -> dict[str, Any]:
        """What of it changes a result; seeds are counted per run.

        `precision` and `compile` change the last digits, so they count as they are written: a run that asks for fp32
        is another one than a run that leaves it open, but `auto` is one run on whatever device it happens to be done.
        """
        facts = dataclasses.asdict(self)
        del facts["seeds"]
        facts["frozen_norm"] = next((old for old, new in FROZEN_NORM.items() if new == self.frozen_norm),
                                    self.frozen_norm)
        for late, usual in LATER.items():
            if facts[late] == usual:
                del facts[late]
        return facts

    @property
    def decoded_side(self) -> int:
        """The shorter side of the decoded images: as large as evaluation looks at them, too."""
        return max(self.image_side, self.resize)

    def transform(self, **pixels: Any) -> Transform:
        """How images reach a network: the augmentation as this protocol changes it; `pixels`: mean, std of weights."""
        changes = {name: getattr(self, name) for name in ("scale", "flip") if getattr(self, name) is not None}
        return Transform.named(self.augmentation, size=self.size, resize=self.resize,
                               interpolation=self.interpolation, **changes, **pixels)


FIELDS = {field.name: field for field in dataclasses.fields(Protocol)}


def names() -> list[str]:
    """The protocols that come with the suite."""
    return toml.names(FOLDER)


def path_of(name: str) -> Path:
    """The file of a protocol: one of the suite's by name, or any TOML file by path."""
    return toml.find(FOLDER, "protocol", name)


def load(name: str, *, dataset: str = "", method: str = "", tags: tuple[str, ...] = (),
         overrides: Mapping[str, Any] | None = None) -> Protocol:
    """The protocol for one dataset and method, `--set` on top.

    >>> load("oodml").epochs, load("oodml", dataset="sop").epochs
    (200, 150)
    """
    path, overrides = path_of(name), overrides or {}
    tables = protocol_file.tables(path, FIELDS)
    protocol_file.check_owners(path, dataset, method)
    if "name" in overrides:
        raise UserError("a protocol is called by its file: --protocol NAME, or copy the file under another name")
    head = method.partition(":")[0]
    values: dict[str, Any] = {"name": path.stem}
    for owner in ((), ("dataset", dataset), *(("tag", tag) for tag in tags), ("method", head), ("both", dataset, head)):
        values |= {key: entry.value for key, entry in tables.get(owner, {}).items()}
    for key, value in overrides.items():
        several = isinstance(value, str) and key in FIELDS and "tuple" in str(FIELDS[key].type)
        values[key] = [part for part in value.split(",") if part] if several else value
    needed = {name for name, one in FIELDS.items()
              if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING}
    if lacking := sorted(needed - {*values}):
        raise UserError(f"protocol {path}: missing {', '.join(lacking)}; `extends = \"oodml\"` as its first line takes "
                        "them from another protocol")
    protocol = toml.build(Protocol, values, f"protocol {path.stem}")
    if protocol.size:
        return protocol
    # a plan says that an augmentation is unknown, with the names of those there are
    return dataclasses.replace(protocol, size=NAMED.get(protocol.augmentation, {}).get("size", Transform.size))


def settings_of(name: str, entry: Entry) -> dict[str, Any]:
    """What a protocol changes of a method's own settings, by its tags, as far as it has them, and by its name.

    >>> import methods
    >>> settings_of("oodml", methods.get("margin")), settings_of("uml", methods.get("hyp"))
    ({}, {'temperature': 0.1, 'pairs_released': True})
    """
    tables = protocol_file.tables(path_of(name), FIELDS)
    known = {field.name for field in dataclasses.fields(entry.declared.Settings)}  # type: ignore[attr-defined]
    tagged = {key: line for tag in (entry.family, *entry.tags)
              for key, line in tables.get((SETTINGS, tag), {}).items() if key in known}
    own = tables.get((SETTINGS, entry.name.partition(":")[0]), {})
    return {key: line.value for key, line in (tagged | own).items()}


def base_settings_of(name: str, entry: Entry, dataset: str) -> dict[str, Any]:
    """What a protocol changes of the objective under a method on a dataset, if it is the method's usual one.

    >>> import methods
    >>> base_settings_of("oodml", methods.get("s2sd"), "cars")
    {'released_divisor': True, 'limit': 2.0, 'p': 0.3}
    """
    if entry.base is None or entry.base.name != entry.default_base:
        return {}
    tables, head = protocol_file.tables(path_of(name), FIELDS), entry.name.partition(":")[0]
    changes = tables.get((BASE, EVERY, head), {}) | tables.get((BASE, dataset, head), {})
    return {key: line.value for key, line in changes.items()}


class Explained(NamedTuple):
    """One line of a protocol: in which table (empty: the general keys), and where the value comes from."""

    table: str
    key: str
    value: Any
    meaning: str
    source: str


def explain(name: str) -> Iterator[Explained]:
    """Every key of a protocol with its value, its meaning and its source.

    >>> next(line for line in explain("oodml") if line.key == "lr")
    Explained(table='', key='lr', value=1e-05, meaning='learning rate of the network; the method has those of \
proxies and the like, as multiples of it', source='supplement B')
    """
    general, tables = load(name), protocol_file.tables(path_of(name), FIELDS)
    for key, field in FIELDS.items():
        if key != "name":
            source = tables[()][key].source if key in tables[()] else "default"
            yield Explained("", key, getattr(general, key), field.metadata["meaning"], source)
    for place, entries in tables.items():
        for key, (value, source) in entries.items() if place else ():
            meaning = FIELDS[key].metadata["meaning"] if place[0] in KINDS else ""
            yield Explained(".".join(place), key, value, meaning, source)


def summary(name: str) -> str:
    """What a protocol's file says of itself in one line."""
    return str(toml.table(path_of(name)).get("summary", ""))
