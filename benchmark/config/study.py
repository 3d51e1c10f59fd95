"""Studies: which methods on which datasets, splits and seeds, by which protocol; one TOML file each in `studies/`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config import protocol as protocols
from benchmark.config import toml
from benchmark.utils.errors import UserError, near

FOLDER = Path(__file__).parent / "studies"
STEPS = {"fewshot": {"datasets", "shots"}, "cross": set(), "ensemble": {"union"}}
"""What may follow once the runs of a study are done, and the keys of each."""
LEAST = {"datasets": '["cub"]', "methods": '"margin,arcface"'}
"""What every part must say, with an example of it."""
TEXT = (str, "a text in quotes")
FORMS: dict[str, tuple[type, str]] = {
    "datasets": (list, 'a list such as ["cub", "cars"]'), "methods": TEXT, "protocol": TEXT, "splits": TEXT,
    "seeds": (int, "a whole number of at least 1"), "backbones": TEXT, "set": (dict, "a table, [set]"),
    "vary": (dict, "a table, [vary]"), "plain": (bool, "true or false")}


@dataclass(frozen=True)
class Part:
    """A block of cells: datasets x methods x splits x seeds, in every variation."""

    datasets: tuple[str, ...]
    methods: str
    """Names, globs, tag:NAME or all, as for `--methods`."""
    protocol: str | None = None
    """None: each dataset's own."""
    splits: str = "all"
    """all, default, or numbers and ranges."""
    seeds: int | None = None
    """None: as many as the protocol says."""
    backbones: str | None = None
    """Names and lists of backbones with commas between them; None: the protocol's."""
    set: dict[str, Any] = field(default_factory=dict)
    """Keys of the protocol and METHOD.KEY, for every cell."""
    vary: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of the protocol and METHOD.KEY with their values, one changed at a time; without a run of the plain protocol
    if `plain` is false. A method's setting varies that method; of the others of the part nothing is run twice."""
    plain: bool = True

    def variations(self) -> Iterator[dict[str, Any]]:
        """The changes of each variation on top of `set`.

        >>> list(Part(("cub",), "r-margin", vary={"dim": (64, 128), "r-margin.p": (0.1,)}).variations())
        [{}, {'dim': 64}, {'dim': 128}, {'r-margin.p': 0.1}]
        """
        if self.plain or not self.vary:
            yield {}
        for key, values in self.vary.items():
            for value in values:
                yield {key: value}


@dataclass(frozen=True)
class Study:
    """Parts that belong together, and what is computed from their runs in the end."""

    name: str
    parts: tuple[Part, ...]
    after: tuple[dict[str, Any], ...] = ()
    summary: str = ""
    source: str = ""

    def changed(self, **given: Any) -> Study:
        """The study with what the command line says instead of its own; None leaves things as they are."""
        extra = {**given.pop("set", {})}
        known = {key: value for key, value in given.items() if value is not None}
        parts = tuple(dataclasses.replace(part, **known, set={**part.set, **extra}) for part in self.parts)
        return dataclasses.replace(self, parts=parts)


def names() -> list[str]:
    """The studies that come with the suite."""
    return toml.names(FOLDER)


def path_of(name: str) -> Path:
    """The file of a study: one of the suite's by name, or any TOML file by path."""
    return toml.find(FOLDER, "study", name)


def load(name: str) -> Study:
    """A study of the suite by name, or any TOML file by path.

    >>> load("oodml-cub").parts[0].datasets
    ('cub',)
    """
    path = path_of(name)
    return _study(path.stem, toml.table(path))


def _study(name: str, table: dict[str, Any]) -> Study:
    own = {key: table.pop(key) for key in ("summary", "source") if key in table}
    after = table.pop("after", [])
    if not isinstance(after, list):
        raise UserError(f"study {name}: write every step as [[after]], with two brackets")
    parts = table.pop("part", [{}])
    if not isinstance(parts, list):
        raise UserError(f"study {name}: write every part as [[part]], with two brackets")
    return Study(name, tuple(_part(name, {**table, **part}) for part in parts),
                 tuple(_step(name, step) for step in after), **own)


def _part(study: str, values: dict[str, Any]) -> Part:
    known = {f.name: f for f in dataclasses.fields(Part)}
    for key in values:
        if key not in known:
            raise UserError(f"study {study} has no key '{key}'{near(key, known)}; there are {', '.join(known)}")
    for key, example in LEAST.items():
        if not values.get(key):
            raise UserError(f"study {study}: a part lacks '{key}'; write {key} = {example} into it or above all parts")
    for key, value in values.items():
        kind, form = FORMS[key]
        wrong = type(value) is not kind
        if wrong or (key == "seeds" and value < 1):
            raise UserError(f"study {study}: {key} = {value!r} must be {form}")
    for key, options in values.get("vary", {}).items():
        if isinstance(options, dict):
            raise UserError(f"study {study}: write a method's setting under [vary] in quotes, "
                            f'"{key}.{next(iter(options), "KEY")}" = [...]')
        if (key not in protocols.FIELDS and "." not in key) or not isinstance(options, list):
            raise UserError(f"study {study}: vary.{key} must be a key of protocols, or METHOD.KEY, with a list of "
                            f"values{near(key, protocols.FIELDS)}")
    return Part(**{**values, "datasets": tuple(values["datasets"]),
                   "vary": {key: tuple(options) for key, options in values.get("vary", {}).items()}})


def _step(study: str, step: dict[str, Any]) -> dict[str, Any]:
    choices = ", ".join(STEPS)
    if "step" not in step:
        hint = next(filter(None, (near(str(value), STEPS) for value in step.values())), "")
        raise UserError(f"study {study}: [[after]] lacks the key 'step'; write step = \"NAME\"{hint}, one of {choices}")
    kind = step["step"]
    if not isinstance(kind, str) or kind not in STEPS:
        raise UserError(f"study {study}: unknown step = {kind!r}{near(str(kind), STEPS)}; there are {choices}")
    if set(step) - {"step"} != STEPS[kind]:
        raise UserError(f"study {study}: the step {kind} takes {', '.join(sorted(STEPS[kind])) or 'no keys'}, "
                        f"not {', '.join(sorted(set(step) - {'step'})) or 'none'}")
    return step
