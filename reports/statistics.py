"""What may be concluded from a few seeds: intervals, and whether rankings flip along the ladder."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from reports.aggregate import ROW, ags_per_seed


def t_interval(values: Iterable[float], level: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high) of Student's interval mean ± t_{n-1} s / sqrt(n); without a second value no bounds.

    >>> tuple(round(bound, 3) for bound in t_interval([1.0, 2.0, 3.0]))
    (2.0, -0.484, 4.484)
    """
    found = np.asarray([value for value in values if math.isfinite(value)], float)
    if len(found) == 0:
        return math.nan, math.nan, math.nan
    mean = float(found.mean())
    if len(found) == 1:
        return mean, math.nan, math.nan
    half = float(stats.t.ppf((1 + level) / 2, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    return mean, mean - half, mean + half


def ags_intervals(frame: pd.DataFrame, metric: str = "recall@1", level: float = 0.95) -> pd.DataFrame:
    """AGS of each dataset and row: computed for each seed, then mean, t-interval and n over the complete seeds."""
    rows = []
    for key, group in ags_per_seed(frame, metric).groupby(["dataset", *ROW], sort=True):
        rows.append((*key, *t_interval(group["ags"], level), int(group["ags"].notna().sum())))
    return pd.DataFrame(rows, columns=["dataset", *ROW, "ags", "low", "high", "n"])


def kendall_between_rungs(cells: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau-b between the rankings of the methods on every two rungs; floors and incomplete rows left out.

    tau = 1 where two rungs rank the methods alike, -1 where one reverses the other; `flips` counts the pairs of
    methods that change places. Takes the cells of `aggregate.rung_scores`.
    """
    wide = cells[~cells["floor"]].pivot_table(index=ROW, columns="split", values="score").dropna()
    order = cells.drop_duplicates("split").sort_values(["frd", "split"])["split"]
    rows = []
    for a, b in combinations([split for split in order if split in wide], 2):
        x, y = wide[a].to_numpy(), wide[b].to_numpy()
        tau = float(stats.kendalltau(x, y).statistic) if len(wide) > 1 else math.nan
        signs = np.sign(np.subtract.outer(x, x)) * np.sign(np.subtract.outer(y, y))
        rows.append((a, b, tau, int((signs < 0).sum() // 2), len(wide)))
    return pd.DataFrame(rows, columns=["first", "second", "tau", "flips", "methods"])
