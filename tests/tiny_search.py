"""A search of a second on glyphs-mini."""

from __future__ import annotations

import dataclasses
from typing import Any

from benchmark.runs import tune
from benchmark.runs.job import Resources, SweepOptions
from benchmark.runs.trials import TuneOptions
from benchmark.utils.workspace import Workspace
from reports.analysis import tuning
from tests import tiny_sweep

SMALL = {key: value for key, value in tiny_sweep.SMALL.items() if key != "lr"}
WORDS = ["tune", "--dataset", "glyphs-mini", "--protocol", "demo", "--splits", "1", "--jobs", "2",
         *(word for key, value in SMALL.items() for word in ("--set", f"{key}={value}"))]


def study(names: str = "margin,supcon", **fields: Any) -> Any:
    made = tiny_sweep.study(names, seeds=1, **fields)
    part = made.parts[0]
    return dataclasses.replace(made, parts=(dataclasses.replace(part, set={
        key: value for key, value in part.set.items() if key != "lr"}),))


def tuned(made: Workspace, names: str = "margin,supcon", trials: int = 3, **options: Any) -> list[tuning.Search]:
    _, path = tune.run(study(names), TuneOptions(trials, **options), SweepOptions(made, resources=Resources(jobs=2)),
                       lambda line: None)
    return tuning.load(path)
