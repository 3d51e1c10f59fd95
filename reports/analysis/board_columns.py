"""What stands beside the score of a row: costs, what epochs are worth to it, the ends of its ladder, what it keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.aggregate import mean_ags
from reports.analysis import costs
from reports.analysis.baselines import frozen_score
from reports.board import Board
from reports.selection import ROW, on_ladder


def with_costs(board: Board, frame: pd.DataFrame, metric: str = "recall@1") -> Board:
    """An `ags_board` with what a row gains and costs.

    `gain` is the mean AGS less that of the frozen network (`frozen_score`); `gap`, the selection gap, is the AGS with
    the epoch chosen on the test classes less the AGS of the last epoch, and `gap:validation` the same with the epoch
    chosen on held-out classes, both over the seeds that have both epochs and missing where a dataset has no such seed;
    `parameters` trained; `seconds` of the device and `energy_wh`, the shares of all runs of the row (`costs.share`).
    """
    if not len(board):
        return board
    mean = board.column("mean")["score"]
    gain = mean - frozen_score(board.rows.assign(mean=mean), "mean", ["protocol"])
    board = board.assign(gain=gain.where(board.rows["method"] != "frozen"))
    for rule, name in (("best-test", "gap"), ("validation", "gap:validation")):
        if f"{rule}:{metric}" in frame and frame[f"{rule}:{metric}"].notna().any():
            # AGS of the differences, run by run: the two epochs may be known of other seeds and datasets
            gained = frame.assign(gained=frame[f"{rule}:{metric}"] - frame[metric])
            gaps = mean_ags(gained, "gained", board.parts("ags"))
            board = board.assign(**{name: [gaps.get(key, math.nan) for key in board.keys]})
    runs = on_ladder(frame, [*ROW, "trainable_parameters", *(key for key in costs.KEYS if key in frame)])
    board = board.assign(parameters=board.aligned(runs.groupby(ROW)["trainable_parameters"].max()))
    return board.assign(**{str(key): board.aligned(sums) for key, sums in costs.of_rows(runs, ROW).items()})


def with_gap(board: Board, frame: pd.DataFrame, metric: str = "recall@1") -> Board:
    """A board with `gap`: the score of the epoch chosen on the test classes less that of the last one, mean over runs.

    Papers print the first. Zero where a run was evaluated once, missing where its records do not say.
    """
    if (best := f"best-test:{metric}") not in frame:
        return board
    gaps = (frame[best] - frame[metric]).groupby([frame[key] for key in ROW]).mean()
    return board.assign(gap=board.aligned(gaps))


def with_late_gain(board: Board, frame: pd.DataFrame) -> Board:
    """A board with `late`, what a row gained over the last quarter of its training (`late_gain`), mean over runs."""
    gains = frame["curve"].map(late_gain).groupby([frame[key] for key in ROW]).mean()
    return board.assign(late=board.aligned(gains))


def with_longer(board: Board, runs: pd.DataFrame) -> Board:
    """A board with `longer`, the epochs of the longest runs that differ from a row in these alone, if they are more.

    They stand on another board, since lengths are not ranked together.
    """
    epochs, alike = lengths(runs)
    most = epochs.groupby(alike).transform("max")
    longer = most.where((most > epochs) & ~runs["baseline"].astype(bool))
    return board.assign(longer=board.aligned(longer.groupby([runs[key] for key in ROW]).max()))


def lengths(runs: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The epochs of each run, and what else it is known by: runs of which that is alike have different lengths."""
    settings = [dict(one or {}) for one in runs["protocol_settings"]]
    epochs = pd.Series([one.pop("epochs", 0) for one in settings], runs.index)
    rest = [repr(sorted({**one, "evaluate_every": 0}.items())) for one in settings]
    keys = zip(*(runs[key] for key in ("dataset", *ROW) if key != "protocol"), rest)
    return epochs, pd.Series(list(map(repr, keys)), runs.index)


def late_gain(curve: Sequence[Mapping[str, float | None]] | None) -> float:
    """Recall@1 at the last epoch less that at three quarters of the epochs, or at the last one evaluated before.

    A run that gains much there had not ended learning: it says little of what its method reaches. NaN where no such
    epoch was evaluated. Points without an epoch or a score, as null stands for what is no number, tell nothing.

    >>> round(late_gain([{"epoch": 10, "recall@1": 0.3}, {"epoch": 30, "recall@1": 0.4},
    ...                  {"epoch": 40, "recall@1": 0.43}]), 3)
    0.03
    """
    points = ((point.get("epoch"), point.get("recall@1")) for point in curve or ())
    known = [(epoch, score) for epoch, score in points if epoch is not None and score is not None]
    before = [score for epoch, score in known if epoch <= 0.75 * known[-1][0]]
    return known[-1][1] - before[-1] if before else math.nan


