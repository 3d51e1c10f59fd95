"""What may be concluded from scores: intervals, corrected tests, ranks over many cells, and whether rankings flip.

Written with the functions of scipy.special: importing scipy.stats takes longer than all that is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import special

from reports.selection import ROW

ALPHA = 0.05
"""Of tests, and outside the intervals, which are of 95 % throughout."""
CUT = 1 - ALPHA / 2
"""Where Student's distribution is cut for an interval."""
FEW = 20
"""Rows below which their variances over seeds say too little of each other."""
SOME = 3
"""Rows below which their mean variance says too little of a row that has none."""


def t_interval(values: Iterable[float]) -> tuple[float, float, float]:
    """(mean, low, high) of Student's interval mean ± t_{n-1} s / sqrt(n); without a second value no bounds.

    >>> tuple(round(bound, 3) for bound in t_interval([1.0, 2.0, 3.0]))
    (2.0, -0.484, 4.484)
    """
    finite = np.asarray([value for value in values if math.isfinite(value)], float)
    if len(finite) == 0:
        return math.nan, math.nan, math.nan
    mean = float(finite.mean())
    if len(finite) == 1:
        return mean, math.nan, math.nan
    half = float(special.stdtrit(len(finite) - 1, CUT) * finite.std(ddof=1) / math.sqrt(len(finite)))
    return mean, mean - half, mean + half


def moderated(variances: np.ndarray, freedom: np.ndarray,
              groups: Sequence[str] | np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Variances of many rows from a few values each, drawn towards what they have in common (Smyth 2004, limma).

        s~^2 = max(s^2, m)   with d + d0 m / s~^2 degrees of freedom,   m = (d0 s0^2 + d s^2) / (d0 + d)

    With e = log s^2 - psi(d/2) + log(d/2) of each row of a group, log s0^2 is the mean of e, and d0 is that with which
    psi'(d/2) + psi'(d0/2) is its variance. Ours are the maximum, without which unsteady rows are called different too
    often; that the others tell the less of a row the more its own variance is above theirs; that the variance of e is
    taken two standard errors higher than it is; and that s0^2 is the geometric mean of the variances, where Smyth's,
    lower by psi(d0/2) - log(d0/2), falls to that of the steadiest rows where others vary much more. A group of fewer
    than `FEW` rows takes the prior of all rows. Variances of zero (nothing is random there) and missing ones stay as
    they are, and all of them where fewer than `FEW` rows tell of the rest.

    Args:
        variances: one for each row; NaN where a row has none.
        freedom: the degrees of freedom of each.
        groups: what each row belongs to, such as its backbone [default: all to one].

    Returns:
        The moderated variances and their degrees of freedom.

    >>> variances, freedom = moderated(np.array([1.0, 4.0] * 10), np.full(20, 2.0))
    >>> variances[:2].round(2).tolist(), int(freedom[0])
    ([2.43, 4.0], 42)
    """
    variances, freedom = np.array(variances, float), np.array(freedom, float)
    names = np.zeros(len(variances)) if groups is None else np.asarray(groups)
    with np.errstate(invalid="ignore"):
        known = (variances > 0) & (freedom > 0)
    if known.sum() < FEW:
        return variances, freedom
    own, degrees = variances.copy(), freedom.copy()
    whole = _prior(own[known], degrees[known])
    for name in np.unique(names[known]):
        here = known & (names == name)
        degrees_0, common = _prior(own[here], degrees[here]) if here.sum() >= FEW else whole
        drawn = (degrees_0 * common + degrees[here] * own[here]) / (degrees_0 + degrees[here])
        variances[here] = np.maximum(own[here], drawn)
        freedom[here] += degrees_0 * drawn / variances[here]
    return variances, freedom


def pooled(variances: np.ndarray, freedom: np.ndarray, known: np.ndarray, degrees: np.ndarray, alone: np.ndarray,
           groups: Sequence[str] | np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Variances and degrees of freedom in which the rows that stand `alone`, with one value, have those of the others:

        s^2 = sum_r d_r s_r^2 / D,   1/d = 1/D + tau^2 / (2 s^4),   D = sum_r d_r
        tau^2 = [var_r(s_r^2) - mean_r(2 s^4 / d_r)]_+

    over the rows of the same group with `known` variances s_r^2 of `degrees` d_r, or of all groups where it has fewer
    than `SOME`. tau^2 is how much the rows' true variances differ beyond the chance of few values: the more they do,
    the less their mean says of another row.

    >>> known, degrees = np.array([1.0, 3.0, 2.0, np.nan]), np.array([2.0, 2.0, 4.0, 0.0])
    >>> pooled(known, degrees, known, degrees, np.isnan(known))
    (array([1., 3., 2., 2.]), array([2., 2., 4., 8.]))
    """
    variances, freedom = np.array(variances, float), np.array(freedom, float)
    names = np.zeros(len(variances)) if groups is None else np.asarray(groups)
    several = np.isfinite(known) & (degrees > 0)
    for name in np.unique(names[alone]) if several.sum() >= SOME else ():
        here = several & (names == name)
        of = here if here.sum() >= SOME else several
        mean = np.average(known[of], weights=degrees[of])
        beyond = max(0.0, known[of].var(ddof=1) - (2 * mean**2 / degrees[of]).mean())
        less = beyond / (2 * mean**2) if mean > 0 else 0.0
        variances[alone & (names == name)] = mean
        freedom[alone & (names == name)] = 1 / (1 / degrees[of].sum() + less)
    return variances, freedom


def _prior(variances: np.ndarray, freedom: np.ndarray) -> tuple[float, float]:
    """(d0, s0^2): how much the rows tell of each other, in degrees of freedom, and the variance that they tell."""
    half = freedom / 2
    logs = np.log(variances) - special.digamma(half) + np.log(half)
    spread = logs.var(ddof=1)
    beyond = spread * (1 + 2 * math.sqrt(2 / (len(logs) - 1))) - special.polygamma(1, half).mean()
    if beyond <= 0:  # the rows vary no more than chance makes them: all of them tell one variance
        return float(freedom.sum()), float(variances.mean())
    from scipy import optimize  # here, since most reports have fewer rows and its import takes 0.2 s

    degrees = 2 * optimize.brentq(lambda x: special.polygamma(1, x) - beyond, 1e-4, 1e8)
    return degrees, math.exp(logs.mean())


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down correction of m p-values: p_(i) -> max_{j <= i} min(1, (m - j + 1) p_(j)); NaN stays.

    >>> holm([0.01, 0.04, 0.03]).round(4).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p, float)
    adjusted = np.full(raw.shape, np.nan)
    there = np.flatnonzero(~np.isnan(raw))
    order = there[np.argsort(raw[there], kind="stable")]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raw[order] * factors))
    return adjusted


