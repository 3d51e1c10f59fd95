"""Few-shot adaptation: what `fewshot.json` beside a record says, and the gain over zero-shot."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.aggregate import spread
from reports.board import Board
from reports.selection import ROW
from reports.storage import packed

NAME = "fewshot.json"
SCHEMA = 1
COLUMNS = ["dataset", "split", "frd", *ROW, "seed", "shots", "metric", "zero", "few", "episodes"]


def collect(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run, number of shots and metric: zero-shot and few-shot mean over episodes; see COLUMNS."""
    rows = packed.rows_beside(runs[["dataset", "split", "frd", *ROW, "seed", "path"]], NAME, SCHEMA, _rows,
                              "run `oodml fewshot` again")
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(content: Any) -> list[tuple[Any, ...]]:
    """(shots, metric, zero-shot, few-shot, episodes) of one file."""
    return [(int(shots), str(metric), float(entry["zero"][metric]["mean"]), float(few["mean"]), int(entry["episodes"]))
            for shots, entry in sorted(content["shots"].items(), key=lambda item: int(item[0]))
            for metric, few in entry["few"].items() if entry["zero"].get(metric) is not None]


def cells(adapted: pd.DataFrame, metric: str, shots: int) -> pd.DataFrame:
    """For each dataset, rung and row: zero-shot, few-shot and gain, each with deviation and n over seeds."""
    here = adapted[(adapted["metric"] == metric) & (adapted["shots"] == shots)]
    rows = []
    for key, group in here.groupby(["dataset", "split", "frd", *ROW], sort=True, dropna=False):
        row: dict[str, Any] = dict(zip(["dataset", "split", "frd", *ROW], key))
        for name, values in (("zero", group["zero"]), ("few", group["few"]), ("gain", group["few"] - group["zero"])):
            row[name], row[f"{name}:std"], row[f"{name}:n"] = spread(values)
        rows.append(row)
    return pd.DataFrame(rows)


def with_gain(board: Board, adapted: pd.DataFrame, metric: str) -> Board:
    """A board with `fewshot`: the gain of adaptation at the smallest number of shots, mean over the row's cells.

    A cell, that is a split of a dataset, counts once, however many seeds were adapted on it.
    """
    here = adapted[adapted["metric"] == metric]
    if here.empty or not len(board):
        return board
    here = here[here["shots"] == here["shots"].min()]
    cells = here.assign(gain=here["few"] - here["zero"]).groupby([*ROW, "dataset", "split"])["gain"].mean()
    return board.assign(fewshot=board.aligned(cells.groupby(ROW).mean()))
