"""The register of methods: every file of `methods/` adds itself, and `get` and `select` find them by name."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods.registry import declared
from methods.registry.entry import Entry
from methods.registry.sources import FOLDER, hidden_modules
from methods.settings import MethodError, near

if TYPE_CHECKING:
    from torch import nn

    from methods.method import Method

GIVEN = "oodml_plugin_"
"""What the module of a plug-in that was given by its path is called, before the name of its file."""

_ENTRIES: dict[str, Entry] = {}
_discovered = False


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
        if known is not None and (known.declared.__module__, known.declared.__qualname__) != here:
            raise MethodError(f"method '{name}' is registered twice: {known.declared.__module__} and {cls.__module__}; "
                              "give yours another name")
        _ENTRIES[name] = Entry(name, cls, family, tuple(papers), tuple(tags), cite.strip(), trains, base,
                               defaults=tuple((defaults or {}).items()))
        return cls

    return add


def discover() -> None:
    """Find the methods in every file of `methods/` and in installed plug-ins of the group `oodml.methods`.

    Where torch was not imported so far, the files are read and not imported, as that would take seconds; what the
    source does not tell plainly is imported nevertheless.
    """
    global _discovered
    if _discovered:
        return
    _discovered = True
    package = importlib.import_module("methods")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg:
            _add(f"methods.{module.name}")
    for point in importlib.metadata.entry_points(group="oodml.methods"):
        try:
            point.load()
        except Exception as error:  # somebody's package: the other methods do not depend on it
            owner = point.dist.name if point.dist else point.value
            warnings.warn(f"the methods of the installed package {owner} are left out: {point.value}: "
                          f"{type(error).__name__}: {' '.join(str(error).split())}", stacklevel=2)


def _add(module: str) -> None:
    if "torch" not in sys.modules:
        try:
            for registration, cls in declared.registered(module):
                register(*registration.args, **registration.keywords)(cls)
            return
        except (ValueError, OSError):  # not plain to read, or without its source
            pass
    importlib.import_module(module)


@cache
def _homes() -> dict[str, str]:
    """Our module that registers each name, as far as a look at its text tells: all are read and none is parsed."""
    return {name: f"methods.{path.stem}" for path in FOLDER.glob("*.py")
            for name in re.findall(r'^@register\(\s*"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)}


@cache
def _look_up(name: str) -> None:
    """Adds a method of ours without the others: a report asks for a handful, and reading all takes five times as long.
    """
    if name in _homes():
        _add(_homes()[name])


def load_plugin(path: str | Path) -> list[str]:
    """Run a Python file that registers methods; returns the names it added. It is code: load only what you trust."""
    discover()
    path = Path(path)
    if path.is_dir():
        raise MethodError(f"plug-in {path}: that is a folder; give the Python file in it that registers the methods, "
                          f"as in {path / 'my_method.py'}")
    if not path.is_file():
        raise MethodError(f"plug-in {path}: no such file")
    before = dict(_ENTRIES)
    home = str(path.resolve().parent)
    if home not in sys.path:  # last, so that a file there hides no package; modules beside it may be imported later
        sys.path.append(home)
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]  # two of one name are two plug-ins
    spec = importlib.util.spec_from_file_location(f"{GIVEN}{path.stem}_{place}", path)
    if spec is None or spec.loader is None:
        raise MethodError(f"plug-in {path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up there to read annotations kept as text
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except MethodError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise MethodError(_why_not(path, str(spec.origin), error)) from error
    for name, file in hidden_modules(path.resolve()):
        raise MethodError(f"plug-in {path}: `import {name}` gives {file}, not the file beside the plug-in; rename that")
    # one of our files may have been read so far and is imported by the plug-in
    added = sorted(name for name, entry in _ENTRIES.items() if before.get(name) is not entry and not ours(entry))
    if not added:
        raise MethodError(f"plug-in {path} registers no method; decorate a class with @methods.register(...)")
    return added


def _why_not(path: Path, origin: str, error: BaseException) -> str:
    """One line for a plug-in that does not run: its line where it stopped, the error, and the remedy."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == origin]
    line = lines[-1] if lines else getattr(error, "lineno", None)  # a file that cannot be parsed has no frame
    text = error.msg if isinstance(error, SyntaxError) and not lines else " ".join(str(error).split())
    remedy = ("put it beside the file, or install it where oodml is" if isinstance(error, ModuleNotFoundError) else
              f"correct the file; `python {path}` shows the whole traceback")
    return f"plug-in {path}{f', line {line}' if line else ''}: {type(error).__name__}: {text}; {remedy}"