def cell_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Labels x (dataset, split) of scores, of the rows that have every cell, without baselines."""
    trained = cells[~cells["baseline"]]
    return trained.pivot_table(index="label", columns=["dataset", "split"], values="score", sort=False).dropna()


def signed_rank(differences: np.ndarray) -> np.ndarray:
    """Two-sided p-values of Wilcoxon's signed-rank test, a row of differences each; zeros are dropped.

    With r the ranks of the sizes, T = sum of r over the positive ones has the mean sum(r) / 2 and the variance
    sum(r^2) / 4. Rows without ties and zeros, up to 50 long, are tested exactly, others by the normal distribution.

    >>> signed_rank(np.array([[1.0, 2, 3, 4, 5], [1, 1, -1, -1, 0], [0, 0, 0, 0, 0]])).round(4).tolist()
    [0.0625, 1.0, 1.0]
    """
    size = np.where(differences == 0, np.nan, np.abs(differences))
    ranks = pd.DataFrame(size).rank(axis=1).fillna(0).to_numpy()
    spread = np.sqrt((ranks**2).sum(axis=1)) / 2
    above = np.abs((ranks * (differences > 0)).sum(axis=1) - ranks.sum(axis=1) / 2)
    p = 2 * special.ndtr(-above / np.where(spread > 0, spread, 1))
    ordered = np.sort(size, axis=1)
    plain = ~np.isnan(ordered).any(axis=1) & (np.diff(ordered, axis=1) > 0).all(axis=1) & (size.shape[1] <= 50)
    if plain.any():
        below = (ranks.sum(axis=1) / 2 - above)[plain].astype(int)
        p[plain] = np.minimum(1, 2 * _rank_sums(size.shape[1])[below])
    return p


def _rank_sums(n: int) -> np.ndarray:
    """P(T <= t) for t = 0 .. n (n + 1) / 2, where T is the sum of those of 1 .. n that fair coins choose.

    >>> _rank_sums(2).tolist()  # nothing, 1, 2 or both
    [0.25, 0.5, 0.75, 1.0]
    """
    ways = np.ones(1)
    for rank in range(1, n + 1):
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))  # without this one and with it
    return ways.cumsum() / 2.0**n


def wilcoxon_pairs(wide: pd.DataFrame) -> pd.DataFrame:
    """Every two labels over the cells they share: wins, ties, losses of the first, and Wilcoxon's signed-rank test.

    Takes a `cell_table`; `p` is two-sided and `holm` its correction over all pairs. The rungs of one dataset share
    classes and are not independent, so p-values are too small where few datasets give many rungs.
    """
    values, labels = wide.to_numpy(float), list(wide.index)
    i, j = np.triu_indices(len(labels), 1)
    differences = values[i] - values[j]
    p = signed_rank(differences)
    wins, losses = (differences > 0).sum(axis=1), (differences < 0).sum(axis=1)
    rows = {"first": [labels[a] for a in i], "second": [labels[b] for b in j], "wins": wins,
            "ties": differences.shape[1] - wins - losses, "losses": losses, "difference": differences.mean(axis=1),
            "p": p}
    return pd.DataFrame(rows).assign(holm=holm(p))


@dataclass(frozen=True)
class Friedman:
    """Friedman's test that all methods rank alike over the cells, and the critical difference of mean ranks."""

    statistic: float
    p: float
    ranks: dict[str, float]
    cells: int
    critical: float

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """The longest runs of methods whose mean ranks lie within the critical difference, best first."""
        order = sorted(self.ranks, key=lambda label: self.ranks[label])
        longest: list[tuple[str, ...]] = []
        reach = -1
        for start, label in enumerate(order):
            within = [i for i in range(start, len(order)) if self.ranks[order[i]] - self.ranks[label] <= self.critical]
            if within[-1] > start and within[-1] > reach:
                longest.append(tuple(order[start:within[-1] + 1]))
            reach = max(reach, within[-1])
        return longest


