"""What a row gains over the floors, what the choice of an epoch is worth, and what the row costs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from reports.aggregate import ROW, ags_board, on_ladder


def with_costs(board: pd.DataFrame, frame: pd.DataFrame, metric: str = "recall@1") -> pd.DataFrame:
    """An `ags_board` with what a row gains and costs.

    `gain` is the mean AGS less that of the frozen floor (`floor_of`); `gap`, the selection gap, is the AGS with
    the epoch chosen on the test classes less the AGS of the last epoch, and `gap:validation` the same with the epoch
    chosen on held-out classes; `parameters` trained; `seconds` of the device for all runs, of which those that shared
    it each took their part.
    """
    if board.empty:
        return board
    keys = pd.MultiIndex.from_frame(board[ROW])
    floor = floor_of(board, "mean", ["protocol"])
    board = board.assign(gain=(board["mean"] - floor).where(board["method"] != "frozen"))
    for rule, name in (("best-test", "gap"), ("validation", "gap:validation")):
        if f"{rule}:{metric}" in frame and frame[f"{rule}:{metric}"].notna().any():
            chosen = ags_board(frame, f"{rule}:{metric}").set_index(ROW)["mean"]
            board = board.assign(**{name: chosen.reindex(keys).to_numpy(dtype=float) - board["mean"].to_numpy()})
    runs = on_ladder(frame)
    rows = runs.groupby(ROW)
    board = board.assign(parameters=rows["trainable_parameters"].max().reindex(keys).to_numpy(dtype=float))
    if "cost:seconds" in frame:
        sharing = runs["cost:shared"].fillna(1) if "cost:shared" in runs else 1
        seconds = (runs["cost:seconds"] / sharing).groupby([runs[key] for key in ROW]).sum(min_count=1)
        board = board.assign(seconds=seconds.reindex(keys).to_numpy(dtype=float))
    return board


def floor_of(rows: pd.DataFrame, value: str, by: list[str], floor: str = "frozen") -> np.ndarray:
    """For each row the value of the floor on the row's own backbone, among rows that are alike in `by`.

    A backbone that the protocol gives to no floor is held against the best floor of the protocol.
    """
    floors = rows[rows["method"].str.split("[").str[0] == floor]
    own, best = (rows[keys].merge(floors.groupby(keys, as_index=False)[value].max(), how="left")[value].to_numpy(float)
                 for keys in ([*by, "backbone"], by))
    theirs = set(zip(floors["protocol"], floors["backbone"]))
    return np.where([pair in theirs for pair in zip(rows["protocol"], rows["backbone"])], own, best)


def gain_over_floor(cells: pd.DataFrame, floor: str = "frozen") -> pd.DataFrame:
    """The cells of `rung_scores` with a column `gain`, the score less that of the floor (`floor_of`)."""
    return cells.assign(gain=cells["score"].to_numpy() - floor_of(cells, "score", ["protocol", "split"], floor))


def falls_below(cells: pd.DataFrame, floor: str = "frozen") -> pd.DataFrame:
    """For each row of one dataset the distance at which its score falls below the floor, `inf` if it never does.

    Between two rungs score and floor are taken to be straight; a row that starts below the floor falls at its
    nearest rung. NaN where a rung is missing; rows without a floor to compare with are left out.
    """
    gained = gain_over_floor(cells, floor)
    gained = gained[gained["gain"].notna() & gained["frd"].notna() & ~gained["floor"]]
    rungs = cells["split"].nunique()
    rows = [(*key, crossing(group["frd"].tolist(), group["gain"].tolist()) if len(group) == rungs else math.nan)
            for key, group in gained.sort_values(["frd", "split"]).groupby(ROW, sort=True)]
    return pd.DataFrame(rows, columns=[*ROW, "below"])


def crossing(distances: list[float], gains: list[float]) -> float:
    """The first distance at which the broken line of gains goes below zero; `inf` where it stays above.

    >>> crossing([10, 20, 40], [0.3, 0.1, -0.1]), crossing([10, 20], [0.1, 0.1]), crossing([10, 20], [-0.1, 0.1])
    (30.0, inf, 10)
    """
    for i, gain in enumerate(gains):
        if gain < 0:
            if i == 0:
                return distances[0]
            share = gains[i - 1] / (gains[i - 1] - gain)
            return float(distances[i - 1] + share * (distances[i] - distances[i - 1]))
    return math.inf