def ours(entry: Entry) -> bool:
    """Whether a method is of the suite, and of no plug-in."""
    return entry.declared.__module__.partition(".")[0] == "methods"


def names(tag: str | None = None) -> list[str]:
    """All registered names in order; with `tag`, those with this tag, family or paper."""
    discover()
    return sorted(name for name, entry in _ENTRIES.items() if tag is None or _has(entry, tag))


def _has(entry: Entry, tag: str) -> bool:
    return tag in (*entry.tags, entry.family, *entry.papers)


def tags() -> list[str]:
    """All that `names` can be asked for: tags, families and papers of methods."""
    discover()
    return sorted({tag for entry in _ENTRIES.values() for tag in (*entry.tags, entry.family, *entry.papers)})


def get(name: str) -> Entry:
    """The method of this name; `a:b` is the network method a on the objective b."""
    head, _, tail = name.partition(":")
    if not _discovered:
        _look_up(head)
    if head not in _ENTRIES:
        discover()
    if head not in _ENTRIES:
        raise MethodError(f"unknown method '{head}'{near(head, _ENTRIES)}; `oodml methods` lists all, "
                          "--plugin FILE takes your own")
    entry = _ENTRIES[head]
    if tail and not entry.default_base:
        raise MethodError(f"method '{head}' takes no base objective, so '{name}' means nothing")
    if not entry.default_base:
        return entry
    base = get(tail or entry.default_base)
    if not base.is_objective:
        raise MethodError(f"'{base.name}' in '{name}' is not an objective that another method can build on")
    return dataclasses.replace(entry, name=name if tail else head, base=base)


def create(name: str, backbone: nn.Module | str, *, classes: int, dim: int = 128, dataset: str = "",
           **settings: Any) -> Method:
    """A method ready to be trained, by name: a network whose `step(images, labels)` gives loss and embeddings.

    Args:
        name: as in `get`.
        backbone: a network with its weights, or the name of one, which then has random weights.
        classes: how many training classes there are; labels are 0 .. classes - 1.
        dim: the dimension of an embedding.
        dataset: whose settings are taken where the paper has one for each dataset; those of a base objective too.
        settings: the method's own hyper-parameters that differ from the paper's.

    >>> import torch
    >>> create("margin", "conv4", classes=10, dim=64, beta=0.6).embed(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    entry = get(name)
    if isinstance(backbone, str):
        from methods import backbones

        backbone = backbones.create(backbone)
    base = None if entry.base is None else entry.base.settings(dataset)
    return entry.build(backbone, classes, dim, entry.settings(dataset, **settings), base)


def select(text: str, also: Iterable[str] = ()) -> list[str]:
    """Names chosen by a list of names, globs, `tag:X`, `all` and exclusions.

    `also` are names `a:b`, which are in no register, that globs, tags and `all` stand for as well.

    >>> select("margin,arcface,-margin"), select("puma:*,-*:t*", also=["puma:triplet", "puma:margin"])
    (['arcface'], ['puma:margin'])
    """
    chosen: list[str] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        exclude, part, hint = part.startswith("-"), part.lstrip("-"), ""
        if part == "all":
            matches = [*names(), *also]
        elif part.startswith("tag:"):
            matches = [*names(part[4:]), *(name for name in also if _has(get(name), part[4:]))]
            hint = near(part[4:], tags())
        elif any(c in part for c in "*?["):
            matches = fnmatch.filter([*names(), *also], part)
        else:
            matches = [get(part).name]
        if not matches:
            raise MethodError(f"'{part}' matches no method{hint}; `oodml methods` lists all")
        chosen = [n for n in chosen if n not in matches] if exclude else list(dict.fromkeys([*chosen, *matches]))
    if not chosen:
        raise MethodError(f"'{text}' leaves no method to run")
    return chosen
