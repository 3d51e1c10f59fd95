"""Methods x rungs x seeds of one dataset as run specs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import methods
from benchmark.config import protocol as protocols
from benchmark.config.protocol import Protocol
from benchmark.config.spec import RunSpec, typed_settings
from benchmark.data import weights
from benchmark.utils.errors import UserError, near
from methods import backbones
from methods.registry import ours
from methods.samplers import batches
from splits.manifest import Ladder, Split


def changes(spec: RunSpec) -> dict[str, Any]:
    """How a run differs from its protocol and method as they are on its dataset: what `--set` or a study changed.

    Nothing is known of a protocol that is not of the suite: a spec keeps the name of its file, not its place.
    """
    name, entry = spec.protocol.name, methods.get(spec.method)
    plain = Overrides()
    try:
        usual = load_protocol(name, spec.dataset, spec.method, plain).identity()
        own = _settings(entry, spec.dataset, name, plain)
        base = base_settings(entry, spec.dataset, name, plain)
    except (UserError, methods.MethodError):
        return {}
    mine, below = spec.settings_in_multiples()
    return {f"{part}.{key}": value
            for part, now, before in (("protocol", spec.protocol.identity(), usual), ("settings", mine, own),
                                      ("base_settings", below, base))
            for key, value in now.items() if json.dumps(value) != json.dumps(before.get(key))}


@dataclass(frozen=True)
class Overrides:
    """What `--set` changes: keys of the protocol, and settings of methods (`margin.beta=0.9`)."""

    protocol: dict[str, str] = dataclasses.field(default_factory=dict)
    methods: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, changes: Mapping[str, Any]) -> Overrides:
        """The changes by what they change; values as they are typed on the command line or stand in a study.

        >>> Overrides.of({"epochs": "3", "margin.beta": 0.9})
        Overrides(protocol={'epochs': '3'}, methods={'margin': {'beta': '0.9'}})
        """
        overrides = cls()
        for key, value in changes.items():
            method, dot, name = key.rpartition(".")
            if dot:
                methods.get(method)
                overrides.methods.setdefault(method, {})[name] = _text(value)
            elif key in protocols.FIELDS:
                overrides.protocol[key] = _text(value)
            else:
                raise UserError(f"--set {key}={_text(value)}: no protocol has a key '{key}'"
                                f"{near(key, protocols.FIELDS)}; a method's own setting is METHOD.KEY")
        return overrides


def _text(value: Any) -> str:
    """A TOML value as it is written after --set KEY=."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def plan(ladder: Ladder, index_hash: str, names: Iterable[str], *, protocol: str, seeds: Iterable[int],
         splits: Iterable[int] | None = None, overrides: Overrides | None = None,
         weights_file: str | None = None, contents: str = "") -> list[RunSpec]:
    """The run specs of one dataset, ordered so that a part of them is already useful: a seed of everything first.

    What trains nothing, on weights that are not drawn at random, owes nothing to a seed: it has the first one alone.
    """
    overrides, seeds = overrides or Overrides(), list(seeds)
    chosen = [ladder.split(i) for i in splits] if splits is not None else list(ladder.splits)
    names = list(names)
    bases = {entry.base.name for entry in map(methods.get, names) if entry.base is not None}
    unused = set(overrides.methods) - set(names) - bases
    if unused:
        raise UserError(f"--set names {', '.join(sorted(unused))}, which is not among the methods to run; name it "
                        "under --methods, or leave its settings out (also those under `set` of a study)")
    made, fixed = [], set()
    for name in names:
        entry = methods.get(name)
        own = load_protocol(protocol, ladder.dataset, name, overrides)
        settings = _settings(entry, ladder.dataset, protocol, overrides)
        base = base_settings(entry, ladder.dataset, protocol, overrides)
        _check(own, entry)
        other = "backbone" in overrides.protocol and own.backbone not in backbones.names.NOT_VIT
        if other:
            backbones.skeleton(own.backbone)
        # The suite's own settings go together, and its objectives take embeddings of any dim: to import torch for that
        # would take seconds.
        if other or overrides.methods or ("dim" in overrides.protocol and not (entry.is_objective and ours(entry))):
            entry.check_build(own.backbone, min(len(split.train) for split in chosen), own.dim,
                              *typed_settings(entry, settings, base))
        found = weights.identify(own.backbone, weights_file)
        made.append((name, settings, base, own, found))
        if entry.trains == "nothing" and found != weights.SCRATCH:
            fixed.add(name)
    code = {name: methods.code_of(name) for name in names}
    return [RunSpec(ladder.dataset, index_hash, split.id, split.hash, *one, seed, code[one[0]], contents)
            for seed in seeds for one in made for split in chosen if seed == seeds[0] or one[0] not in fixed]


def _check(protocol: Protocol, entry: methods.Entry) -> None:
    """Look up what a worker makes by name, so that a wrong name is an error now and not in every run."""
    protocol.transform()
    batches.check(protocol.batches or entry.batches)


def _settings(entry: methods.Entry, dataset: str, protocol: str, overrides: Overrides,
              below: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A method's settings: its own for the dataset and the protocol, what the protocol's file and `--set` change.

    `below`: what the protocol changes of an objective under another method.
    """
    own = {**protocols.settings_of(protocol, entry), **(below or {})}
    return entry.stored(dataset, **{**own, **overrides.methods.get(entry.name, {})})


def base_settings(entry: methods.Entry, dataset: str, protocol: str, overrides: Overrides) -> dict[str, Any]:
    """Settings of the objective that a network method stands on; none for an objective."""
    if entry.base is None:
        return {}
    return _settings(entry.base, dataset, protocol, overrides, protocols.base_settings_of(protocol, entry, dataset))


def fitting(names: Iterable[str], dataset: str, protocol: str,
            overrides: Overrides) -> tuple[list[str], dict[str, str]]:
    """The methods that can stand on the backbone they would get, and why the others cannot."""
    reasons = {name: methods.get(name).misfit(load_protocol(protocol, dataset, name, overrides).backbone)
               for name in names}
    return [name for name, reason in reasons.items() if not reason], {n: r for n, r in reasons.items() if r}


def load_protocol(name: str, dataset: str, method: str, overrides: Overrides) -> Protocol:
    """The protocol as this method gets it on this dataset."""
    entry = methods.get(method)
    return protocols.load(name, dataset=dataset, method=method, tags=entry.kinds,
                          overrides=overrides.protocol)


def split_of(ladder: Ladder, spec: RunSpec) -> Split:
    """The spec's rung, if the manifest still holds the same classes."""
    split = ladder.split(spec.split)
    if split.hash != spec.split_hash:
        raise UserError(f"split {spec.split} of {ladder.dataset} has changed since it was planned; plan again")
    return split
