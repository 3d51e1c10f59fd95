"""The processor cores of this machine, whether it may have a GPU, and the memory that a process took."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """The processor cores that this process may use; no more than Slurm gave its task."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(found, int(given)) if given.isdecimal() and int(given) else found


def threads(processes: int) -> int:
    """Threads for each of several processes: OMP_NUM_THREADS where that is set, else an equal share of the cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # one number for each level of nesting
    return int(asked) if asked.isdecimal() and int(asked) else max(1, cores() // max(1, processes))


GPU_FILES = ("nvidia", "nvhost", "nvmap", "dxg", "kfd")
"""How the device files of GPUs begin that torch can use: NVIDIA's, of a Jetson, of Windows' Linux, AMD's."""


def may_have_gpu() -> bool:
    """False where a GPU would show among the device files and none does."""
    if not sys.platform.startswith("linux"):
        return True
    return any(name.startswith(GPU_FILES) for name in os.listdir("/dev"))


def peak_memory() -> int:
    """The most bytes of main memory that this process had in use.

    On Linux by its own account: `ru_maxrss` begins with the peak of the process that started this one.
    """
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
