"""The processor cores of this machine, and the memory that a process took."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
