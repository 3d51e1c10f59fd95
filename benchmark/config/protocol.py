"""Protocols: how a study trains and measures, one TOML file each in `protocols/`, every key with its source."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmark.config import toml
from benchmark.utils.errors import UserError, near

if TYPE_CHECKING:
    from benchmark.data.augment import Transform
    from methods import Entry

FOLDER = Path(__file__).parent / "protocols"
KINDS = ("dataset", "tag", "method", "both")
"""Tables of a file whose keys replace the general ones, in this order."""
SETTINGS = "settings"
"""The table that changes methods' own settings: [settings.margin]."""
BASE = "base"
"""The table that changes settings of the objective under a method on a dataset: [base.cars.s2sd]."""
SIZES = {"big": 256}
"""Image sizes of augmentations that have one of their own; of all others it is 224."""
LEAST = {"epochs": 0, "lr": 0, "weight_decay": 0, "batch_size": 2, "dim": 1, "steps_per_epoch": 0, "size": 0,
         "head_rate": 0,
         "resize": 1, "flip": 0, "decay": 0, "warmup": 0, "clip_value": 0, "clip_norm": 0, "evaluate_every": 1,
         "train_shots": 0, "seeds": 1}
MOST = {"flip": 1}
FROZEN_NORM = {True: "statistics", False: "no"}
"""What `frozen_norm` was called before `all` came; identities still call it so."""
CHOICES = {"optimiser": ("adam", "adamw"), "precision": ("auto", "fp32", "bf16"),
           "compile": ("auto", "yes", "graphs", "no"), "interpolation": ("bilinear", "bicubic"),
           "clustering": ("no", "last", "every"), "frozen_norm": (*FROZEN_NORM.values(), "all")}
LATER = {"clustering": "no", "head_rate": 1.0}
"""Keys that came later, with the value at which a run is the same as those before them: then they do not count."""
FORMS = {"int": ("a whole number", "200"), "float": ("a number", "0.1"), "bool": ("true or false", "true"),
         "tuple[float, float]": ("two numbers", "0.2,1.0"), "tuple[int, ...]": ("whole numbers", "100,150")}
"""What the types of keys are called, and how a value is written after `--set KEY=`."""


def key(meaning: str, default: Any = dataclasses.MISSING) -> Any:
    """A key of a protocol: what it means and, unless every file must say it, its default."""
    return dataclasses.field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Protocol:
    """Everything about a training run that is neither the method's nor the data's own.

    A file may hold `[dataset.NAME]`, `[tag.NAME]` and `[method.NAME]` tables, whose keys replace the general
    ones for that dataset, every method with that tag or family, or that method, in this order; at last
    `[both.DATASET.METHOD]` for that method on that dataset.
    """

    name: str = key("the file's name")
    backbone: str = key("short name or timm name of the network")
    dim: int = key("numbers in an embedding")
    epochs: int = key("passes over the training set")
    batch_size: int = key("images in a batch")
    lr: float = key("learning rate of the network; the method has those of proxies and the like, as multiples of it")
    weight_decay: float = key("weight decay of the network; proxies and the like have none")
    optimiser: str = key("adam or adamw", "adam")
    head_rate: float = key("learning rate of the embedding layer, times lr", 1.0)
    batches: str = key("batch sampler; empty: the method's own", "")
    steps_per_epoch: int = key("at most so many batches an epoch; 0: all whole ones that the training set has", 0)
    train_shots: int = key("images of each training class that are trained on; 0: all", 0)
    augmentation: str = key("named augmentation of training images: base, red, big, adv, adv_released", "base")
    size: int = key("side of the square that the network sees; 0: the augmentation's own (224, big 256)", 0)
    resize: int = key("shorter side before the centre crop of evaluation", 256)
    scale: tuple[float, float] | None = key("share of the image's area that a random crop keeps; "
                                            "not given: the augmentation's own", None)
    flip: float | None = key("probability of a horizontal flip; not given: the augmentation's own", None)
    interpolation: str = key("filter of resizing: bilinear or bicubic", "bilinear")
    frozen_norm: str = key("what of the pretrained network's batch norm stays: its statistics, all (scale and shift "
                           "too), or no", "statistics")
    milestones: tuple[int, ...] = key("epochs after which all learning rates are multiplied by `decay`", ())
    decay: float = key("factor of the milestones", 0.1)
    warmup: int = key("first epochs in which only the embedding layer and the objective train", 0)
    clip_value: float = key("clamp every gradient element to this size; 0: never", 0.0)
    clip_norm: float = key("scale gradients down to this norm; 0: never", 0.0)
    evaluate_every: int = key("epochs between evaluations; the last epoch is always evaluated", 1)
    train_structure: bool = key("measure the structure of the training embeddings as well", True)
    clustering: str = key("NMI and F1 of a k-means clustering of the test embeddings: no, after the last epoch, or at "
                          "every evaluation, so that the other rules that choose an epoch have them too", "no")
    validation: bool = key("hold the split's validation classes out of training, so that the rule `validation` can "
                           "choose an epoch beside `last` and `best-test`", False)
    seeds: int = key("seeds a study runs where none are named", 5)
    precision: str = key("fp32, bf16, or auto: bf16 autocast on CUDA, fp32 elsewhere", "auto")
    compile: str = key("yes, graphs (CUDA graphs alone), no, or auto: on CUDA torch.compile for long runs, graphs for "
                       "short ones", "auto")

    def __post_init__(self) -> None:
        if isinstance(self.frozen_norm, bool):  # of a run's spec
            object.__setattr__(self, "frozen_norm", FROZEN_NORM[self.frozen_norm])

    def identity(self) -> dict[str, Any]:
        """What of it changes a result; seeds are counted per run.

        `precision` and `compile` change the last digits, so they count as they are written: a run that asks for fp32
        is another one than a run that leaves it open, but `auto` is one run on whatever device it happens to be done.
        """
        facts = dataclasses.asdict(self)
        del facts["seeds"]
        facts["frozen_norm"] = {new: old for old, new in FROZEN_NORM.items()}.get(self.frozen_norm, self.frozen_norm)
        for late, usual in LATER.items():
            if facts[late] == usual:
                del facts[late]
        return facts

    def transform(self, **pixels: Any) -> Transform:
        """How images reach a network: the augmentation as this protocol changes it; `pixels`: mean, std of weights."""
        from benchmark.data.augment import Transform  # brings torch along, which a list of protocols does not need

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
         overrides: dict[str, Any] | None = None) -> Protocol:
    """The protocol for one dataset and method, `--set` on top.

    >>> load("oodml").epochs, load("oodml", dataset="sop").epochs
    (200, 150)
    """
    path = path_of(name)
    table = toml.table(path)
    _check_tables(path, table, dataset, method)
    parts = {kind: table.pop(kind, {}) for kind in KINDS}
    for own in (SETTINGS, BASE):
        table.pop(own, None)
    values = {"name": path.stem, **table, **parts["dataset"].get(dataset, {})}
    for tag in tags:
        values |= parts["tag"].get(tag, {})
    head = method.partition(":")[0]
    values |= parts["method"].get(head, {}) | parts["both"].get(dataset, {}).get(head, {})
    if "name" in (overrides or {}):
        raise UserError("a protocol is called by its file: --protocol NAME, or copy the file under another name")
    values |= overrides or {}
    for given in values:
        _check_key(path, given)
    missing = [name for name, field in FIELDS.items() if field.default is dataclasses.MISSING and name not in values]
    if missing:
        raise UserError(f"protocol {path}: missing {', '.join(missing)}")
    found = Protocol(**{name: _typed(name, value, f"protocol {path.stem}") for name, value in values.items()})
    return found if found.size else dataclasses.replace(found, size=SIZES.get(found.augmentation, 224))


