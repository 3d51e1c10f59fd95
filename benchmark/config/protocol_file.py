"""A protocol's file: its tables, each key with its source, over those of the file that it extends."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from benchmark.config import toml
from benchmark.utils.errors import UserError, misspelt, near

FOLDER = Path(__file__).parent / "protocols"
KINDS = ("dataset", "tag", "method", "both")
"""Tables of a file whose keys replace the general ones, in this order."""
SETTINGS = "settings"
"""The table that changes methods' own settings: [settings.margin]."""
BASE = "base"
"""The table that changes settings of the objective under a method on a dataset: [base.cars.s2sd]."""
EVERY = "all"
"""In place of the dataset of a BASE table: on every dataset, below what a table of the dataset says."""
EXTENDS = "extends"
"""The key that names another protocol, whose file this one changes."""
PAIRS = ("both", BASE)
"""Tables with two owners, a dataset and a method."""


Place = tuple[str, ...]
"""The kind of a table and whom it is for, such as ("dataset", "sop"); () has the general keys."""


class Sourced(NamedTuple):
    """A value in a file, and where it comes from."""

    value: Any
    source: str = ""


def tables(path: Path, known: Collection[str], inner: tuple[Path, ...] = ()) -> dict[Place, dict[str, Sourced]]:
    """The tables of a file, each key over that of the same table in the file which it `extends`.

    Args:
        path: The file.
        known: The keys of a protocol; another one is a UserError, but for those of methods' own settings.
        inner: The files that led here, of which none may be met again.
    """
    own = {place: {key: _sourced(path, place, key, value, known) for key, value in keys.items()}
           for place, keys in _own_tables(path).items()}
    parent = toml.table(path).get(EXTENDS)
    if parent is None:
        return own
    if not isinstance(parent, str):
        raise UserError(f"protocol {path}: {EXTENDS} = {parent!r} is no name; write {EXTENDS} = \"demo\"")
    other = toml.find(FOLDER, "protocol", str(path.parent / parent) if parent.endswith(".toml") else parent)
    if other.resolve() in (*inner, path.resolve()):
        raise UserError(f"protocol {path}: {EXTENDS} = {parent!r} leads back to this file; name another one, or leave "
                        "the key out")
    inherited = tables(other, known, (*inner, path.resolve()))
    return {place: {**inherited.get(place, {}), **own.get(place, {})} for place in {**inherited, **own}}


def _own_tables(path: Path) -> dict[Place, dict[str, Any]]:
    """The tables that stand in a file itself, their values as they are written."""
    file = toml.table(path)
    kinds = (*KINDS, SETTINGS, BASE)
    general = {key: value for key, value in file.items() if key not in (*kinds, EXTENDS, "summary")}
    found: dict[Place, Any] = {(): general}
    for kind in kinds:
        form = f"write [{kind}.{'DATASET.METHOD' if kind in PAIRS else 'NAME'}] above its keys"
        if not isinstance(file.get(kind, {}), dict):
            raise UserError(f"protocol {path}: {kind} = {file[kind]!r} is no table; {form}")
        for owner, entries in file.get(kind, {}).items():
            inner = entries.items() if kind in PAIRS and isinstance(entries, dict) else [("", entries)]
            found |= {(kind, owner, method) if kind in PAIRS else (kind, owner): keys for method, keys in inner}
        for place, keys in found.items():
            if not isinstance(keys, dict) or (place[:1] == (BASE,) and "value" in keys):  # a key with its source
                raise UserError(f"protocol {path}: {'.'.join(place)} is no table; {form}")
    return found


def _sourced(path: Path, place: Place, key: str, value: Any, known: Collection[str]) -> Sourced:
    if key not in known and place[:1] not in ((SETTINGS,), (BASE,)):
        meant = near(key, (*known, *KINDS, SETTINGS, BASE, EXTENDS))
        raise UserError(f"protocol {path.stem} has no key '{key}'{meant}; "
                        "`oodml protocols show oodml` lists them all")
    if not isinstance(value, dict):
        return Sourced(value)
    if not {"value"} <= {*value} <= {*Sourced._fields}:
        raise UserError(f"protocol {path}: {'.'.join((*place, key))} has {', '.join(value)}; write a value alone, or "
                        f'{key} = {{ value = ..., source = "..." }}')
    return Sourced(**value)


def check_owners(path: Path, dataset: str, method: str) -> None:
    """A UserError for a table whose name is a misspelling: it would change nothing.

    Other unknown names are left alone: they may be a plug-in's, or a dataset of one's own. Names are looked at only
    when the protocol is read for a method.
    """
    if not method or path.parent == FOLDER:  # these a test holds; methods would bring torch, and lack plug-ins
        return
    import methods

    names = methods.names()
    tags = sorted({tag for name in names for tag in methods.get(name).kinds})
    known = {"dataset": [dataset] if dataset else [], "method": names, "tag": tags, SETTINGS: [*names, *tags]}
    for kind, *owners in filter(None, _own_tables(path)):
        for what, owner in zip(("dataset", "method") if kind in PAIRS else (kind,), owners):
            if meant := misspelt(owner, [*known[what], *([EVERY] if kind == BASE else [])]):
                remedy = "give it a name less like that" if what == "dataset" else "load it with --plugin FILE"
                raise UserError(f"protocol {path}: [{'.'.join((kind, *owners))}] changes nothing: there is no "
                                f"{'method or tag' if what == SETTINGS else what} '{owner}' (did you mean '{meant}'?); "
                                f"if it is your own, {remedy}")
        if kind == BASE and owners[1] in names and not methods.get(owners[1]).default_base:
            raise UserError(f"protocol {path}: [{'.'.join((kind, *owners))}] changes nothing: {owners[1]} stands on no "
                            f"other objective; write its own settings under [{SETTINGS}.{owners[1]}]")
