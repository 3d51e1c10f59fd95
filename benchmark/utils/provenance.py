"""Where a record comes from: code, versions, machine, and the energy that a GPU took."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import platform
import re
import shlex
import socket
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import benchmark

PACKAGES = ("torch", "torchvision", "timm", "pytorch-metric-learning", "numpy", "scipy")


@cache
def facts(command: str = "") -> dict[str, Any]:
    """Everything about this process that may matter later; the host's name is hashed.

    `command` is what the user typed, where this process was started by another.
    """
    return {
        "version": benchmark.__version__,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "driver": _driver(),
        "host": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
        # of a path that is not UTF-8 the odd bytes as numbers: a record is UTF-8
        "command": (command or shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])).encode(
            "utf-8", "backslashreplace").decode(),
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
    """The processor's model where the system names it, else its kind."""
    for command in (["lscpu"], ["sysctl", "-n", "machdep.cpu.brand_string"]):
        for line in _output(command).splitlines():
            key, colon, value = line.partition(":")
            if not colon or key.strip() == "Model name":
                return (value or key).strip()
    return platform.processor() or platform.machine()


class Energy:
    """Joules that the GPUs of a run take while this context is open, by their own counters.

    None on a CPU, or where the driver does not say. Runs that share a GPU each count all of it.
    """

    def __init__(self, *devices: str) -> None:
        self.joules: float | None = None
        self._gpus = [gpu_id(device) if device.startswith("cuda") else None for device in devices]
        self._before: list[int | None] = []

    def __enter__(self) -> Energy:
        self._before = [_millijoules(gpu) for gpu in self._gpus]
        return self

    def __exit__(self, *_: object) -> None:
        self.joules = self.so_far

    @property
    def so_far(self) -> float | None:
        taken = [(after - before) / 1000 for before, after in zip(self._before, map(_millijoules, self._gpus))
                 if before is not None and after is not None]
        return sum(taken) if taken and len(taken) == len(self._gpus) else None


@cache
def gpu_id(device: str) -> str | None:
    """What the driver calls a torch device: they need not be numbered alike."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else None


@cache
def _nvml() -> Any:
    """The library behind nvidia-smi, whose answers take microseconds where the program takes up to a second."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def _driver() -> str:
    """The version of NVIDIA's driver; empty where there is none."""
    text, nvml = ctypes.create_string_buffer(96), _nvml()
    return text.value.decode() if nvml and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0 else ""


def _millijoules(gpu: str | None) -> int | None:
    """What a GPU has taken since its driver was loaded."""
    handle, energy, nvml = ctypes.c_void_p(), ctypes.c_ulonglong(), _nvml()
    if gpu is None or nvml is None or nvml.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle)) != 0:
        return None
    return energy.value if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)) == 0 else None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _git(*arguments: str) -> str:
    """What git says of the repository of this suite; '' where it was installed, maybe within another's.

    `status` takes no lock: of a run that is killed meanwhile an index.lock would stay, and no commit could be made.
    """
    home = Path(benchmark.__file__).resolve().parents[1]
    top = _output(["git", "-C", str(home), "rev-parse", "--show-toplevel"])
    git = ["git", "--no-optional-locks", "-C", str(home)]
    return _output([*git, *arguments]) if top and Path(top).resolve() == home else ""


@cache
def changed_since(commit: str) -> frozenset[str]:
    """Files of this repository that differ from a commit, by their paths in it; none where that is not known."""
    if not re.fullmatch("[0-9a-f]{40}", commit):  # it comes out of a record, and must be no option
        return frozenset()
    return frozenset(_git("diff", "--name-only", commit).splitlines())


def _output(command: list[str]) -> str:
    """What a command prints; empty where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
