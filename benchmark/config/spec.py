"""One run of the matrix: everything that decides what it gives, and the identity that follows from it.

Read by commands that only look at runs, so nothing here imports torch before a method is built.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import methods
from benchmark.config import rates, toml
from benchmark.config.protocol import Protocol
from benchmark.utils.terminal import value_text
from benchmark.utils.workspace import SPEC, Workspace
from reports import records
from splits.manifest import digest

if TYPE_CHECKING:
    from torch import nn

    from methods import Entry, Method


@dataclass(frozen=True)
class RunSpec:
    """One run of the matrix: everything that decides what it gives.

    Paths are not part of it: the same data, split and weights elsewhere are the same run.
    """

    dataset: str
    dataset_hash: str
    split: int
    split_hash: str
    method: str
    settings: dict[str, Any]
    base_settings: dict[str, Any]
    protocol: Protocol
    weights: str
    seed: int
    code: str = ""
    """Of a plug-in's method the hash of its source; empty for the suite's own."""
    contents: str = ""
    """The hash of what the dataset's files contain; empty where images are drawn, and in runs of earlier versions."""

    __pydantic_config__ = {"extra": "forbid"}

    def facts(self) -> dict[str, Any]:
        """All of it as JSON has it, for `of`."""
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for key in ("code", "contents"):  # which came later, and which most runs have not
            if not facts[key]:
                del facts[key]
        return {**facts, "protocol": self.protocol.identity()}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> RunSpec:
        """The spec that was written as such facts; a ValueError if they are of a version with other keys."""
        return toml.adapter(cls).validate_python(facts)

    @cached_property
    def identity(self) -> str:
        """SHA-256 over all of it; the split's number in its ladder does not count, its classes do.

        Rates of loss parameters count by their absolute value: a run whose rates are the same is the same run.
        """
        facts = {key: value for key, value in self.facts().items() if key != "split"}
        facts |= {part: rates.in_absolutes(facts[part], self.protocol.lr) for part in ("settings", "base_settings")}
        return digest(facts)

    def folder(self, workspace: Workspace) -> Path:
        """Where the run lies."""
        return records.run_folder(workspace.runs, self.dataset, self.split, self.method, self.seed, self.identity)

    @property
    def table_cell(self) -> tuple[Any, ...]:
        """The cell of a table of results that it fills; runs that differ in settings alone share it."""
        return (self.dataset, self.split, self.method, self.seed, self.protocol.name, self.protocol.backbone)

    def build(self, backbone: nn.Module, classes: int) -> Method:
        """The method that this run trains, on a backbone, for so many training classes."""
        entry = methods.get(self.method)
        return entry.build(backbone, classes, self.protocol.dim, *typed_settings(entry, *self.settings_in_multiples()))

    def settings_in_multiples(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings and those of the base with every rate as a multiple of lr, whatever version wrote them."""
        return rates.in_multiples(methods.get(self.method), self.settings, self.base_settings, self.protocol.lr)

    def label(self) -> str:
        return f"{self.dataset}/{self.split} {self.method} {self.protocol.backbone} seed {self.seed}"

    @classmethod
    def read(cls, folder: Path) -> RunSpec | None:
        """The spec in a run's folder; None where there is none that this version understands."""
        try:
            return cls.of(json.loads((folder / SPEC).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            return None


def told_apart(specs: Iterable[RunSpec]) -> dict[str, str]:
    """The label of each run by its identity: of runs that would share one, with the keys and values that differ.

    >>> from benchmark.config import protocol
    >>> first = RunSpec("a", "x", 1, "y", "margin", {"beta": 1.2}, {}, protocol.load("oodml"), "w", 0)
    >>> second, third = dataclasses.replace(first, settings={"beta": 0.6}), dataclasses.replace(first, seed=1)
    >>> list(told_apart([first, second, third]).values())  # doctest: +NORMALIZE_WHITESPACE
    ['a/1 margin resnet50 seed 0 (beta 1.2)', 'a/1 margin resnet50 seed 0 (beta 0.6)',
     'a/1 margin resnet50 seed 1']
    """
    alike: dict[str, list[RunSpec]] = {}
    for spec in specs:
        alike.setdefault(spec.label(), []).append(spec)
    labels = {}
    for label, runs in alike.items():
        values = [_values(run) for run in runs] if len(runs) > 1 else [{}]
        differ = sorted(place for place in {*chain(*values)} if any(own.get(place) != values[0].get(place)
                                                                    for own in values))
        for run, own in zip(runs, values):
            told = ", ".join(f"{place[1]} {value_text(own[place])}" for place in differ if place in own)
            labels[run.identity] = f"{label} ({told})" if told else label
    return labels


def differences(before: RunSpec, now: RunSpec) -> list[str]:
    """In what two runs that fill the same cell of a table differ, one line each.

    >>> from benchmark.config import protocol
    >>> now = RunSpec("a", "x", 1, "y", "margin", {"beta": 1.2}, {}, protocol.load("oodml"), "w", 0)
    >>> faster = dataclasses.replace(now.protocol, lr=1e-4)
    >>> differences(now, dataclasses.replace(now, protocol=faster, split_hash="z"))
    ['the ladder, which has other classes on the split', 'lr 1e-05 -> 0.0001']
    """
    named = {"dataset_hash": "the dataset's files", "split_hash": "the ladder, which has other classes on the split",
             "weights": "the backbone's weights", "method": "the method", "seed": "the seed",
             "code": "the source of the plug-in", "contents": "what the dataset's files contain"}
    lines = [text for key, text in named.items() if getattr(before, key) != getattr(now, key)]
    old, new = _values(before), _values(now)
    for place in sorted({*old, *new}):
        # one of them may have been through JSON, which knows no tuples
        if json.dumps(old.get(place)) != json.dumps(new.get(place)):
            lines.append(f"{place[1]} {old.get(place)} -> {new.get(place)}")
    return lines


def _values(spec: RunSpec) -> dict[tuple[int, str], Any]:
    """The keys of its protocol (0), the settings of its method (1) and of that method's base (2), which share names."""
    return {(part, key): value for part, values in enumerate((
        spec.protocol.identity(), spec.settings, spec.base_settings)) for key, value in values.items()}


def typed_settings(entry: Entry, settings: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[Any, Any]:
    """Settings as the method and its base objective take them."""
    return entry.settings(**settings), None if entry.base is None else entry.base.settings(**base)
