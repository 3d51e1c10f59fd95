"""Ways to do many runs: each module of NAMES takes jobs and does every run that is not done yet.

`execute(jobs, resources, progress) -> SweepResult` is its whole interface; a run is done by `benchmark.runs.attempt`
wherever that may be. The other modules are what these stand on: GPUs and who shares them, outcomes, forked workers.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmark.utils.errors import UserError, near

NAMES = ("local", "ray", "slurm")


def check(name: str) -> None:
    """A UserError if there is no executor of this name."""
    if name not in NAMES:
        raise UserError(f"unknown executor '{name}'{near(name, NAMES)}; there are {', '.join(NAMES)}")


def get(name: str) -> Any:
    """The executor of this name."""
    check(name)
    return importlib.import_module(f"benchmark.runs.executors.{name}")