def with_ends(board: Board, frame: pd.DataFrame, metric: str = "recall@1") -> Board:
    """An `ags_board` with the score at both ends of the ladder, mean over datasets, and what is kept: `with_kept`.

    Missing where a dataset is. The ends are means over the seeds of `at_ends`, AGS over those with every split:
    `ends:n` is the most seeds of an end of a ladder that fewer have whole, missing where all seeds have it.
    """
    runs, datasets = on_ladder(frame, ["dataset", "ladder", "split", "seed", *ROW, metric]), board.parts("ags")
    ends: dict[str, list[np.ndarray]] = {"nearest": [], "farthest": []}
    beyond = np.full(len(board), np.nan)
    for dataset in datasets:
        here = runs[runs["dataset"] == dataset]
        whole = board.column("ags", dataset)["n"].to_numpy(float)
        for end, scores in zip(ends, at_ends(here, here["ladder"].iloc[0], metric)):
            ends[end].append(board.aligned(scores.mean()))
            seeds = board.aligned(scores.count())
            beyond = np.fmax(beyond, np.where((whole > 0) & (seeds > whole), seeds, np.nan))
    near, far = (np.mean(scores, axis=0) if datasets else np.full(len(board), np.nan) for scores in ends.values())
    return with_kept(board.assign(**{"ends:n": beyond}), near, far)


def at_ends(runs: pd.DataFrame, ladder: Iterable[tuple[int, float]], metric: str) -> tuple[Any, Any]:
    """The scores of each row on the nearest and on the farthest split, of the seeds that have both where a row has any.

    What is lost from one end to the other is else in part the difference of two seeds.
    """
    order = sorted(ladder, key=lambda rung: rung[1])
    ends = order[0][0], order[-1][0]
    runs = runs[runs["split"].isin(ends) & runs[metric].notna()]
    both = runs.groupby([*ROW, "seed"])["split"].transform("nunique") == len(set(ends))
    runs = runs[both | ~both.groupby([runs[name] for name in ROW]).transform("any")]
    near, far = (runs[runs["split"] == split].groupby(ROW)[metric] for split in ends)
    return near, far


def with_kept(board: Board, near: Any, far: Any) -> Board:
    """A board with its scores at the ends of a ladder, `nearest` and `farthest`, and the share that is `kept`.

    `kept:why` says why a row has no share though it has both scores, and is empty elsewhere. A row is held against the
    frozen network of its own backbone alone: a weaker backbone that learned something may stay below another's.
    """
    board = board.assign(nearest=near, farthest=far)
    rows = board.rows
    known = set(rows.loc[rows["base_method"] == "frozen", "backbone"])
    own = rows["backbone"].isin(known) & (rows["source"] != "published")
    frozen = np.where(own, frozen_score(rows, "nearest", ["protocol"]), np.nan)
    told = [kept(*ends) for ends in zip(rows["nearest"].astype(float), rows["farthest"].astype(float), frozen,
                                        rows["baseline"].astype(bool))]
    return board.assign(**{"kept": [share for share, _ in told], "kept:why": [why for _, why in told]})


def kept(near: float, far: float, frozen: float = math.nan, baseline: bool = False) -> tuple[float, str]:
    """What is left at the far end of a ladder of the score at its near end, far / near, or why that says nothing.

    A method that is below the frozen network at the near end failed there: a share of what it did not learn can be any
    number. Without a frozen network (nan) a score that rises along the ladder may be such a failure. Baselines are not
    held against it.

    >>> kept(0.8, 0.4, frozen=0.3), kept(0.01, 0.31, frozen=0.3)
    ((0.5, ''), (nan, 'below the frozen network on the nearest split'))
    """
    if math.isnan(near) or math.isnan(far):
        return math.nan, ""
    if near <= 0:
        return math.nan, "at zero on the nearest split"
    if not baseline and near < frozen:
        return math.nan, "below the frozen network on the nearest split"
    if not baseline and math.isnan(frozen) and far > near:
        return math.nan, ("higher on the farthest split than on the nearest, without a frozen network of its backbone "
                          "to compare with")
    return far / near, ""
