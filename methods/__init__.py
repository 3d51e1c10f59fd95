"""What is trained: one file a method. Knows no dataset, no split, no file on disk."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.method import Method, MethodError, NoSettings, Objective, Step, near, setting
    from methods.registry import Entry, code_of, create, get, load_plugin, names, register, select

__all__ = ["Entry", "Method", "MethodError", "NoSettings", "Objective", "Step", "code_of", "create", "get",
           "load_plugin", "names", "near", "register", "select", "setting"]

_IN_METHOD = {"Method", "MethodError", "NoSettings", "Objective", "Step", "near", "setting"}


def __getattr__(name: str) -> Any:
    """Each name when it is first used: a list of methods needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module 'methods' has no attribute '{name}'")
    value = getattr(importlib.import_module("methods.method" if name in _IN_METHOD else "methods.registry"), name)
    globals()[name] = value
    return value
