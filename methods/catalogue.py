"""Methods read off the source of their files: the list, and what each is made of. Importing them would bring torch."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent


class Listed(NamedTuple):
    """What a list says of a method; `base` is the objective that it builds on by default."""

    name: str
    family: str
    papers: tuple[str, ...]
    tags: tuple[str, ...]
    trains: str
    base: str
    summary: str


def read() -> list[Listed]:
    """Every `@register(...)` of the files in this folder, by name; a ValueError where one is not plain to read.

    >>> next(method.base for method in read() if method.name == "diva")
    'margin'
    """
    return sorted(method for method, _ in _registered())


def files_of(name: str) -> dict[Path, str]:
    """The files of one of the suite's own methods, of its base and of what they import here, with hashes of each.

    Empty for a plug-in's method. What all methods share, the register and the base classes, does not count.

    >>> sorted(path.relative_to(FOLDER).as_posix() for path in files_of("margin"))
    ['margin.py', 'parts/__init__.py', 'parts/distances.py', 'parts/miners.py', 'parts/ranked.py']
    """
    try:
        known = {method.name: (method, path) for method, path in _registered()}
    except ValueError:
        return {}
    head, _, tail = name.partition(":")
    shared = dict.fromkeys((FOLDER / f"{stem}.py" for stem in ("__init__", "method", "registry", "catalogue")), "")
    files = dict(shared)
    if head in known:
        for method in (head, tail or known[head][0].base):
            if method in known:
                sources(known[method][1], FOLDER.parent, files)
    return {path: content for path, content in files.items() if path not in shared}


def source_hash(name: str) -> str:
    """SHA-256 over `files_of` a method; empty where there are none."""
    files = files_of(name)
    return hashlib.sha256("\n".join(sorted(files.values())).encode()).hexdigest() if files else ""


def sources(path: Path, home: Path, files: dict[Path, str], packages: bool = False) -> None:
    """Adds the hash of a Python file and of the modules below `home` that it imports, directly or not.

    With `packages` also the `__init__.py` of the packages on the way, which Python runs first.
    """
    if path in files:
        return
    source = path.read_bytes()
    files[path] = hashlib.sha256(source).hexdigest()
    for node in ast.walk(ast.parse(source)):
        start, stems = home, list[str]()
        if isinstance(node, ast.Import):
            stems = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = path.parents[min(node.level, len(path.parents)) - 1] if node.level else home
            head = [node.module] if node.module else []
            stems = [*head, *(".".join([*head, alias.name]) for alias in node.names)]
        for stem in stems:
            way = stem.split(".")
            for end in range(1 if packages else len(way), len(way) + 1):
                beside = start.joinpath(*way[:end])
                for file in (beside.with_suffix(".py"), beside / "__init__.py"):
                    if file.is_file():
                        sources(file, home, files, packages)


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


@cache
def _registered() -> list[tuple[Listed, Path]]:
    methods = []
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {target.id: node.value for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))
                     for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                     if isinstance(target, ast.Name) and node.value is not None}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                calls = [call for call in node.decorator_list if isinstance(call, ast.Call)
                         and isinstance(call.func, ast.Name) and call.func.id == "register"]
                methods += [(_listed(call, ast.get_docstring(node) or "", constants), path) for call in calls]
    return methods


def _listed(call: ast.Call, about: str, constants: dict[str, ast.expr]) -> Listed:
    facts: dict[str, Any] = {"papers": (), "tags": (), "trains": "network", "base": ""}
    for keyword in call.keywords:
        if keyword.arg is None:  # **COMMON
            common = constants.get(keyword.value.id) if isinstance(keyword.value, ast.Name) else None
            if not isinstance(common, ast.Dict):
                raise ValueError(f"line {call.lineno}: {ast.unparse(keyword.value)} is no table of constants")
            facts |= {key.value: _value(value, constants) for key, value in zip(common.keys, common.values)
                      if isinstance(key, ast.Constant) and key.value in Listed._fields}
        elif keyword.arg in Listed._fields:
            facts[keyword.arg] = _value(keyword.value, constants)
    papers, tags = tuple(facts.pop("papers")), tuple(facts.pop("tags"))
    return Listed(name=_value(call.args[0], constants), papers=papers, tags=tags,
                  summary=about.strip().partition("\n")[0], **facts)


def _value(node: ast.expr, constants: dict[str, ast.expr]) -> Any:
    """The value of texts, lists and f-strings of constants of the file; a ValueError for all else."""
    if isinstance(node, ast.Name) and node.id in constants:
        return _value(constants[node.id], constants)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(_value(part.value if isinstance(part, ast.FormattedValue) else part, constants))
                       for part in node.values)
    return ast.literal_eval(node)
