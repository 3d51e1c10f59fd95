"""TOML files that come with the suite, protocols and studies: by name, or any other by its path."""

from __future__ import annotations

from pathlib import Path

from benchmark.errors import UserError, near


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
