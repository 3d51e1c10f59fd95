"""Few-shot adaptation: what `fewshot.json` beside a record says, and the gain over zero-shot."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.aggregate import spread
from reports.board import Board
from reports.selection import ROW, row_keys
from reports.storage import packed

NAME = "fewshot.json"
SCHEMA = 1
SETTINGS = ["shots", "episodes", "iterations", "lr"]
"""How a run was adapted; gains are compared where all of these are equal."""
COLUMNS = ["dataset", "split", "frd", *ROW, "seed", "shots", "metric", "zero", "few", "episodes", "iterations", "lr"]


def collect(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run, number of shots and metric: zero-shot and few-shot mean over episodes; see COLUMNS."""
    rows = packed.rows_beside(runs[["dataset", "split", "frd", *ROW, "seed", "path"]], NAME, SCHEMA, _rows,
                              "run `oodml fewshot` again")
    return pd.DataFrame(rows, columns=COLUMNS)


def ways_of(content: Any) -> list[Any]:
    """The parts of one file, each with a way of adapting and what was measured by it; the newest is the file itself.

    >>> [way["shots"] for way in ways_of({"shots": {"2": 1}, "others": [{"adaptation": {"lr": 0.1}, "shots": {}}]})]
    [{'2': 1}, {}]
    """
    return [content, *content.get("others", [])]


def _rows(content: Any) -> list[tuple[Any, ...]]:
    """(shots, metric, zero-shot, few-shot, episodes, iterations, lr) of one file, once for each of its SETTINGS."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for way in ways_of(content):
        lr = float(way["adaptation"]["lr"]) if "adaptation" in way else None
        for shots, entry in sorted(way["shots"].items(), key=lambda item: int(item[0])):
            episodes, steps = int(entry["episodes"]), int(entry["iterations"]) if "iterations" in entry else None
            for metric, few in entry["few"].items():
                if entry["zero"].get(metric) is not None:
                    row = (int(shots), str(metric), float(entry["zero"][metric]["mean"]), float(few["mean"]), episodes,
                           steps, lr)
                    # 1000 steps are the same whether they were asked for or not: of equals the newest counts
                    found.setdefault((int(shots), str(metric), episodes, steps, lr), row)
    return list(found.values())


def most_thorough(adapted: pd.DataFrame, *same: str) -> pd.DataFrame:
    """Of rows that have `same` in common, those of one way of adapting: most episodes, most steps, least lr.

    So that a first look with few of them does not stand for, or beside, what was adapted in earnest.
    """
    ordered = adapted.sort_values(["episodes", "iterations", "lr"], ascending=[False, False, True], kind="stable")
    return ordered.drop_duplicates([*same]).sort_index()


def cells(adapted: pd.DataFrame, metric: str, shots: int) -> pd.DataFrame:
    """For each dataset, rung, row and SETTINGS: zero-shot, few-shot and gain, each with deviation and n over seeds."""
    here = adapted[(adapted["metric"] == metric) & (adapted["shots"] == shots)]
    rows = []
    keys = ["dataset", "split", "frd", *ROW, *SETTINGS]
    for key, group in here.groupby(keys, sort=True, dropna=False):
        row: dict[str, Any] = dict(zip(keys, key))
        for name, values in (("zero", group["zero"]), ("few", group["few"]), ("gain", group["few"] - group["zero"])):
            row[name], row[f"{name}:std"], row[f"{name}:n"] = spread(values)
        rows.append(row)
    return pd.DataFrame(rows)


def with_gain(board: Board, adapted: pd.DataFrame, metric: str) -> Board:
    """A board with `fewshot`: the gain of adaptation, mean over the cells that all its adapted rows have alike.

    A cell is a split of a dataset with some SETTINGS, of these the fewest shots, and of several ways of adapting the
    most thorough; it counts once, however many seeds were adapted on it. Where the rows share none there is no gain, as
    they would differ by what was adapted and how, and `fewshot:why` says so.
    """
    known = set(board.keys)
    here = adapted[adapted["metric"] == metric]
    here = here[[key in known for key in row_keys(here)]]
    if here.empty:
        return board
    cell = ["dataset", "split", *SETTINGS]
    # what a file does not say is alike where others do not say it either
    here = here.assign(gain=here["few"] - here["zero"]).fillna(dict.fromkeys(SETTINGS, -1))
    gains = here.groupby([*ROW, *cell])["gain"].mean().unstack(cell)
    shared = gains.dropna(axis="columns")
    if shared.empty:
        return board.assign(**{"fewshot:why": "no split was adapted with the same settings for all adapted rows"})
    alike = shared.columns.to_frame(index=False)
    chosen = most_thorough(alike[alike["shots"] == alike["shots"].min()], "dataset", "split")
    return board.assign(fewshot=board.aligned(shared.iloc[:, chosen.index].mean(axis="columns")))
