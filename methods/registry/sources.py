"""The files that a Python file is made of, with their hashes: itself, and what it imports from beside it."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parents[1]
"""The folder of methods."""


def sources(path: Path, home: Path, files: dict[Path, str], packages: bool = False) -> None:
    """Adds the hash of a Python file and of the modules below `home` that it imports, directly or not.

    With `packages` also the `__init__.py` of the packages on the way, which Python runs first.
    """
    if path in files:
        return
    source = path.read_bytes()
    files[path] = hashlib.sha256(source).hexdigest()
    for level, stem in _imports(source):
        start = path.parents[min(level, len(path.parents)) - 1] if level else home
        way = stem.split(".")
        for end in range(1 if packages else len(way), len(way) + 1):
            beside = start.joinpath(*way[:end])
            for file in (beside.with_suffix(".py"), beside / "__init__.py"):
                if file.is_file():
                    sources(file, home, files, packages)


@lru_cache(maxsize=1024)
def _imports(source: bytes) -> list[tuple[int, str]]:
    """What some source may import: (dots before it, name). Files that many methods share are parsed once."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            head = [node.module] if node.module else []
            found += [(node.level, stem) for stem in (*head, *(".".join([*head, one.name]) for one in node.names))]
    return found


def hidden_modules(path: Path) -> Iterator[tuple[str, str]]:
    """Modules beside a file that it imports but did not get, with the files that it got: installed, or another's."""
    files: dict[Path, str] = {}
    sources(path, path.parent, files, packages=True)
    for file in files:
        way = file.relative_to(path.parent).with_suffix("").parts if path.parent in file.parents else ()
        name = ".".join(way[:-1] if way[-1:] == ("__init__",) else way)
        got = getattr(sys.modules.get(name), "__file__", None)
        if got and Path(got).resolve() != file.resolve():
            yield name, got
