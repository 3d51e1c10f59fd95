"""What is trained: one file a method. Knows no dataset, no split, no file on disk."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.method import Method, Objective, Step
    from methods.registry import create, get, load_plugin, names, register, select, tags
    from methods.registry.code import code_of
    from methods.registry.entry import Entry
    from methods.settings import MethodError, NoSettings, near, setting

__all__ = ["Entry", "Method", "MethodError", "NoSettings", "Objective", "Step", "code_of", "create", "get",
           "load_plugin", "names", "near", "register", "select", "setting", "tags"]

_HOMES = {"Entry": "registry.entry", "code_of": "registry.code", "Method": "method", "Objective": "method",
          "Step": "method", "MethodError": "settings", "NoSettings": "settings", "near": "settings",
          "setting": "settings"}
"""The modules of these names; all others are the register's."""


def __getattr__(name: str) -> Any:
    """Each name when it is first used: a list of methods needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module 'methods' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"methods.{_HOMES.get(name, 'registry')}"), name)
    globals()[name] = value
    return value
