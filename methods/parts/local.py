"""What methods on the last map of a backbone ask of it."""

from __future__ import annotations

from torch import nn


def needs_map(backbone: nn.Module) -> str:
    """The reason why a method on local features cannot use this backbone; empty if it can."""
    if hasattr(backbone, "local_dim"):
        return ""
    name = getattr(backbone, "name", type(backbone).__name__)
    return f"it works on the last map of a network, and {name} gives pooled features only"
