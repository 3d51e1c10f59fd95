"""Where a record comes from: code, versions, machine, and the energy that a GPU took."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import socket
import subprocess
import sys
import threading
import time
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
        "cpu": cpu_name(),
        "driver": _smi("driver_version"),
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def device_name(device: str) -> str:
    """What the device is called: the GPU's name, or the processor's."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    return cpu_name()


@cache
def cpu_name() -> str:
    """The processor's model where the system tells, else its kind."""
    for command in (["lscpu"], ["sysctl", "-n", "machdep.cpu.brand_string"]):
        for line in _output(command).splitlines():
            key, colon, value = line.partition(":")
            if not colon or key.strip() == "Model name":
                return (value or key).strip()
    return platform.processor() or platform.machine()


class Energy:
    """Joules that a GPU takes while this context is open: its power as nvidia-smi tells it, summed over time.

    None on a CPU, or where nvidia-smi does not tell. Runs that share a GPU each count all of it.
    """

    def __init__(self, device: str, every: float = 1.0) -> None:
        self.joules: float | None = None
        self._every = every
        self._index = _gpu_id(device) if device.startswith("cuda") else None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True, name="energy")

    def __enter__(self) -> Energy:
        if self._index is not None and _watts(self._index) is not None:
            self.joules = 0.0
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        before = time.monotonic()
        while not self._end.wait(self._every):
            watts, now_ = _watts(str(self._index)), time.monotonic()
            if watts is not None:
                self.joules = (self.joules or 0.0) + watts * (now_ - before)
            before = now_


def _gpu_id(device: str) -> str | None:
    """What nvidia-smi calls a torch device: they need not be numbered alike."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else None


def _watts(gpu: str) -> float | None:
    try:
        return float(_smi("power.draw", "-i", gpu))
    except ValueError:
        return None


def _smi(field: str, *which: str) -> str:
    """One field of the first GPU (or of `which`); empty where there is no nvidia-smi."""
    lines = _output(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", *which]).splitlines()
    return lines[0].strip() if lines else ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _git(*arguments: str) -> str:
    return _output(["git", "-C", str(Path(__file__).parent), *arguments])


def _output(command: list[str]) -> str:
    """What a command prints; empty where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
