"""Which runs are on a pinned ladder: known by what they were trained on, also where their records name none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd


class PinnedLadder(NamedTuple):
    """What makes the runs on a pinned ladder known."""

    name: str
    hash: str
    dataset: str
    dataset_hash: str
    rungs: tuple[tuple[int, float], ...]
    """Each with its distance, as records have them."""
    split_hashes: dict[int, str]
    """Of the classes of each rung."""


def with_ladders(frame: pd.DataFrame, pinned: Iterable[PinnedLadder]) -> pd.DataFrame:
    """The runs with `ladder_name` and `ladder_hash` also where their records are from before ladders had names.

    And without them where a record bears the name of a ladder but has other distances, as it is with a manifest whose
    distances were measured anew: its runs are on another ladder. A ladder of one's own that was pinned after runs on it
    is known from those after that.
    """
    frame = frame.copy()
    for one in pinned:
        alike = frame["ladder"].map(lambda own, rungs=one.rungs: own == rungs)
        here = (frame["dataset"].eq(one.dataset) & frame["ladder_name"].isna()
                & frame["dataset_hash"].eq(one.dataset_hash) & alike
                & frame["split_hash"].eq(frame["split"].map(one.split_hashes)))
        frame.loc[here, ["ladder_name", "ladder_hash"]] = one.name, one.hash
        frame.loc[frame["ladder_hash"].eq(one.hash) & ~alike.astype(bool), ["ladder_name", "ladder_hash"]] = None
    where = frame["dataset"] + " " + frame["dataset_hash"].astype(str) + frame["ladder"].map(str)
    own = frame["source"].ne("submitted")  # what others send names no ladder of ours
    later = frame[own & frame["ladder_name"].notna() & where.isin(where[frame["ladder_name"].isna()])]
    for place, named in later.groupby(where):
        told = named[["ladder_name", "ladder_hash"]].drop_duplicates()
        if len(told) == 1:
            classes = frame["split"].map(dict(zip(named["split"], named["split_hash"])))
            alike = where.eq(place) & (classes.isna() | classes.eq(frame["split_hash"]))
            frame.loc[own & frame["ladder_name"].isna() & alike, told.columns] = told.iloc[0].tolist()
    return frame


def of_datasets(runs: pd.DataFrame, pinned: Iterable[PinnedLadder]) -> dict[str, tuple[str, bool]]:
    """For each dataset whose splits are all those of a pinned ladder its name, and whether on the images pinned.

    A copy that lacks images has the classes and distances of a ladder, and its runs do not count as on it.
    """
    found: dict[str, tuple[str, bool]] = {}
    for one in pinned:
        here = runs[runs["dataset"].eq(one.dataset)]
        same = (here["split_hash"].eq(here["split"].map(one.split_hashes))
                & here["ladder"].map(lambda own, rungs=one.rungs: own == rungs))
        if len(here) and same.all() and not found.get(one.dataset, ("", False))[1]:
            found[one.dataset] = one.name, bool(here["ladder_name"].eq(one.name).all())
    return found
