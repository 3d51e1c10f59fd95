"""What rows gain over the frozen network, on a board and along a ladder."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from reports.board import Board
from reports.selection import ROW, evaluated_as


def with_gains(board: Board) -> Board:
    """A board with each score's `gain` over the same score of the frozen network; none for published rows.

    The fact `best_frozen` says of a row that its gains are over the protocol's best frozen network, as its backbone
    has none: see `frozen_score`.
    """
    if board.scores.empty:
        return board
    scores = board.filled()
    facts = board.rows[["base_method", "protocol", "backbone", "source"]].loc[scores["row"]].reset_index(drop=True)
    frozen = frozen_score(pd.concat([scores, facts], axis=1), "score", ["protocol", "statistic", "part"])
    counts = (facts["base_method"] != "frozen") & (facts["source"] != "published")
    board = replace(board, scores=scores.assign(gain=(scores["score"] - frozen).where(counts)))
    return board.assign(best_frozen=without_frozen(board.rows))


def without_frozen(rows: pd.DataFrame) -> list[bool]:
    """Of each row whether its protocol ran no frozen network of its backbone."""
    protocols = [evaluated_as(name) for name in rows["protocol"]]
    networks = list(zip(protocols, rows["backbone"]))
    known = {network for network, method in zip(networks, rows["base_method"]) if method == "frozen"}
    return [network not in known for network in networks]


def frozen_score(rows: pd.DataFrame, value: str, by: list[str]) -> np.ndarray:
    """For each row the value of the frozen network of the row's own backbone, among rows that are alike in `by`.

    A backbone that the protocol runs no frozen network of is held against the protocol's best frozen one. Settings
    that change the training alone change nothing in a network that is not trained.
    """
    protocols, backbones = [evaluated_as(name) for name in rows["protocol"]], rows["backbone"].tolist()
    keys = list(zip(*(protocols if name == "protocol" else rows[name].tolist() for name in by)))
    frozen = rows["base_method"].eq("frozen").tolist()
    own: dict[Any, float] = {}  # dictionaries: merging tables of a few rows takes a hundred times as long
    best: dict[Any, float] = {}
    for place, score in enumerate(rows[value].astype(float)):
        if frozen[place]:
            for table, key in ((own, (backbones[place], *keys[place])), (best, keys[place])):
                table[key] = np.fmax(table.get(key, np.nan), score)
    return np.array([best.get(key, np.nan) if without else own.get((backbone, *key), np.nan)
                     for without, backbone, key in zip(without_frozen(rows), backbones, keys)], dtype=float)


def gain_over_frozen(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of `rung_scores` with `gain`, the score less `frozen_score`, and `best_frozen` as in `with_gains`."""
    return cells.assign(gain=cells["score"].to_numpy() - frozen_score(cells, "score", ["protocol", "split"]),
                        best_frozen=without_frozen(cells))


def falls_below(cells: pd.DataFrame) -> pd.DataFrame:
    """For each row of one dataset the distance at which its score falls below the frozen network's, `inf` if never.

    Between two rungs both are taken to be straight; a row that starts below falls at its nearest rung. NaN where a
    rung is missing; rows without a frozen network to compare with are left out.
    """
    gained = gain_over_frozen(cells)
    gained = gained[gained["gain"].notna() & gained["frd"].notna() & ~gained["baseline"]]
    rungs = cells["split"].nunique()
    rows = [(*key, first_negative(group["frd"].tolist(), group["gain"].tolist()) if len(group) == rungs else math.nan)
            for key, group in gained.sort_values(["frd", "split"]).groupby(ROW, sort=True)]
    return pd.DataFrame(rows, columns=[*ROW, "below"])


def first_negative(distances: list[float], gains: list[float]) -> float:
    """The first distance at which the broken line of gains goes below zero; `inf` where it stays above.

    >>> first_negative([10, 20, 40], [0.3, 0.1, -0.1]), first_negative([10, 20], [0.1, 0.1])
    (30.0, inf)
    """
    for i, gain in enumerate(gains):
        if gain < 0:
            if i == 0:
                return distances[0]
            share = gains[i - 1] / (gains[i - 1] - gain)
            return float(distances[i - 1] + share * (distances[i] - distances[i - 1]))
    return math.inf
