"""Methods as their source declares them: settings, batches, what they train, in words. Importing them brings torch.

What a file of methods declares, the registered classes with their settings, is run; what needs torch, the functions
of the classes, is not. A name is looked up where the source has it, in the file or in those of ours that it imports. A
file that declares something by means of anything else is not plain to read, a ValueError, and has to be imported.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from methods.registry.sources import FOLDER

KEPT = ("misfit", "base_changes")
"""Functions of a class that are asked without an instance of it."""
IMPORTED = ("methods.settings", "methods.backbones.names")
"""Modules without torch, which are imported as they are."""


class Registration(NamedTuple):
    """What stands in the brackets of an `@register(...)`."""

    args: list[Any]
    keywords: dict[str, Any]


def registered(module: str) -> Iterator[tuple[Registration, type]]:
    """Every `@register(...)` in a module of ours with what its source declares of the class.

    >>> [(words.args, cls.Settings().scale) for words, cls in registered("methods.arcface")]
    [(['arcface'], 16.0)]
    """
    source = _source(module)
    for name, node in source.definitions.items():
        if isinstance(node, ast.ClassDef):
            for call in reversed([call for call in node.decorator_list if _is_call(call, "register")]):
                assert isinstance(call, ast.Call)
                keywords: dict[str, Any] = {}
                for keyword in call.keywords:
                    value = source.value(keyword.value)
                    keywords |= value if keyword.arg is None else {keyword.arg: value}
                yield Registration([source.value(argument) for argument in call.args], keywords), source.find(name)


@cache
def _source(module: str) -> _Source:
    return _Source(module)


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


class _Source:
    """The statements of a module by the names that they define, run one by one when a name is asked for."""

    def __init__(self, module: str) -> None:
        self.module = module
        path = FOLDER.parent.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.definitions: dict[str, ast.stmt] = {}
        # dataclasses look up the module of a class, which is not imported: that of these is this one
        self.names: dict[str, Any] = {"__name__": __name__}
        for node in ast.parse(path.read_bytes()).body:
            self.definitions |= dict.fromkeys(_defined(node), node)

    def find(self, name: str) -> Any:
        """The value of a name of this module."""
        if name not in self.names:
            node = self.definitions.get(name)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.names[name] = self._imported(node, name)
            elif node is None:
                raise ValueError(f"{self.module}: where {name} comes from is not plain")
            else:
                self._run(_plain(node) if isinstance(node, ast.ClassDef) else node)
                if isinstance(node, ast.ClassDef):
                    self.names[name].__module__ = self.module
                    self.names[name].read_off_source = True
        return self.names[name]

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        self._find_all(node)
        with self._plainly():
            return eval(compile(ast.Expression(node), self.module, "eval"), self.names)

    def _run(self, node: ast.stmt) -> None:
        self._find_all(node)
        code = compile(ast.Module([node], []), self.module, "exec", annotations.compiler_flag)
        with self._plainly():
            exec(code, self.names)

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except (NameError, AttributeError, TypeError) as error:
            raise ValueError(f"{self.module} is not plain to read: {error}") from None

    def _find_all(self, node: ast.AST) -> None:
        """Finds what a statement may use of this module; annotations stay texts."""
        for name in _used(node):
            if name in self.definitions and self.definitions[name] is not node:
                self.find(name)

    def _imported(self, node: ast.Import | ast.ImportFrom, name: str) -> Any:
        home = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        root = (home or "").partition(".")[0]
        if root in sys.stdlib_module_names or home in IMPORTED:
            found: dict[str, Any] = {}
            exec(compile(ast.Module([node], []), self.module, "exec"), found)
            return found[name]
        if root != "methods" or home is None or isinstance(node, ast.Import):
            raise ValueError(f"{self.module}: {name} is of {home}")
        own = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        return _source("methods.method" if home == "methods" else home).find(own)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement gives a value."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _used(node: ast.AST) -> Iterator[str]:
    """The names in a piece of source, but for annotations."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, part in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in part if isinstance(part, list) else [part]:
                if isinstance(child, ast.AST):
                    yield from _used(child)


def _plain(node: ast.ClassDef) -> ast.ClassDef:
    """A class with what it declares: its docstring, its settings and constants; of torch's classes it is no longer one.
    """
    plain = copy.copy(node)
    plain.body = [part for part in node.body if isinstance(part, ast.ClassDef) or _is_constant(part)
                  or (isinstance(part, ast.FunctionDef) and part.name in KEPT)] or [ast.Pass()]
    plain.bases = [base for base in node.bases if not ast.unparse(base).startswith(("nn.", "torch."))]
    plain.decorator_list = []
    return ast.fix_missing_locations(plain)


def _is_constant(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, or gives a name a value that is written there."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Name):
        return node.value.id == "NoSettings"
    value = getattr(node, "value", None)
    return isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign)) and isinstance(value, (ast.Constant, ast.Tuple))
