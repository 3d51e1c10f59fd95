"""Where the seconds of a run go."""

from __future__ import annotations

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
