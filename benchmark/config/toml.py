"""TOML files of protocols and studies, by name or by path, and their tables as frozen dataclasses."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmark.utils.errors import UserError, near

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def names(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def find(folder: Path, kind: str, name: str) -> Path:
    """The file of a protocol or study: one of the folder by name, or any TOML file by path."""
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if "\0" in name or not path.is_file():
        known = names(folder)
        if name.endswith(".toml") or "/" in name or os.sep in name:
            why = "its name must end in .toml" if Path(name).is_file() else "there is no such file"
            raise UserError(f"{kind} {name}: {why}; give the path of a .toml file, or a name: {', '.join(known)}")
        raise UserError(f"unknown {kind} '{name}'{near(name, known)}; there are {', '.join(known)}, "
                        "or give the path of a .toml file")
    return path


def table(path: Path) -> dict[str, Any]:
    """The keys and tables of a file, which is read again only once it has changed; not to be written to."""
    facts = path.stat()
    return _table(path.absolute(), facts.st_mtime_ns, facts.st_size)


@cache
def _table(path: Path, changed: int, size: int) -> dict[str, Any]:
    try:
        return tomllib.loads(text(path))
    except ValueError as error:  # also of a number with thousands of digits
        raise UserError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is not valid TOML: its tables or lists are nested too deep") from None


def text(path: Path) -> str:
    """What stands in a file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: {error}; save it as UTF-8") from None


def build(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """The values as a frozen dataclass of their declared types, ranges and choices.

    Args:
        cls: A dataclass; its annotations say what is allowed.
        values: By the names of its fields; numbers and switches may be text, as they are typed after `--set`.
        where: What the values are of, for the UserError that names every key which is unknown, missing or wrong.

    >>> from benchmark.config.study import Part
    >>> build(Part, {"datasets": ["cub"], "methods": "margin", "seed": 3}, "study mine")
    Traceback (most recent call last):
    benchmark.utils.errors.UserError: study mine: no key 'seed' (did you mean 'seeds'?)
    """
    from pydantic import ValidationError  # a tenth of a second, which lists of names do not need

    try:
        made = adapter(cls).validate_python(values)
    except ValidationError as error:
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        raise UserError(f"{where}: {'; '.join(_line(dict(one), known) for one in error.errors())}") from None
    for key, value in values.items():
        if isinstance(value, bool) and type(getattr(made, key)) in (int, float):  # pydantic takes true for 1
            raise UserError(f"{where}: {key} = {str(value).lower()}: input should be a number")
    return made


def adapter(cls: type[T]) -> TypeAdapter[T]:
    """What reads a dataclass from a table."""
    from pydantic import TypeAdapter

    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def _line(error: dict[str, Any], known: list[str]) -> str:
    """What is wrong with one key, from what pydantic says of it."""
    # of several types that a key may have, pydantic names each behind the key
    parts = [str(part) for part in error["loc"] if part != "bool" and not str(part).startswith("literal[")]
    key, message = ".".join(parts), error["msg"].replace("tuple", "list")  # as TOML calls it
    if error["type"] == "missing":
        return f"missing {key}"
    if error["type"] == "unexpected_keyword_argument":
        return f"no key '{key}'{near(key, known)}"
    choices = re.findall("'([^']*)'", error.get("ctx", {}).get("expected", ""))
    return f"{key} = {error['input']!r}: {message[0].lower()}{message[1:]}{near(str(error['input']), choices)}"
