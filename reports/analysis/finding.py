"""What a board says in two sentences: what is lost along the ladder, who stays ahead, whether that may be chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.board import Board


@dataclass(frozen=True)
class Finding:
    """The numbers behind the sentences: of the ranked rows of one network, scores as fractions.

    `losing` is how many rows lose at all, `lost` the mean over these of the score on the nearest split less that on the
    farthest, 0 where none does, `least` and `most` the ends of that difference over all rows;
    `stays` whether the best row is so at both ends; `tied` how many rows cannot be told from the best one, None where
    that was not tested; `seeds` how many the best one has, at an end of the ladder if it has more there, from which
    tests then have its deviation; `frozen` the scores of the frozen network at both ends, if it was run;
    `untrained` another network that without training is above the best row at the far end, and its score.
    """

    network: str
    rows: int
    losing: int
    lost: float
    least: float
    most: float
    best: tuple[str, ...]
    stays: bool
    nearest: float
    farthest: float
    tied: int | None
    seeds: int
    frozen: tuple[float, float] | None
    untrained: tuple[str, float] | None


def finding(board: Board, by: tuple[str, str] = ("mean", "")) -> Finding | None:
    """The finding of the network with the most ranks on a board that is ranked `by` a score; None without two rows.

    The board has scores at both ends of a ladder: one of AGS (`board_columns.with_ends`), or `rung_board.rung_board`.
    """
    if not len(board) or "nearest" not in board.rows:
        return None
    rows = board.rows
    ranked = rows[rows["rank"].notna() & rows["nearest"].notna() & rows["source"].ne("published")]
    if ranked.empty:
        return None
    network = ranked["network"].value_counts(sort=True).index[0]
    here = ranked[ranked["network"] == network].sort_values("rank", kind="stable")
    if len(here) < 2:
        return None
    lost = (here["nearest"] - here["farthest"]).to_numpy(float)
    losses = lost[lost > 0]
    best = here.iloc[0]
    groups = board.column(*by)["group"].reindex(here.index) if "group" in board.scores else pd.Series(dtype=float)
    # ties are with the first of the whole board: where that lacks an end of the ladder, they say nothing of `best`
    tested = len(groups) and best["rank"] == 1 and "rank:tested" in here and bool(here["rank:tested"].all())
    frozen = rows[(rows["network"] == network) & (rows["base_method"] == "frozen")]
    ends = (float(frozen["nearest"].iloc[0]), float(frozen["farthest"].iloc[0])) if len(frozen) else None
    others = rows[(rows["network"] != network) & (rows["base_method"] == "frozen")
                  & (rows["farthest"] > best["farthest"])].sort_values("farthest", kind="stable")
    return Finding(str(network), len(here), len(losses), float(losses.mean()) if len(losses) else 0.0,
                   float(lost.min()), float(lost.max()),
                   tuple(map(str, best[["method", "protocol", "backbone", "source"]])),
                   bool(best["nearest"] >= here["nearest"].max() and best["farthest"] >= here["farthest"].max()),
                   float(best["nearest"]), float(best["farthest"]), int((groups == 1).sum()) - 1 if tested else None,
                   int(np.nanmax([board.column(*by)["n"].reindex(here.index).iloc[0], best.get("ends:n", 0)])),
                   ends if ends and not np.isnan(ends).any() else None,
                   (str(others["network"].iloc[-1]), float(others["farthest"].iloc[-1])) if len(others) else None)
