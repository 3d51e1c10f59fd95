"""Versions of the board that can be cited: which records, which tables came of them, and whether they still do.

`reports/data/boards/v2026.1.json` holds the SHA-256 of every record file and of every table (`data/*.csv` beside the
pages), and one of all pages together. Pages change with the suite's templates; records and tables must not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmark import __version__
from benchmark.utils.errors import UserError, near
from benchmark.utils.files import sha256, write_json
from benchmark.utils.workspace import Workspace
from reports.safe_text import one_line
from reports.storage import packed, paths
from reports.wording import counted

NAME = re.compile(r"v20\d\d\.[1-9]\d?", re.ASCII)


def cut(name: str, folders: tuple[Path, ...], home: Path) -> Path:
    """Writes the file of a new version, never over another one."""
    if not NAME.fullmatch(name):
        raise UserError(f"'{name}' is no version of a board: write v, the year and a number, such as v2026.1")
    path = home / f"{name}.json"
    if path.exists():
        raise UserError(f"{path} is there already; a version that was cut is never changed: cut the next one")
    if inside := [folder for folder in folders if home.resolve().is_relative_to(folder.resolve())]:
        raise UserError(f"{path} would lie among the records of {inside[0]}, and never be what it was cut from: give "
                        "another folder with --to")
    content = {"board": name, "oodml": __version__,
               "folders": [os.path.relpath(folder, home) for folder in folders],
               **_hashes(folders)}
    home.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
    return path


def files(home: Path) -> list[Path]:
    """The files of the versions in a folder, the oldest first."""
    found = [path for path in home.glob("*.json") if NAME.fullmatch(path.stem)] if home.is_dir() else []
    return sorted(found, key=lambda path: tuple(map(int, path.stem[1:].split("."))))


def find(version: str, home: Path) -> Path:
    """The file of a version by its name or its path."""
    for path in (Path(version), home / f"{version}.json"):
        if path.is_file():
            return path
    known = [path.stem for path in files(home)]
    raise UserError(f"there is no version '{version}'{near(version, known)}; there are: {', '.join(known) or 'none'} "
                    f"in {home}, or give the path of a version's file")


def summary(path: Path) -> tuple[str, str, str]:
    """A version, by which oodml it was made, and of what; a damaged file is told as such."""
    try:
        stated = json.loads(paths.plain_file(path).read_text(encoding="utf-8"))
        made = f"{counted(len(stated['records']), 'file')} of records, {counted(len(stated['tables']), 'table')}"
        return path.stem, f"oodml {stated['oodml']}", made
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return path.stem, "", f"damaged: {one_line(str(error), 100)}"


def differences(path: Path) -> tuple[list[str], bool]:
    """(what is no longer as it was cut, one line each; whether the pages too are the same).

    Where records differ nothing is built: the board of other records says nothing about this version.
    """
    try:
        stated = json.loads(paths.plain_file(path).read_text(encoding="utf-8"))
        folders = tuple(path.parent / folder for folder in stated["folders"])
        expected = {kind: dict(stated[kind]) for kind in ("records", "tables")}
        pages = stated["pages"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is no version of a board ({error}); `oodml board cut` writes one") from None
    lines = _changes("records", expected["records"], _records(folders))
    if lines:
        return lines, False
    found = _hashes(folders)
    return _changes("tables", expected["tables"], found["tables"]), pages == found["pages"]


def _changes(kind: str, before: dict[str, str], now: dict[str, str]) -> list[str]:
    what = {name: "is new" if name not in before else "is missing" if name not in now else "differs"
            for name in sorted({*before, *now}) if before.get(name) != now.get(name)}
    return [f"{kind}: {name} {changed}" for name, changed in what.items()]


def _records(folders: tuple[Path, ...]) -> dict[str, str]:
    """The hash of every file that a board may read."""
    folders = tuple(Path(os.path.abspath(folder)) for folder in folders)  # `.` has no name
    names = Counter(folder.name for folder in folders)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UserError(f"two folders of records are called {twice[0]}, and a version knows them by their names: "
                        "rename one")
    return {f"{folder.name}/{path.relative_to(folder).as_posix()}": sha256(path) for folder in folders
            for path in sorted(folder.rglob("*")) if path.is_file() and not _aside(path.relative_to(folder))}


def _aside(path: Path) -> bool:
    """Whether no board reads a file: a text, or a hidden one that a system or an editor left.

    >>> [_aside(Path(name)) for name in ("README.md", ".DS_Store", ".git/x.json", "cub/a.runs.jsonl", "record.json")]
    [True, True, True, False, False]
    """
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix == ".md" or (hidden and not path.name.endswith(packed.ENDING))


def _hashes(folders: tuple[Path, ...]) -> dict[str, Any]:
    from benchmark.board import leaderboard  # brings much along that a list of versions does not need

    with TemporaryDirectory() as made:
        board = leaderboard.collect(Workspace.at(Path(made) / "work"), folders)
        site = board.build(Path(made) / "site").parent
        files = {path.relative_to(site).as_posix(): sha256(path) for path in sorted(site.rglob("*")) if path.is_file()}
    tables = {name: digest for name, digest in files.items() if name.startswith("data/")}
    pages = hashlib.sha256(json.dumps([item for item in files.items() if item[0] not in tables]).encode()).hexdigest()
    return {"records": _records(folders), "tables": tables, "pages": pages}
