"""Where each row stands on every board: its score and rank, what it keeps along the ladder, and its nearest rivals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.results import Results
from reports.analysis.rung_board import beside_ladder, rung_board
from reports.board import Board
from reports.tables.boards import KEPT
from reports.tables.notes import frozen_of
from reports.tables.table import Column, Table, missing, rank_text

RIVALS = 2
"""Rows shown above and below a row as its nearest rivals."""


def of(results: Results) -> pd.DataFrame:
    """The standings of some results, computed once."""
    return results.once("standings", lambda: standings(results))


def standings(results: Results) -> pd.DataFrame:
    """One line a row and board: `label`, `board`, `kind` (ladder, mean, split, union), `metric`, score, rank.

    Rows are ranked among those of the same `protocol` and `network`; what was submitted stands with a protocol's rows.
    `nearest` and `farthest` are the scores at the ends of the ladder, `kept` the second over the first where that says
    something, else `kept:why` says why not; `of` counts the rows that are ranked in the same network.
    """
    lines: list[dict[Any, Any]] = []
    for metric in results.metrics:
        for protocol in results.protocols:
            board = results.ags(metric, protocol)
            if len(board.parts("ags")) > 1:
                lines += _lines(results, board, ("mean", ""), metric, "all ladders", "mean")
        for dataset in results.datasets:
            board = rung_board(results, dataset, metric)
            if board.parts("ags"):
                lines += _lines(results, board.where(board.rows["ranked_by"] == ""), ("ags", dataset), metric, dataset,
                                "ladder")
            if beside_ladder(results, dataset, metric):
                board = rung_board(results, dataset, metric, default=True)
            for split in sorted(set(board.rows["ranked_by"]) - {""}):
                part = board.where(board.rows["ranked_by"] == split)
                lines += _lines(results, part, ("rung", split), metric, dataset, "split")
    for dataset in results.unions:
        for protocol in results.protocols:
            lines += _lines(results, results.universal(dataset, protocol), ("harmonic", ""), "recall@1", dataset,
                            "union")
    order = {"mean": 0, "ladder": 1, "union": 2, "split": 3}
    frame = pd.DataFrame(lines, columns=COLUMNS)
    return frame.assign(order=frame["kind"].map(order)).sort_values("order", kind="stable").drop(columns="order")


COLUMNS = ["label", "board", "kind", "metric", "protocol", "backbone", "network", "score", "score:std", "score:n",
           "score:low", "score:high", "score:gain", "nearest", "farthest", "kept", "kept:why", "rank", "rank:low",
           "rank:high", "rank:of", "baseline", "best_frozen", "coverage"]


def _lines(results: Results, board: Board, by: tuple[str, str], metric: str, name: str,
           kind: str) -> list[dict[Any, Any]]:
    if not len(board):
        return []
    column, rows = board.column(*by), board.rows
    known = {f"score:{key}": column[key] for key in ("std", "n", "low", "high", "gain") if key in column}
    frame = rows.assign(label=results.label(rows), board=name, kind=kind, metric=metric, protocol=rows["board"],
                        score=column["score"], coverage=column["coverage"], **known)
    frame = frame[(frame["source"] != "published") & (frame["score"].notna() | frame["coverage"].notna())]
    return frame.reindex(columns=COLUMNS).to_dict("records")


def of_row(known: pd.DataFrame, label: str, name: str) -> Table:
    """The boards that a row stands on, as a table."""
    here = _told(known[known["label"] == label])
    here = here.assign(what=[WORDS[kind] for kind in here["kind"]])
    columns = [Column("board", "Board"),
               Column("what", "Ranked by", "text", "AGS: area under the score along the ladder"),
               Column("metric", "Metric"), Column("rank", "Rank", "rank", "Among the rows of the same backbone"),
               Column("rank:of", "of", "number", "How many rows of its backbone are ranked", 0),
               Column("score", "Score", "score"), Column("score:gain", "vs frozen", "gain",
                      f"The score less that of {frozen_of(here[here['score:gain'].notna()])}"),
               Column("nearest", "Nearest", "score", "Score on the nearest split"),
               Column("farthest", "Farthest", "score", "Score on the farthest split"),
               Column("kept", "Kept, %", "percent", KEPT, 0)]
    shown = tuple(column for column in columns if here[column.key].notna().any())
    frame = here.drop(columns=["label", "kind", "backbone", "network", "best_frozen", "order"], errors="ignore")
    frame = frame.reset_index(drop=True)
    return Table(name, f"{label} on every board", shown, frame, marked=False)


def _told(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines of a row without the ladder of which it has a part, where it stands on the board of a split of it."""
    splits = set(lines.loc[lines["kind"] == "split", "board"])
    return lines[lines["score"].notna() | ~lines["board"].isin(splits)]


WORDS = {"mean": "mean AGS", "ladder": "AGS", "union": "harmonic mean", "split": "score on one split"}


def headline(known: pd.DataFrame, label: str) -> list[dict[Any, Any]]:
    """The boards of the first metric that a row's page begins with: all but single splits, where there are others."""
    here = known[(known["label"] == label) & (known["metric"] == known["metric"].iloc[0])] if len(known) else known
    here = _told(here)
    first = here[here["kind"] != "split"]
    return [line | {"rank_text": rank_text(line), "what": WORDS[line["kind"]],
                    "why_not_kept": "" if missing(line["kept:why"]) else line["kept:why"]}
            for line in (first if len(first) else here).to_dict("records")]


def in_order(lines: pd.DataFrame) -> list[str]:
    """The labels of one dataset's rows that are ranked together, best first; `lines` are of one metric.

    Its ladder's, where rows of it are ranked, and else its split's; of several protocols and networks, which are not
    ranked against each other, those with the most rows. Where none is ranked, all by the farthest split.
    """
    ranked = lines[lines["rank"].notna()].sort_values(["score", "label"], ascending=[False, True])
    if "ladder" in set(ranked["kind"]):
        ranked = ranked[ranked["kind"] == "ladder"]
    together = ranked.groupby(["protocol", "network"])["label"].transform("size")
    most = ranked[together == together.max()].sort_values(["protocol", "network"])[["protocol", "network"]][:1]
    ranked = ranked.merge(most)  # keeps the order
    if ranked.empty:
        trained = lines[~lines["baseline"].astype(bool) & lines["farthest"].notna()]
        ranked = trained.sort_values(["farthest", "label"], ascending=[False, True])
    return ranked["label"].tolist()


def rivals(known: pd.DataFrame, line: dict[Any, Any]) -> list[dict[Any, Any]]:
    """The rows ranked next to a row on one of its boards, best first, each with its difference to the row."""
    alike = [known[key].to_numpy() == line[key] for key in ("board", "kind", "metric", "protocol", "network")]
    same = known[np.logical_and.reduce([*alike, known["rank"].notna().to_numpy()])]
    same = same.sort_values(["score", "label"], ascending=[False, True]).reset_index(drop=True)
    place = same.index[same["label"] == line["label"]]
    if not len(place):
        return []
    start = max(0, int(place[0]) - RIVALS)
    near = same.iloc[start:int(place[0]) + RIVALS + 1]
    return [other | {"rank_text": rank_text(other), "difference": other["score"] - line["score"]}
            for other in near.to_dict("records") if other["label"] != line["label"]]