def friedman(wide: pd.DataFrame) -> Friedman | None:
    """Friedman's test over a `cell_table`, rank 1 the best; None with fewer than three methods or two cells.

        chi^2_{k-1} = (k - 1) sum_i (sum_j d_ij)^2 / sum_ij d_ij^2,   d_ij = rank of method i in cell j - (k + 1) / 2
    """
    methods, cells = wide.shape
    if methods < 3 or cells < 2:
        return None
    ranks = wide.rank(ascending=False).to_numpy()
    around = ranks - (methods + 1) / 2
    spread = float((around**2).sum())
    statistic = (methods - 1) * float((around.sum(axis=1) ** 2).sum()) / spread if spread else 0.0
    return Friedman(statistic, float(special.chdtrc(methods - 1, statistic)),
                    dict(zip(wide.index, ranks.mean(axis=1).tolist())), cells, critical_difference(methods, cells))


def critical_difference(methods: int, cells: int) -> float:
    """Nemenyi's CD = q_alpha sqrt(k (k + 1) / (6 N)) for k methods over N cells (Demšar 2006).

    >>> round(critical_difference(5, 30), 3)
    1.114
    """
    q = _range_quantile(1 - ALPHA, methods) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * cells))


def _range_quantile(level: float, k: int) -> float:
    """The q that the range of k standard normal values stays below with this probability.

        P(range <= q) = k int phi(z) (Phi(z) - Phi(z - q))^(k - 1) dz,   z the largest of them
    """
    z, step = np.linspace(-10, 10, 801, retstep=True)
    density = k * np.exp(-z**2 / 2) / math.sqrt(2 * math.pi) * step
    low, high = 0.0, 20.0
    while high - low > 1e-12:
        q = (low + high) / 2
        below = density @ (special.ndtr(z) - special.ndtr(z - q)) ** (k - 1) < level
        low, high = (q, high) if below else (low, q)
    return high


def kendall(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> tuple[float, int]:
    """(Kendall's tau-b of two lists of scores, how many pairs they order differently); NaN where one list is flat.

        tau = sum_ij sign(a_i - a_j) sign(b_i - b_j) / sqrt(sum_ij sign(a_i - a_j)^2 sum_ij sign(b_i - b_j)^2)

    >>> kendall([1, 2, 3, 4], [1, 3, 2, 4])
    (0.6666666666666666, 1)
    """
    x, y = (np.sign(np.subtract.outer(some, some)) for some in (np.asarray(a, float), np.asarray(b, float)))
    pairs = math.sqrt(np.count_nonzero(x) * np.count_nonzero(y))
    return float((x * y).sum() / pairs) if pairs else math.nan, int((x * y < 0).sum() // 2)


def kendall_between_rungs(cells: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau-b between the rankings of the methods on every two rungs that they have in common.

    tau = 1 where two rungs rank the methods alike, -1 where one reverses the other; `flips` counts the pairs of
    methods that change places. Takes the cells of `aggregate.without_gaps`.
    """
    wide = cells.pivot_table(index=ROW, columns="split", values="score")
    order = cells.drop_duplicates("split").sort_values(["frd", "split"])["split"]
    rows = []
    for a, b in combinations([split for split in order if split in wide], 2):
        rows.append((a, b, *kendall(wide[a].to_numpy(), wide[b].to_numpy()), len(wide)))
    return pd.DataFrame(rows, columns=["first", "second", "tau", "flips", "methods"])
