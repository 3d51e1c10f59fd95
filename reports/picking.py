"""Lists that a user types of things that have names: `margin,s2sd`, `rank,method,ags`, `-time`, `recall*`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from typing import TypeVar

from reports import ReportError
from reports.wording import near

Thing = TypeVar("Thing")


def picked(wanted: str, names: Mapping[Thing, Collection[str]], what: str) -> list[Thing]:
    """The things that a list names, in its order; a leading minus takes away, and one at the start takes from all.

    `all` stands for all, `*` for any letters; capitals and kinds of dashes make no difference, and a comma in brackets
    is part of a name. A name that no thing has is refused, and so is a list that leaves nothing; the first name of each
    thing is the one that is then told.

    >>> known = {1: ["AGS"], 2: ["Method"], 3: ["Kept", "Kept, %"], 4: ["margin[beta=1,nu=2]", "margin"]}
    >>> picked("method,ags", known, "column"), picked("-k*,-margin", known, "column"), picked("kept,*", known, "column")
    ([2, 1], [1, 2], [3, 1, 2, 4])
    >>> picked("margin[beta=1,nu=2],ags", known, "column"), picked("margin[*", known, "column")
    ([4, 1], [4])
    """
    for entry in (one.removeprefix("-") for one in _entries(wanted)):
        if not any(_is_called(of_one, entry) for of_one in names.values()):
            first = list(dict.fromkeys(_bare(next(iter(of_one))) for of_one in names.values()))
            raise ReportError(f"there is no {what} '{entry}'{near(entry, first)}; there are: {'; '.join(first)}")
    if not (found := matching(wanted, names)):
        raise ReportError(f"the list '{wanted}' leaves no {what}")
    return found


def matching(wanted: str, names: Mapping[Thing, Collection[str]]) -> list[Thing]:
    """`picked` of a part of the things, which need not have every name of the list: nothing is refused."""
    entries = _entries(wanted)
    found = list(names) if entries and entries[0].startswith("-") else []
    for entry in entries:
        here = [thing for thing, of_one in names.items() if _is_called(of_one, entry.removeprefix("-"))]
        minus = entry.startswith("-")
        found = [thing for thing in found if thing not in here] if minus else list(dict.fromkeys([*found, *here]))
    return found


def _entries(wanted: str) -> list[str]:
    return [entry for part in re.split(r",(?![^\[]*\])", wanted) if (entry := _bare(part)) not in ("", "-")]


def _is_called(names: Collection[str], entry: str) -> bool:
    return entry == "all" or any(fnmatch(_bare(name), entry.replace("[", "[[]")) for name in names)


def _bare(name: str) -> str:
    return re.sub(r"\s+", " ", re.sub("[−–]", "-", name)).strip().lower()
