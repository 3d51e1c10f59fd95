"""Among whose rows a row is ranked: those of its protocol, or those of a study that has lengths for each method."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from reports.analysis.study_progress import StudyProgress
from reports.selection import ROW, ranked_as, with_setting


def ranked_with(runs: pd.DataFrame, studies: Iterable[StudyProgress]) -> pd.Series:
    """For each run the protocol by which the board is called that its row stands on.

    Methods that were given other lengths are not ranked together, since one of them might only be better trained; a
    learning rate may be a method's own. A study may give each method the length at which it gains no more: its rows
    that have their whole ladder are on one board, `PROTOCOL[study=NAME]`, unless it has a method twice.
    """
    named, rows = runs["protocol"].map(ranked_as), ["dataset", *ROW]
    rungs = runs["ladder"].map(lambda known: len(known or ()))
    splits = runs.groupby(rows)["split"].transform("nunique")
    whole = runs[~runs["baseline"].astype(bool) & (rungs > 1) & (splits == rungs)]
    for study in studies:
        asked = whole[study.asks_for(whole)].drop_duplicates(rows)
        for _, here in asked.groupby(["dataset", "base_protocol", "backbone"], sort=True):
            if here["protocol"].map(ranked_as).nunique() > 1 and not here["method"].duplicated().any():
                own = pd.MultiIndex.from_frame(runs[rows]).isin(pd.MultiIndex.from_frame(here[rows]))
                named[own] = with_setting(str(here["base_protocol"].iloc[0]), {"study": study.name})
    return named
