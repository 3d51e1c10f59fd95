"""What a row gains over the floors, what the choice of an epoch is worth, and what the row costs."""

from __future__ import annotations

import math

import pandas as pd

from reports.aggregate import ROW, ags_board, on_ladder


def with_costs(board: pd.DataFrame, frame: pd.DataFrame, metric: str = "recall@1") -> pd.DataFrame:
    """An `ags_board` with what a row gains and costs.

    `gain` is the mean AGS less that of the frozen floor in the protocol; `gap`, the selection gap, is the AGS with
    the epoch chosen on the test classes less the AGS of the last epoch, and `gap:validation` the same with the epoch
    chosen on held-out classes; `parameters` trained; `seconds` of all runs.
    """
    if board.empty:
        return board
    keys = pd.MultiIndex.from_frame(board[ROW])
    floor = board[board["method"].str.split("[").str[0] == "frozen"].groupby("protocol")["mean"].max()
    board = board.assign(gain=(board["mean"] - board["protocol"].map(floor)).where(board["method"] != "frozen"))
    for rule, name in (("best-test", "gap"), ("validation", "gap:validation")):
        if f"{rule}:{metric}" in frame and frame[f"{rule}:{metric}"].notna().any():
            chosen = ags_board(frame, f"{rule}:{metric}").set_index(ROW)["mean"]
            board = board.assign(**{name: chosen.reindex(keys).to_numpy(dtype=float) - board["mean"].to_numpy()})
    rows = on_ladder(frame).groupby(ROW)
    board = board.assign(parameters=rows["trainable_parameters"].max().reindex(keys).to_numpy(dtype=float))
    if "cost:seconds" in frame:
        board = board.assign(seconds=rows["cost:seconds"].sum(min_count=1).reindex(keys).to_numpy(dtype=float))
    return board


def gain_over_floor(cells: pd.DataFrame, floor: str = "frozen") -> pd.DataFrame:
    """The cells of `rung_scores` with a column `gain`, the score less that of the floor in the same protocol."""
    base = cells[cells["method"].str.split("[").str[0] == floor].groupby(["protocol", "split"])["score"].max()
    keys = pd.MultiIndex.from_frame(cells[["protocol", "split"]])
    return cells.assign(gain=cells["score"].to_numpy() - base.reindex(keys).to_numpy())


def falls_below(cells: pd.DataFrame, floor: str = "frozen") -> pd.DataFrame:
    """For each row of one dataset the distance at which its score falls below the floor, `inf` if it never does.

    Between two rungs score and floor are taken to be straight; a row that starts below the floor falls at its
    nearest rung. Rows without a floor to compare with are left out.
    """
    gained = gain_over_floor(cells, floor)
    gained = gained[gained["gain"].notna() & gained["frd"].notna() & ~gained["floor"]]
    rows = [(*key, crossing(group["frd"].tolist(), group["gain"].tolist()))
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
