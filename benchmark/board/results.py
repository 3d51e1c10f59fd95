"""The results of runs as every command ranks them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmark.config import overrides
from benchmark.ladders import pinned
from reports.analysis.results import Results
from reports.analysis.study_progress import StudyProgress


def results_of(frame: pd.DataFrame, studies: Sequence[StudyProgress], *, published: str = "hidden",
               ladders: Sequence[str] = (), level: str = "") -> Results:
    """Rows by what runs changed in the files of their protocols, their ladders by the names that are pinned.

    `published`: what papers print is `shown`, `ranked` or `hidden`.
    """
    return Results(frame, with_published=published != "hidden", rank_published=published == "ranked",
                   derive=overrides.of_run, pinned=pinned.known(frame["dataset"]), ladders=ladders, level=level,
                   studies=studies)
