"""Runs of a sweep that ran out of memory on a GPU that they shared: when each is tried again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

WAITS = (60.0, 120.0, 240.0, 480.0, 960.0, 1920.0)
"""Seconds from each attempt alone to the next, an hour or a little more in all: others may hold memory so long."""


@dataclass
class Crowded:
    """Counts how often each run was tried with a GPU to itself, as far as its own sweep goes, and found no room.

    >>> crowded = Crowded()
    >>> crowded.put_back("run", alone=False), "run" in crowded, crowded.due("run")
    (0.0, True, True)
    >>> [WAITS[0] <= crowded.put_back("run", alone=True) <= 1.5 * WAITS[0], crowded.due("run")]
    [True, False]
    >>> [crowded.put_back("run", alone=True) is None for _ in WAITS][-2:]
    [False, True]
    """

    _tries: dict[str, int] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        """Whether the run is to be tried alone."""
        return key in self._tries

    def put_back(self, key: str, alone: bool) -> float | None:
        """Seconds to wait before the run is tried again; None once it was tried alone often enough."""
        tries = self._tries[key] = self._tries.get(key, 0) + alone
        if tries > len(WAITS):
            return None
        # longer by chance: two sweeps whose runs met would meet again
        seconds = WAITS[tries - 1] * random.uniform(1.0, 1.5) if tries else 0.0
        self._due[key] = time.monotonic() + seconds
        return seconds

    def due(self, key: str) -> bool:
        """Whether the run has waited for long enough."""
        return time.monotonic() >= self._due[key]
