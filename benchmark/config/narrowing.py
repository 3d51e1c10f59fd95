"""What the command line makes of a study: narrowed to names of its own, or with others in the place of these.

Names are compared by what they stand for (`naming`, `datasets.meant`), so that it does not matter how they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import methods
from benchmark import datasets
from benchmark.config import protocol as protocols
from benchmark.config.naming import backbones_meant, methods_meant
from benchmark.config.study import Part, Study

Meant = Callable[[str], str]
"""What the name of a dataset stands for."""


def changed(study: Study, ladders: Path, *, set: dict[str, Any] | None = None, **changes: Any) -> Study:
    """The study with what the command line says instead of its own; None leaves things as they are.

    Where it names methods, datasets or backbones that the study has, it is narrowed to them: a part keeps its own
    among them, and one that has none is left out. Others take the place of the study's. What follows the runs is
    on the datasets that are left.

    Args:
        study: as its file has it.
        ladders: the folder that knows datasets of one's own by the names of their ladders.
        set: keys of the protocol and METHOD.KEY, on top of the parts' own.
        changes: fields of `Part`.

    >>> from benchmark.config.study import load
    >>> here = Path("work/splits")
    >>> [part.datasets for part in changed(load("photos-union"), here, datasets=("cub", "dogs")).parts]
    [('cub',), ('dogs',)]
    >>> [changed(load("fewshot"), here, datasets=(name,)).after for name in ("cub", "uml")]
    [({'step': 'fewshot', 'datasets': ['cub'], 'shots': [2, 5]},), ()]
    """
    changes = {key: value for key, value in changes.items() if value is not None}
    if "seeds" in changes:
        changes["more_seeds"] = {}
    named = {key: changes.pop(key, None) for key in ("datasets", "methods", "backbones")}
    parts = [replace(part, **changes) for part in study.parts]
    meant = partial(datasets.meant, splits=ladders)
    others = False
    if named["datasets"] is not None:
        parts = _on_datasets(parts, named["datasets"], meant)
    if named["methods"] is not None:
        parts, others = _of_methods(parts, named["methods"])
    parts = [replace(part, set={**part.set, **(set or {})}) for part in parts]
    if named["backbones"] is not None:
        parts = _with_backbones(parts, named["backbones"], partial(datasets.resolved, splits=ladders))
    return replace(study, parts=tuple(parts), after=tuple(_steps(study, parts, named["datasets"] or (), meant)),
                   other_methods=others)


def _on_datasets(parts: Sequence[Part], given: Sequence[str], meant: Meant) -> list[Part]:
    wanted = {*map(meant, given)}
    if not wanted <= _meanings(parts, meant):  # nor is its ladder that of another dataset
        return [replace(part, datasets=tuple(given), ladder="") for part in parts]
    kept = [(part, tuple(name for name in part.datasets if meant(name) in wanted)) for part in parts]
    return [replace(part, datasets=own) for part, own in kept if own]


def _meanings(parts: Sequence[Part], meant: Meant) -> set[str]:
    return {meant(name) for part in parts for name in part.datasets}


def _steps(study: Study, parts: Sequence[Part], given: Sequence[str], meant: Meant) -> Iterator[dict[str, Any]]:
    """What follows the runs of these parts: on the datasets that are left, or on those in the place of the study's."""
    before = _meanings(study.parts, meant)
    others = [] if {*map(meant, given)} <= before else [*given]
    gone = before - _meanings(parts, meant)
    for step in study.after:
        kept = others or [name for name in step.get("datasets", ()) if meant(name) not in gone]
        if "datasets" not in step:
            yield step
        elif kept:
            yield {**step, "datasets": kept}


def _of_methods(parts: Sequence[Part], text: str) -> tuple[list[Part], bool]:
    """The parts with these methods, and whether they are others than the study's and took the place of its own."""
    own = [_known(methods_meant, part.methods) for part in parts]
    given = _known(methods_meant, text, [*chain(*own)])
    wanted = {*given.values()}
    if not _among(wanted, own):
        return [_with_methods(part, [*names], [*given]) if given else replace(part, methods=text)
                for part, names in zip(parts, own)], True
    return [_with_methods(part, [*names], [name for name in names if names[name] in wanted])
            for part, names in zip(parts, own) if wanted & {*names.values()}], False