def settings_of(name: str, entry: Entry) -> dict[str, Any]:
    """What a protocol changes of a method's own settings, by its tags, as far as it has them, and by its name.

    >>> import methods
    >>> settings_of("oodml", methods.get("margin")), settings_of("uml", methods.get("hyp"))
    ({}, {'temperature': 0.1})
    """
    tables = toml.table(path_of(name)).get(SETTINGS, {})
    known = {field.name for field in dataclasses.fields(entry.cls.Settings)}  # type: ignore[attr-defined]
    tagged = {key: value for tag in (entry.family, *entry.tags) for key, value in tables.get(tag, {}).items()
              if key in known}
    return tagged | tables.get(entry.name.partition(":")[0], {})


def base_settings_of(name: str, entry: Entry, dataset: str) -> dict[str, Any]:
    """What a protocol changes of the objective under a method on a dataset, if it is the method's usual one.

    >>> import methods
    >>> base_settings_of("oodml", methods.get("s2sd"), "cars")
    {'p': 0.3}
    """
    usual = entry.base is not None and entry.base.name == entry.default_base
    tables = toml.table(path_of(name)).get(BASE, {}).get(dataset, {}) if usual else {}
    return tables.get(entry.name.partition(":")[0], {})


class Explained(NamedTuple):
    """One line of a protocol: in which table (empty: the general keys), and where the value comes from."""

    table: str
    key: str
    value: Any
    meaning: str
    source: str


def explain(name: str) -> Iterator[Explained]:
    """Every key of a protocol with its value, its meaning and the comment behind it in the file.

    >>> next(line for line in explain("oodml") if line.key == "lr")
    Explained(table='', key='lr', value=1e-05, meaning='learning rate of the network; the method has those of \
proxies and the like, as multiples of it', source='supplement B')
    """
    path = path_of(name)
    general, table, comments = load(name), toml.table(path), _comments(path)
    for given, field in FIELDS.items():
        if given != "name":
            source = comments.get(("", given), "") if given in table else "default"
            yield Explained("", given, getattr(general, given), field.metadata["meaning"], source)
    for kind, owners, changes in _tables(path, table):
        place = ".".join((kind, *owners))
        for given, value in changes.items():
            meaning = FIELDS[given].metadata["meaning"] if kind in KINDS else ""
            yield Explained(place, given, value, meaning, comments.get((place, given), ""))


