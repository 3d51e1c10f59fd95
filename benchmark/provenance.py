"""Where a record comes from: code, versions, machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import socket
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "timm", "pytorch-metric-learning", "numpy", "scipy")


@cache
def facts() -> dict[str, Any]:
    """Everything about this process that may matter later; the host's name is hashed."""
    return {
        "version": _version("oodml"),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def device_name(device: str) -> str:
    """What the device is called: the GPU's name, or the processor's kind."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(Path(__file__).parent), *arguments], capture_output=True, text=True,
                              timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
