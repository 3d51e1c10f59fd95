"""The runs that a study asks for, as the leaderboard reads them: how far it is, and which of its rows are one board."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

import methods
from benchmark.config import overrides
from benchmark.config.spec import RunSpec
from benchmark.config.study import Study
from reports.analysis import study_progress
from reports.analysis.study_progress import DIGITS, GIVEN, StudyProgress
from reports.storage import paths


def of(study: Study, specs: Iterable[RunSpec], named: str = "") -> StudyProgress:
    """What a study asks for with these runs; `named`: its name or its file, as a command has it."""
    facts = [(spec.dataset, spec.method, spec.protocol.name, spec.protocol.backbone, _given(spec),
              spec.split_hash[:DIGITS]) for spec in specs]
    of_splits = pd.DataFrame(facts, columns=[*GIVEN, "on"]).value_counts([*GIVEN, "on"], sort=False)
    rows = _rows(of_splits.rename("seeds").reset_index())
    return StudyProgress(study.name, study.summary, f"oodml run --study {named or study.name}", rows)


def _given(spec: RunSpec) -> str:
    settings = {**spec.settings, **spec.base_settings}  # as in a record
    return study_progress.given(overrides.of_run(spec.protocol.identity(), spec.method, spec.dataset, settings))


def _rows(of_splits: pd.DataFrame) -> pd.DataFrame:
    """The rows of a study from the seeds that it asks for on each split."""
    each = of_splits.groupby([*GIVEN, "on"], sort=False)["seeds"].max().astype(int).reset_index()
    rows = each.groupby(GIVEN, sort=False).agg(
        runs=("seeds", "sum"), splits=("on", " ".join),
        seeds=("seeds", lambda counts: " ".join(map(str, counts)) if counts.nunique() > 1 else "")).reset_index()
    return rows if rows["seeds"].any() else rows.drop(columns="seeds")


def keep(study: Study, specs: Iterable[RunSpec], named: str, work: Path, whole: bool = False) -> None:
    """Puts these runs of a study among those that a working folder knows of it: a command may ask for a part of it.

    A method that is asked for now has all its settings: what was asked of it before with others is no longer, as the
    study was edited. With the `whole` study nothing of before is left on its datasets and backbones but further seeds:
    methods and splits that it does not ask for now were taken out of it, or of a ladder, since. What trains nothing has
    as many seeds as are asked for now, as earlier versions gave it those of the other methods.
    """
    if not paths.is_plain(study.name):
        warnings.warn(f"how far {named} is cannot be kept, nor a board of its own: name the file with letters, digits, "
                      "'-' and '_'", stacklevel=2)
        return
    now = of(study, specs, named)
    asked = now.by_split()
    before = [one.by_split() for one in study_progress.read([work], [])
              if one.name == study.name and {"given", "splits"} <= {*one.rows}]
    fixed = asked[[methods.get(name).trains == "nothing" for name in asked["method"]]]
    before = [rows[~((_gone if whole else _changed)(rows, asked) | _among(rows, fixed, [*GIVEN, "on"]))]
              for rows in before]
    study_progress.write(work, replace(now, rows=_rows(pd.concat([*before, asked], ignore_index=True))))


def _changed(before: pd.DataFrame, now: pd.DataFrame) -> pd.Series:
    """Which rows from before have a method, dataset and backbone that are asked for now, but not as they were."""
    return _among(before, now, ["dataset", "method", "backbone"]) & ~_among(before, now, GIVEN)


def _gone(before: pd.DataFrame, now: pd.DataFrame) -> pd.Series:
    """Which rows from before have a dataset and backbone that are asked for now, but are not asked for themselves."""
    return _among(before, now, ["dataset", "backbone"]) & ~_among(before, now, [*GIVEN, "on"])


def _among(before: pd.DataFrame, now: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Which rows from before are among those of now, by some of what a row is called by."""
    here = pd.MultiIndex.from_frame(before[keys]).isin(pd.MultiIndex.from_frame(now[keys]))
    return pd.Series(here, index=before.index)