def summary(name: str) -> str:
    """The first comment of a protocol's file."""
    return toml.text(path_of(name)).partition("\n")[0].strip().lstrip("# ")


def _tables(path: Path, table: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Every table of a file: its kind, whom it is for, and its keys."""
    for kind in (*KINDS, SETTINGS, BASE):
        double = kind in ("both", BASE)
        form = f"write [{kind}.{'DATASET.METHOD' if double else 'NAME'}] above its keys"
        if not isinstance(table.get(kind, {}), dict):
            raise UserError(f"protocol {path}: {kind} = {table[kind]!r} is no table; {form}")
        for owner, changes in table.get(kind, {}).items():
            inner = changes.items() if double and isinstance(changes, dict) else [("", changes)]
            for method, keys in inner:
                owners = (owner, method) if double else (owner,)
                if not isinstance(keys, dict):
                    raise UserError(f"protocol {path}: {'.'.join((kind, *owners))} is no table; {form}")
                yield kind, owners, keys


def _check_tables(path: Path, table: dict[str, Any], dataset: str, method: str) -> None:
    """A UserError for an unknown key in a table, or a table whose name is a slip of the pen: it would change nothing.

    Other unknown names are left alone: they may be a plug-in's, or a dataset of one's own. Names are looked at only
    when the protocol is read for a method.
    """
    for kind, owners, keys in _tables(path, table):
        for given in keys if kind in KINDS else ():
            _check_key(path, given)
        if not method or path.parent == FOLDER:  # these a test holds; methods would bring torch, and lack plug-ins
            continue
        for what, owner in zip(("dataset", "method") if len(owners) == 2 else (kind,), owners):
            if meant := toml.slip(owner, _known(what, dataset)):
                mend = "give it a name less like that" if what == "dataset" else "load it with --plugin FILE"
                raise UserError(f"protocol {path}: [{'.'.join((kind, *owners))}] changes nothing: there is no "
                                f"{'method or tag' if what == SETTINGS else what} '{owner}' (did you mean '{meant}'?); "
                                f"if it is your own, {mend}")


def _known(kind: str, dataset: str) -> list[str]:
    """Whom a table may be for: the dataset that is run, methods, tags with families, or the latter two."""
    if kind == "dataset":
        return [dataset] if dataset else []
    import methods

    names = methods.names()
    return {"method": names, "tag": _tags(*names), SETTINGS: [*names, *_tags(*names)]}[kind]


@cache
def _tags(*names: str) -> list[str]:
    import methods

    return sorted({tag for name in names for tag in methods.get(name).kinds})


def _check_key(path: Path, given: str) -> None:
    if given not in FIELDS:
        raise UserError(f"protocol {path.stem} has no key '{given}'{near(given, (*FIELDS, *KINDS, SETTINGS, BASE))}; "
                        "`oodml protocols show oodml` lists them all")


def _comments(path: Path) -> dict[tuple[str, str], str]:
    """What stands behind each key, by table and key."""
    found, table = {}, ""
    for line in toml.text(path).splitlines():
        if header := re.match(r"\[([\w.\"+-]+)\]", line):
            table = header[1].replace('"', "")
        elif entry := re.match(r"(\w+)\s*=[^#]*#\s*(.*)", line):
            found[table, entry[1]] = entry[2]
    return found


def _typed(name: str, value: Any, where: str) -> Any:
    """A TOML value or command-line text as the type that the key is declared with."""
    kind = str(FIELDS[name].type).removesuffix(" | None")
    if name == "frozen_norm":
        value = {"true": FROZEN_NORM[True], "false": FROZEN_NORM[False]}.get(str(value).lower(), value)
    try:
        if kind == "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if kind.startswith("tuple"):
            element = int if "int" in kind else float
            given = value if not isinstance(value, str) else value.split(",") if value else ()
            parts = tuple(element(part) for part in given)
            if kind.count("float") not in (0, len(parts)):
                raise ValueError
            return parts
        found = {"int": int, "float": float, "str": str}[kind](value)
        if kind in ("int", "float") and (isinstance(value, bool) or (isinstance(value, float) and found != value)):
            raise ValueError
    except (KeyError, ValueError, TypeError):
        form, example = FORMS[kind]
        raise UserError(f"{where}: {name} = {value!r} must be {form}, such as --set {name}={example}") from None
    if kind == "float" and not math.isfinite(found):
        raise UserError(f"{where}: {name} = {value!r} must be finite")
    if name in LEAST and found < LEAST[name]:
        raise UserError(f"{where}: {name} = {value!r} must be at least {LEAST[name]}")
    if name in MOST and found > MOST[name]:
        raise UserError(f"{where}: {name} = {value!r} must be at most {MOST[name]}")
    if name in CHOICES and found not in CHOICES[name]:
        raise UserError(f"{where}: {name} = {value!r} is none of {', '.join(CHOICES[name])}"
                        f"{near(str(found), CHOICES[name])}")
    return found
