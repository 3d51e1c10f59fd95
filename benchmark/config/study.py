"""Studies: which methods on which datasets, splits and seeds, by which protocol; one TOML file each in `studies/`.

`narrowing.changed` is what the command line makes of one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, MinLen

from benchmark.config import protocol as protocols
from benchmark.config import toml
from benchmark.utils.errors import UserError, near
from reports.analysis import paper_catalogue

FOLDER = Path(__file__).parent / "studies"
STEPS: dict[str, dict[str, str]] = {
    "fewshot": {"datasets": '["cub"]', "shots": "[2, 5]"}, "cross": {}, "ensemble": {"union": '"uml"'},
    "wise": {"datasets": '["cub"]'}, "inspect": {"datasets": '["cub"]'}}
"""What may follow once the runs of a study are done, and the keys of each with an example."""


@dataclass(frozen=True)
class Part:
    """A block of runs: datasets x methods x splits x seeds, in every variation."""

    datasets: Annotated[tuple[str, ...], MinLen(1)]
    methods: Annotated[str, MinLen(1)]
    """Names, globs, tag:NAME or all, as for `--methods`."""
    protocol: str | None = None
    """None: each dataset's own."""
    splits: str = "all"
    """all, default, numbers and ranges, or fixed-test: all of a ladder with fixed test classes, and of no other."""
    ladder: str = ""
    """The ladder that the runs are meant for, which messages name where it is missing: a pinned one (NAME@VERSION), or
    the options with which `oodml splits build` makes it. Empty: any ladder of the dataset."""
    seeds: Annotated[int, Ge(1), Le(10_000)] | None = None
    """None: as many as the protocol says."""
    more_seeds: dict[str, Annotated[int, Ge(1), Le(10_000)]] = field(default_factory=dict)
    """On some splits more than on the others, by `splits`: { "1,4,8" = 3 }."""
    backbones: str | None = None
    """Names and lists of backbones with commas between them; None: the protocol's."""
    set: dict[str, Any] = field(default_factory=dict)
    """Keys of the protocol and METHOD.KEY, for every run."""
    vary: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Keys of the protocol and METHOD.KEY with their values, one changed at a time; without a run of the plain protocol
    if `plain` is false. A method's setting varies that method; of the others of the part nothing is run twice."""
    plain: bool = True
    search: dict[str, Any] = field(default_factory=dict)
    """What `oodml tune` searches beside the methods' own spaces or in their stead, by key of the protocol or
    METHOD.KEY: [low, high], log-uniform, or { choices = [...] }."""
    optional: bool = False
    """Whether runs of backbones whose weights are missing are listed and left out, and the study is whole without."""

    __pydantic_config__ = {"extra": "forbid"}

    @property
    def needs(self) -> str:
        """The ladder without which its splits mean nothing, as in `ladder`; '' where any one will do."""
        return self.ladder or ("--fixed-test" if self.splits == "fixed-test" else "")

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
    fills: tuple[str, ...] = ()
    """The tables and figures of papers whose numbers its runs give, as `PAPER: Table N`."""
    other_methods: bool = False
    """Whether the command line named other methods than its own, then in every part: runs that are not its own."""

    @property
    def steps(self) -> str:
        """What follows the runs, in words.

        >>> load("fewshot").steps
        'fewshot (datasets = ["cub", "cars"], shots = [2, 5])'
        """
        return ", ".join(f"{step['step']} ({keys})" if keys else step["step"] for step in self.after
                         for keys in [", ".join(f"{key} = {json.dumps(step[key])}" for key in STEPS[step["step"]])])


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
    file, where = toml.table(path), f"study {path.stem}"
    for kind in ("part", "after"):
        if not isinstance(file.get(kind, []), list):
            raise UserError(f"{where}: write every {kind} as [[{kind}]], with two brackets")
    general = {key: value for key, value in file.items() if key not in ("summary", "source", "fills", "part", "after")}
    return Study(path.stem, tuple(_part(where, {**general, **part}) for part in file.get("part", [{}])),
                 tuple(_step(where, step) for step in file.get("after", [])),
                 str(file.get("summary", "")), str(file.get("source", "")), _fills(where, file))


def summary(name: str) -> str:
    """What a study's file says of itself in one line."""
    return str(toml.table(path_of(name)).get("summary", ""))


def filled_by() -> dict[str, list[str]]:
    """For every table and figure that studies of the suite fill, their names.

    >>> filled_by()["crt: Table 3"]
    ['crt']
    """
    made: dict[str, list[str]] = {}
    for name in names():
        for item in fills(name):
            made.setdefault(item, []).append(name)
    return made


