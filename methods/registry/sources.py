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
BY_NAME, BY_PATH = ("import_module", "__import__"), ("spec_from_file_location", "run_path")
"""Functions that import what their first argument names, and those that run a file."""
LIBRARIES = frozenset({"site-packages", "dist-packages"})
"""Folders of what is installed: nobody edits a file there between two runs."""
SUITE = frozenset(root / part for root in (FOLDER.parent, FOLDER.parent.resolve())
                  for part in ("oodml.py", "benchmark", "methods", "reports", "splits"))
"""Ours, which may lie beside a plug-in."""


def sources(path: Path, home: Path, files: dict[Path, str], plugin: bool = False) -> None:
    """Adds the hash of a Python file and of the modules below `home` that it imports, directly or not.

    Of a plug-in also the `__init__.py` of the packages on the way, which Python runs first, and what is imported by a
    call, `importlib.import_module("NAME")`; but neither the suite nor libraries, where these lie beside it. Only what
    the source says counts, not what happens to be imported so far: the process that plans a run and the one that trains
    it have to agree. `unfollowed` has the calls that it does not say enough of.
    """
    own, waiting = {None, _installed(path)}, [path]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        source = path.read_bytes()
        files[path] = hashlib.sha256(source).hexdigest()
        for level, stem in [*_imports(source), *(_calls(source)[0] if plugin else ())]:
            start = path.parents[min(level, len(path.parents)) - 1] if level else home
            way = stem.split(".")
            for end in range(1 if plugin else len(way), len(way) + 1):
                beside = start.joinpath(*way[:end])
                waiting += [file for file in (beside.with_suffix(".py"), beside / "__init__.py")
                            if (not plugin or (_installed(file) in own and SUITE.isdisjoint((file, *file.parents))))
                            and file.is_file()]


def _installed(file: Path) -> Path | None:
    """The package or module in a folder of libraries that a file is of; None where it lies elsewhere.

    >>> _installed(Path("lib/site-packages/mine/parts/loss.py")).as_posix(), _installed(Path("mine/loss.py"))
    ('lib/site-packages/mine', None)
    """
    below = [folder for folder in (file, *file.parents) if folder.parent.name in LIBRARIES]
    return below[0] if below else None


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


def unfollowed(path: Path) -> list[int]:
    """The lines of a file that import what only running it tells: by a name that is computed, or from a path."""
    return _calls(path.read_bytes())[1]


@lru_cache(maxsize=1024)
def _calls(source: bytes) -> tuple[list[tuple[int, str]], list[int]]:
    """What some source imports by `import_module` or `__import__` with a name that is written out, and the lines of
    calls whose name or file is not.
    """
    found: list[tuple[int, str]] = []
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or _called(node.func) not in (*BY_NAME, *BY_PATH):
            continue
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        first = node.args[0] if node.args else named.get("name")
        if _called(node.func) in BY_PATH or (first is not None and not _text(first)):
            lines.append(node.lineno)
            continue
        name, package = (_text(given) for given in (first, node.args[1] if node.args[1:] else named.get("package")))
        dots = len(name) - len(name.lstrip("."))
        if dots and package:  # from there, and not from where the file lies
            dots, name = 0, ".".join([*package.split(".")[: 1 - dots or None], name.lstrip(".")])
        if stem := name.lstrip("."):
            found.append((dots, stem))
    return found, sorted(set(lines))


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def hidden_modules(path: Path) -> Iterator[tuple[str, str]]:
    """Modules beside a file that it imports but did not get, with the files that it got: installed, or another's."""
    files: dict[Path, str] = {}
    sources(path, path.parent, files, plugin=True)
    for file in files:
        way = file.relative_to(path.parent).with_suffix("").parts if path.parent in file.parents else ()
        name = ".".join(way[:-1] if way[-1:] == ("__init__",) else way)
        got = getattr(sys.modules.get(name), "__file__", None)
        if got and Path(got).resolve() != file.resolve():
            yield name, got
