"""TOML files that come with the suite, protocols and studies: by name, or any other by its path."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from benchmark.utils.errors import UserError, near

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def names(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def find(folder: Path, kind: str, name: str) -> Path:
    """The file of a protocol or study: one of the folder by name, or any TOML file by path."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not path.is_file():
        known = names(folder)
        if name.endswith(".toml") or "/" in name or os.sep in name:
            why = "its name must end in .toml" if Path(name).is_file() else "there is no such file"
            raise UserError(f"{kind} {name}: {why}; give the path of a .toml file, or a name: {', '.join(known)}")
        raise UserError(f"unknown {kind} '{name}'{near(name, known)}; there are {', '.join(known)}, "
                        "or give the path of a .toml file")
    return path


def slip(given: str, known: list[str]) -> str:
    """The known name of which an unknown one is a slip of the pen, else nothing.

    A letter is missing, too many or wrong, two are swapped, or case and joints differ; other digits make a variant.

    >>> slip("margn", ["margin"]), slip("Proxy_Anchor", ["proxyanchor"]), slip("margin2", ["margin"])
    ('margin', 'proxyanchor', '')
    """
    return "" if given in known else next((name for name in known if _near(given, name)), "")


def _near(given: str, known: str) -> bool:
    one, two = (re.sub("[-_ ]", "", name.lower()) for name in (given, known))
    for _ in range(2):  # what is left without the common beginning and end
        same = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
        one, two = one[same:][::-1], two[same:][::-1]
    return not (one + two).isdigit() and (max(len(one), len(two)) < 2 or (len(one) == 2 and one == two[::-1]))


def text(path: Path) -> str:
    """What stands in a file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: {error}; save it as UTF-8") from None


def table(path: Path) -> dict[str, Any]:
    """The keys and tables of a file."""
    try:
        return tomllib.loads(text(path))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
