"""Ways to run many cells: each takes run specs and a context and does every cell that is not done yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmark.plan import RunSpec


@dataclass
class Outcome:
    """How a sweep ended: what was done, what failed and why, and whether somebody stopped it."""

    done: list[RunSpec] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Cause by cell, in words."""
    interrupted: bool = False
