"""What `oodml methods show` tells of a method: its settings and their sources, its search, its own rates, as lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from benchmark.config import protocol, search
from benchmark.utils.terminal import value_text
from methods import Entry


def settings(entry: Entry) -> Iterator[str]:
    """One line for each setting: value, datasets and protocols that differ, source."""
    fields = dataclasses.fields(entry.declared.Settings)  # type: ignore[attr-defined]
    changed = {name: protocol.settings_of(name, entry) for name in protocol.names()}
    own = entry.settings()
    yield f"settings (--set {entry.name}.{fields[0].name}=VALUE):" if fields else "no settings"
    for field in fields:
        differing = {**field.metadata.get("per_dataset", {}), **{
            f"protocol {name}": there[field.name] for name, there in changed.items() if field.name in there}}
        others = ", ".join(f"{name} {value_text(value)}" for name, value in differing.items())
        value = value_text(getattr(own, field.name)) + (f" ({others})" if others else "")
        yield f"  {field.name:18} {value:42} {field.metadata.get('source', '')}"


def space(entry: Entry) -> Iterator[str]:
    """What `oodml tune` searches; nothing of a method that trains nothing."""
    if entry.trains != "nothing":
        yield "searched by `oodml tune`:"
        yield f"  {'lr':28} the protocol's / {search.LR_FACTOR:g} to x {search.LR_FACTOR:g}, log-uniform"
        for key, values in entry.space().items():
            yield f"  {key:28} {search.described(values)}"


def against_protocols(entry: Entry) -> Iterator[str]:
    """What the method does otherwise than each protocol's general keys say, or says by its own rates."""
    yield "against the protocols' defaults:"
    for name in protocol.names():
        general = protocol.load(name)
        special = protocol.load(name, method=entry.name, tags=entry.kinds)
        changes = [f"{key} {value_text(value)} instead of {value_text(getattr(general, key))}"
                   for key, value in vars(special).items() if value != getattr(general, key)]
        objective = entry.objective
        if objective is not None:
            there = vars(objective.settings(**protocol.settings_of(name, objective)))
            own = vars(entry.settings(**protocol.settings_of(name, entry)))
            rates = {key: value for key, value in entry.as_trained({**own, **there}).items()
                     if key.endswith("_rate") and key in there}
            changes += [f"{key} {value_text(value)} times lr: {value_text(value * special.lr)}"
                        for key, value in rates.items() if value != 1]
        if special.batches and special.batches != entry.batches:
            changes.append(f"the protocol's batches {special.batches} replace {entry.batches}")
        yield f"  {name:12} {'; '.join(changes) or 'its defaults'}"
