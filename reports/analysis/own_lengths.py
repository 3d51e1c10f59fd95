"""Studies that train each method for a length of its own on a part of a ladder: a board of their rows alone.

With the whole ladder such rows have a board by AGS (`ranked_with`); here they are ranked on the splits that they share.
"""

from __future__ import annotations

from collections.abc import Iterator

from reports.analysis.results import Results
from reports.analysis.study_progress import StudyProgress
from reports.selection import ranked_as, with_setting


def of_part(results: Results, dataset: str) -> Iterator[tuple[StudyProgress, Results]]:
    """The studies of a dataset whose methods have several lengths and the same splits, two at least, with their runs.

    A row may be a shorter study's as well, and is ranked there, too.
    """
    here = results.runs[results.runs["dataset"] == dataset]
    for study in results.studies:
        asked = here[study.asks_for(here)]
        trained = asked[~asked["baseline"].astype(bool)]
        splits = trained.groupby("method")["split"].agg(frozenset)
        rows = trained.drop_duplicates(["method", "protocol", "backbone"])
        alike = len(set(splits)) == len(rows[["base_protocol", "backbone"]].drop_duplicates()) == 1
        part = alike and 1 < len(splits.iloc[0]) < len(results.ladders[dataset] or ())
        if part and rows["method"].is_unique and rows["protocol"].map(ranked_as).nunique() > 1:
            board = with_setting(str(rows["base_protocol"].iloc[0]), {"study": study.name})
            yield study, results.restricted(asked.assign(ranked_with=board))
