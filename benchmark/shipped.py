"""TOML files that come with the suite, protocols and studies: by name, or any other by its path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmark.errors import UserError, near

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
        raise UserError(f"unknown {kind} '{name}'{near(name, known)}; there are {', '.join(known)}, "
                        "or give the path of a .toml file")
    return path


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
