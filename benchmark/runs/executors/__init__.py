"""Ways to do many runs: each module here takes jobs and does every run that is not done yet.

`execute(jobs, resources, progress) -> SweepResult` is the whole interface; all of them call `attempt.attempt_run`.
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
