"""Backbones: the networks that methods train, from timm, torchvision and this folder."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from methods.backbones import names
from methods.backbones.lists import select
from methods.backbones.names import TIMM

if TYPE_CHECKING:
    from methods.backbones.backbone import CENTRED, Backbone, create, skeleton, skeleton_copy

__all__ = ["CENTRED", "TIMM", "Backbone", "create", "names", "select", "skeleton", "skeleton_copy"]


def __getattr__(name: str) -> Any:
    """What brings torch along when it is first used: names of networks need none."""
    if name not in __all__:
        raise AttributeError(f"module 'methods.backbones' has no attribute '{name}'")
    value = getattr(importlib.import_module("methods.backbones.backbone"), name)
    globals()[name] = value
    return value
