"""Where the seconds of a run, or of a command, go."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Wall seconds by the name of what was done meanwhile.

    >>> phases = Phases()
    >>> for _ in range(2):
    ...     with phases("evaluate"):
    ...         pass
    >>> list(phases.seconds)
    ['evaluate']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@contextmanager
def timed(name: str) -> Iterator[None]:
    """With OODML_TIMES=1, says on stderr when in the process's life this ended, and how long it took."""
    began = time.perf_counter()
    try:
        yield
    finally:
        if os.environ.get("OODML_TIMES"):
            took = time.perf_counter() - began
            print(f"[{_age():6.2f} s] {name}: {took:.2f} s, {time.process_time():.1f} CPU-s until now", file=sys.stderr)


def _age() -> float:
    """Seconds since this process began; on other systems than Linux since some time before."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return time.perf_counter()
