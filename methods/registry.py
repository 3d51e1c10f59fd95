"""The register of methods: every file of this folder adds itself, and `get` and `select` find them by name."""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from methods.catalogue import FOLDER, hidden_modules, sources
from methods.method import Method, MethodError, Objective, near

_ENTRIES: dict[str, Entry] = {}
_discovered = False


@dataclass(frozen=True)
class Entry:
    """One registered method: the class, what it is, and what it was published as."""

    name: str
    cls: type
    family: str
    papers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cite: str = ""
    trains: str = "network"
    default_base: str = ""
    base: Entry | None = None
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def summary(self) -> str:
        return (self.cls.__doc__ or "").strip().splitlines()[0] if self.cls.__doc__ else ""

    @property
    def objective(self) -> Entry | None:
        """The entry whose class is the objective: this one, or the base that a network method stands on."""
        return self if issubclass(self.cls, Objective) else self.base

    @property
    def kinds(self) -> tuple[str, ...]:
        """What a protocol may call it: family and tags of the objective that it stands on, then its own."""
        inner = () if self.base is None else (self.base.family, *self.base.tags)
        return (*inner, self.family, *self.tags)

    @property
    def batches(self) -> str:
        return getattr(self.objective.cls if self.objective else self.cls, "batches", "spc-2")

    def settings(self, dataset: str = "", **changes: Any) -> Any:
        """This method's hyper-parameters for a dataset, with what a protocol or the user changes on top."""
        from pydantic import TypeAdapter, ValidationError  # a list of methods does without it

        fields = {f.name: f for f in dataclasses.fields(self.cls.Settings)}  # type: ignore[attr-defined]
        values = {key: f.metadata["per_dataset"][dataset] for key, f in fields.items()
                  if dataset in f.metadata.get("per_dataset", {})}
        values |= dict(self.defaults)
        for key, value in changes.items():
            if key not in fields:
                raise MethodError(f"method {self.name} has no setting '{key}'{near(key, fields)}")
            several = isinstance(value, str) and isinstance(fields[key].default, tuple)
            values[key] = value.split(",") if several else value
        try:
            typed: Any = TypeAdapter(self.cls.Settings).validate_python(values)  # type: ignore[attr-defined]
        except ValidationError as error:
            first = error.errors()[0]
            raise MethodError(f"{self.name}.{first['loc'][0]} = {first['input']!r}: {first['msg']}") from None
        # a run's identity has a number as it was written, 1 or 1.0
        return dataclasses.replace(typed, **{k: v for k, v in values.items() if isinstance(v, (int, float))})

    def stored(self, dataset: str = "", **changes: Any) -> dict[str, Any]:
        """The same as a run's spec holds them: without what came later and is at its default."""
        settings = self.settings(dataset, **changes)
        return {key: value for key, value in dataclasses.asdict(settings).items()
                if not (settings.__dataclass_fields__[key].metadata.get("later")
                        and value == settings.__dataclass_fields__[key].default)}

    def as_trained(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the method and of its base in one, as training takes them and records hold them.

        >>> get("s2sd").as_trained({"own_beta_rate": False, "beta_rate": 50.0})
        {'own_beta_rate': False, 'beta_rate': 1.0}
        """
        changes = {} if self.base is None else self.cls.base_changes(settings)  # type: ignore[attr-defined]
        return {key: changes.get(key, value) for key, value in settings.items()}

    def space(self) -> dict[str, Any]:
        """What `oodml tune` searches of its settings and of those of its objective, by METHOD.SETTING.

        >>> get("uniform-prior").space()["uniform-prior.weight"]
        (0.02, 2.0)
        """
        own = {f"{self.name}.{field.name}": field.metadata["search"]
               for field in dataclasses.fields(self.cls.Settings)  # type: ignore[attr-defined]
               if field.metadata.get("search") is not None}
        return own if self.base is None else own | self.base.space()

    def misfit(self, backbone: nn.Module | str) -> str:
        """Why the method cannot stand on a backbone, given or by name; empty if it can.

        >>> get("margin").misfit("resnet18")
        ''
        """
        own: Any = self.cls
        # what stands on any backbone needs none: making one imports timm, 5 s of a processor
        if issubclass(own, Objective) or own.misfit.__func__ is Method.misfit.__func__:  # type: ignore[attr-defined]
            return ""
        if isinstance(backbone, str):
            from methods.backbones import skeleton

            backbone = skeleton(backbone)
        return own.misfit(backbone)

    def check_build(self, backbone: str, classes: int, dim: int, settings: Any, base_settings: Any = None) -> None:
        """Build the method without memory behind its weights, so that what does not go together is an error early.

        That is a MethodError; all else may come of this way of building alone and is left to the run.
        """
        from methods.backbones import skeleton

        try:
            with torch.device("meta"):
                if issubclass(self.cls, Objective):
                    self.cls(settings, classes, dim)
                else:
                    self.build(copy.deepcopy(skeleton(backbone)), classes, dim, settings, base_settings)
        except MethodError:
            raise
        except Exception:  # such as a number that is read off a weight
            return

    def build(self, backbone: nn.Module, classes: int, dim: int, settings: Any = None,
              base_settings: Any = None) -> Method:
        """The trainable module, for `classes` training classes and embeddings of `dim` numbers."""
        reason = self.misfit(backbone)
        if reason:
            raise MethodError(f"method {self.name}: {reason}")
        settings = self.settings() if settings is None else settings
        if issubclass(self.cls, Objective):
            return Method(backbone, self.cls(settings, classes, dim), dim)
        base = self.base
        objective = None
        if base is not None:
            typed = base.settings() if base_settings is None else base_settings
            changes = self.cls.base_changes(dataclasses.asdict(settings))  # type: ignore[attr-defined]
            typed = dataclasses.replace(typed, **{key: new for key, new in changes.items() if hasattr(typed, key)})
            objective = base.cls(typed, classes, dim)
        return self.cls(backbone, objective, dim, settings)  # type: ignore[call-arg, return-value]


def register(name: str, *, family: str, papers: Iterable[str] = (), tags: Iterable[str] = (), cite: str = "",
             trains: str = "network", base: str = "", defaults: dict[str, Any] | None = None,
             ) -> Callable[[type], type]:
    """Class decorator that adds an `Objective` or a `Method` under its command-line name.

    `base` names the default objective of a `Method` that takes one. Decorators stack: variants of one class
    are further registrations with other `defaults`.
    """

    if not re.fullmatch(r"\w[\w.+-]{0,99}", name):
        raise MethodError(f"{name[:120]!r} is no name for a method: it becomes the name of a folder; use letters, "
                          "digits and . + - _, at most 100 of them")

    def add(cls: type) -> type:
        known = _ENTRIES.get(name)
        here = (cls.__module__, cls.__qualname__)
        if known is not None and (known.cls.__module__, known.cls.__qualname__) != here:
            raise MethodError(f"method '{name}' is registered twice: {known.cls.__module__} and {cls.__module__}")
        _ENTRIES[name] = Entry(name, cls, family, tuple(papers), tuple(tags), cite.strip(), trains, base,
                               defaults=tuple((defaults or {}).items()))
        return cls

    return add


def discover() -> None:
    """Import every file of this folder and every installed plug-in of the entry-point group `oodml.methods`."""
    global _discovered
    if _discovered:
        return
    _discovered = True
    package = importlib.import_module("methods")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg:
            importlib.import_module(f"methods.{module.name}")
    for point in importlib.metadata.entry_points(group="oodml.methods"):
        try:
            point.load()
        except Exception as error:  # somebody's package: the other methods do not depend on it
            owner = point.dist.name if point.dist else point.value
            warnings.warn(f"the methods of the installed package {owner} are left out: {point.value}: "
                          f"{type(error).__name__}: {' '.join(str(error).split())}", stacklevel=2)


def load_plugin(path: str | Path) -> list[str]:
    """Run a Python file that registers methods; returns the names it added. It is code: load only what you trust."""
    discover()
    path = Path(path)
    if not path.is_file():
        raise MethodError(f"plug-in {path}: no such file")
    before = dict(_ENTRIES)
    home = str(path.resolve().parent)
    if home not in sys.path:  # last, so that a file there hides no package; modules beside it may be imported later
        sys.path.append(home)
    spec = importlib.util.spec_from_file_location(f"oodml_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise MethodError(f"plug-in {path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up there to read annotations kept as text
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except MethodError:
        raise
    except Exception as error:
        del sys.modules[spec.name]
        raise MethodError(_why_not(path, str(spec.origin), error)) from error
    for name, file in hidden_modules(path.resolve()):
        raise MethodError(f"plug-in {path}: `import {name}` gives {file}, not the file beside the plug-in; rename that")
    added = sorted(name for name, entry in _ENTRIES.items() if before.get(name) is not entry)
    if not added:
        raise MethodError(f"plug-in {path} registers no method; decorate a class with @methods.register(...)")
    return added


def _why_not(path: Path, origin: str, error: Exception) -> str:
    """One line for a plug-in that does not run: its line where it stopped, the error, and the remedy."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == origin]
    line = lines[-1] if lines else getattr(error, "lineno", None)  # a file that cannot be parsed has no frame
    text = error.msg if isinstance(error, SyntaxError) and not lines else " ".join(str(error).split())
    remedy = ("put it beside the file, or install it where oodml is" if isinstance(error, ModuleNotFoundError) else
              f"correct the file; `python {path}` shows the whole traceback")
    return f"plug-in {path}{f', line {line}' if line else ''}: {type(error).__name__}: {text}; {remedy}"


def names(tag: str | None = None) -> list[str]:
    """All registered names in order; with `tag`, those with this tag, family or paper."""
    discover()
    return sorted(n for n, e in _ENTRIES.items() if tag is None or tag in (*e.tags, e.family, *e.papers))


def get(name: str) -> Entry:
    """The method of this name; `a:b` is the network method a on the objective b."""
    discover()
    head, _, tail = name.partition(":")
    if head not in _ENTRIES:
        raise MethodError(f"unknown method '{head}'{near(head, _ENTRIES)}; `oodml methods` lists all")
    entry = _ENTRIES[head]
    if tail and not entry.default_base:
        raise MethodError(f"method '{head}' takes no base objective, so '{name}' means nothing")
    if not entry.default_base:
        return entry
    base = get(tail or entry.default_base)
    if not issubclass(base.cls, Objective):
        raise MethodError(f"'{base.name}' in '{name}' is not an objective that another method can build on")
    return dataclasses.replace(entry, name=name, base=base)


def create(name: str, backbone: nn.Module | str, *, classes: int, dim: int = 128, dataset: str = "",
           **settings: Any) -> Method:
    """A method ready to be trained, by name: a network whose `step(images, labels)` gives loss and embeddings.

    Args:
        name: as in `get`.
        backbone: a network with its weights, or the name of one, which then has random weights.
        classes: how many training classes there are; labels are 0 .. classes - 1.
        dim: the dimension of an embedding.
        dataset: whose settings are taken where the paper has one for each dataset.
        settings: the method's own hyper-parameters that differ from the paper's.

    >>> create("margin", "conv4", classes=10, dim=64, beta=0.6).embed(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    entry = get(name)
    if isinstance(backbone, str):
        from methods import backbones

        backbone = backbones.create(backbone)
    return entry.build(backbone, classes, dim, entry.settings(dataset, **settings))


def _home(module: str, file: Path) -> Path:
    """The folder that a plug-in's absolute imports begin at: beside the file, or beside the package that it is in."""
    return file.parents[module.count(".") + (file.stem == "__init__")]


def code_of(name: str) -> str:
    """SHA-256 of the source of a plug-in's method and of what it imports from beside it; empty for the suite's own.

    >>> code_of("margin")
    ''
    """
    entry = get(name)
    files: dict[Path, str] = {}
    for part in (entry, entry.base):
        file = getattr(sys.modules.get(part.cls.__module__), "__file__", None) if part is not None else None
        if part is not None and file and part.cls.__module__.partition(".")[0] != "methods":
            sources(Path(file), _home(part.cls.__module__, Path(file)), files, packages=True)
    # the suite itself may lie beside a plug-in, and is none
    hashes = sorted(content for file, content in files.items() if FOLDER not in file.parents)
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if hashes else ""


def select(text: str) -> list[str]:
    """Names chosen by a list of names, globs, `tag:X`, `all` and exclusions.

    >>> select("margin,arcface,-margin")
    ['arcface']
    """
    chosen: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        exclude, part = part.startswith("-"), part.lstrip("-")
        if part == "all":
            matches = names()
        elif part.startswith("tag:"):
            matches = names(part[4:])
        elif any(c in part for c in "*?["):
            matches = fnmatch.filter(names(), part)
        else:
            matches = [get(part).name]
        if not matches:
            raise MethodError(f"'{part}' matches no method; `oodml methods` lists all")
        chosen = ([n for n in chosen if n not in matches] if exclude else
                  chosen + [n for n in matches if n not in chosen])
    if not chosen:
        raise MethodError(f"'{text}' leaves no method to run")
    return chosen