def _with_methods(part: Part, own: list[str], kept: list[str]) -> Part:
    """The part with these methods, and without the settings of those of its own that are not among them."""
    if kept == own:
        return part
    left_out = {*_with_bases(own)} - {*_with_bases(kept)}
    values, vary, search = ({key: value for key, value in table.items() if key.rpartition(".")[0] not in left_out}
                            for table in (part.set, part.vary, part.search))
    # under a setting of another method these had a plain run
    return replace(part, methods=",".join(kept), set=values, vary=vary, search=search,
                   plain=part.plain or vary != part.vary)


def _with_bases(names: list[str]) -> Iterator[str]:
    for name in names:
        base = methods.get(name).base
        yield from (name, base.name) if base else (name,)


def _with_backbones(parts: Sequence[Part], text: str, resolved: Meant) -> list[Part]:
    own = [_backbones_of(part, resolved) for part in parts]
    wanted = {*_known(backbones_meant, text, [*chain(*(names.values() for names in own))]).values()}
    if not _among(wanted, own):
        return [replace(part, backbones=text) for part in parts]
    return [*chain(*(_with_some(part, names, wanted, resolved) for part, names in zip(parts, own)))]


def _backbones_of(part: Part, resolved: Meant) -> dict[str, str]:
    """The backbones of a part and what they stand for: its own list, else those of its protocol and settings."""
    if part.backbones:
        return _known(backbones_meant, part.backbones)
    usual = {name: None for names in _usual(part, resolved).values() for name in names.values()}
    if {*part.vary} == {"backbone"} and not part.plain:  # no run has it
        usual = {}
    return _known(backbones_meant, ",".join([*usual, *part.vary.get("backbone", ())]))


def _usual(part: Part, resolved: Meant) -> dict[str, dict[str, str]]:
    """The backbone of every method on every dataset of a part that names none, before anything is varied."""
    found: dict[str, dict[str, str]] = {}
    for dataset in part.datasets:
        name = resolved(dataset)
        protocol, plain = part.protocol or datasets.get(name).protocol, "" if ":" in name else name
        for method in _known(methods_meant, part.methods):
            usual = protocols.load(protocol, dataset=plain, method=method, tags=methods.get(method).kinds).backbone
            found.setdefault(dataset, {})[method] = part.set.get("backbone", usual)
    return found


def _with_some(part: Part, own: dict[str, str], wanted: set[str], resolved: Meant) -> Iterator[Part]:
    """The runs of a part that have one of these backbones; several parts where its datasets or methods differ in it."""
    if wanted >= {*own.values()}:
        yield part
    elif part.backbones:
        if kept := [name for name in own if own[name] in wanted]:
            yield replace(part, backbones=",".join(kept))
    else:
        varied = tuple(name for name in part.vary.get("backbone", ()) if own[name] in wanted)
        only = {"backbone": varied} if varied else {}
        for dataset, names in _usual(part, resolved).items():
            kept, rest = ([name for name in names if (own.get(names[name]) in wanted) is fits]
                          for fits in (True, False))
            if kept:
                some = _with_methods(part, [*names], kept)
                vary = {key: values for key, values in some.vary.items() if key != "backbone"} | only
                if vary or some.plain:
                    yield replace(some, datasets=(dataset,), vary=vary)
            if rest and varied:
                yield replace(_with_methods(part, [*names], rest), datasets=(dataset,), vary=only, plain=False)


def _known(meanings: Callable[..., dict[str, str]], *given: Any) -> dict[str, str]:
    """The names and what they stand for; none where one is not known here, as that of a plug-in that is not loaded."""
    try:
        return meanings(*given)
    except methods.MethodError:
        return {}


def _among(wanted: set[str], own: Sequence[dict[str, str]]) -> bool:
    """Whether all that is wanted is the study's own, as far as that is known of every part."""
    return bool(wanted) and all(own) and wanted <= {*chain(*(names.values() for names in own))}