def fills(name: str) -> tuple[str, ...]:
    """The tables and figures that a study fills."""
    path = path_of(name)
    return _fills(f"study {path.stem}", toml.table(path))


def _fills(where: str, file: dict[str, Any]) -> tuple[str, ...]:
    items = file.get("fills", [])
    known = paper_catalogue.item_keys()
    if not isinstance(items, list):
        raise UserError(f'{where}: fills must be a list such as ["oodml: Figure 2"]')
    for item in items:
        if item not in known:
            raise UserError(f"{where}: fills names {item!r}, which is no table or figure of a paper"
                            f"{near(str(item), known)}; reports/data/papers/ has all")
    return tuple(items)


def _part(where: str, values: dict[str, Any]) -> Part:
    for key in ("methods", "splits", "backbones"):
        if isinstance(names := values.get(key), list):
            raise UserError(f"{where}: {key} = {json.dumps(names)}: write one string with commas, "
                            f"{key} = {json.dumps(','.join(map(str, names)))}")
    own = {one.name for one in dataclasses.fields(Part)}
    if of_protocol := [key for key in values if key in protocols.FIELDS and key not in own]:
        pairs = ", ".join(f"{key} = {json.dumps(values[key], default=str)}" for key in of_protocol)
        raise UserError(f"{where}: no key {', '.join(map(repr, of_protocol))}, which is the protocol's: write "
                        f"set = {{ {pairs} }}")
    for table in ("set", "vary", "search"):
        keys = values.get(table, {})
        for key, options in keys.items() if isinstance(keys, dict) else ():
            if isinstance(options, dict) and not (table == "search" and set(options) == {"choices"}):
                raise UserError(f"{where}: write a method's setting under [{table}] in quotes, "
                                f'"{key}.{next(iter(options), "KEY")}" = {"VALUE" if table == "set" else "[...]"}')
    part = toml.build(Part, values, where)
    for table, keys in (("set", part.set), ("vary", part.vary), ("search", part.search)):
        for key in keys:
            if key not in protocols.FIELDS and "." not in key:
                raise UserError(f"{where}: {table}.{key} must be a key of protocols, or METHOD.KEY"
                                f"{near(key, protocols.FIELDS)}")
    return dataclasses.replace(part, search={key: _space(where, key, options) for key, options in part.search.items()})


def _space(where: str, key: str, options: Any) -> tuple[float, float] | list[Any]:
    """Two bounds as a tuple and choices as a list, as methods declare what is searched."""
    choices = options.get("choices") if isinstance(options, dict) else None
    if isinstance(choices, list) and len(choices) > 1:
        return choices
    if isinstance(options, list) and len(options) == 2 and all(type(bound) in (int, float) for bound in options) and (
            0 < options[0] < options[1]):
        return options[0], options[1]
    raise UserError(f"{where}: search.{key} = {options!r}: write [low, high] with 0 < low < high, or "
                    "{ choices = [...] } with two values or more")


def _step(where: str, step: dict[str, Any]) -> dict[str, Any]:
    kind, keys = step.get("step"), {*step} - {"step"}
    if not isinstance(kind, str) or kind not in STEPS:
        hint = next(filter(None, (near(str(value), STEPS) for value in step.values())), "")
        raise UserError(f"{where}: every [[after]] has the key step, one of {', '.join(STEPS)}, not {kind!r}{hint}")
    takes = f"{where}: the step {kind} takes {', '.join(STEPS[kind]) or 'no keys'}"
    if missing := [f"{key} = {example}" for key, example in STEPS[kind].items() if key not in keys]:
        raise UserError(f"{takes}: {', '.join(key.partition(' ')[0] for key in missing)} "
                        f"{'is' if len(missing) == 1 else 'are'} missing, such as {', '.join(missing)}")
    if other := sorted(keys - STEPS[kind].keys()):
        raise UserError(f"{takes}, not {', '.join(other)}{near(other[0], STEPS[kind])}; take it out")
    shots = step.get("shots", [2])
    if not isinstance(shots, list) or not shots or not all(type(count) is int and count > 0 for count in shots):
        raise UserError(f"{where}: shots = {shots!r} of the step {kind} must be a list of numbers, such as [2, 5]")
    names = step.get("datasets", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where}: datasets = {names!r} of the step {kind} must be a list of names, such as [\"cub\"]")
    return {**step}
