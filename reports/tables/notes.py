"""What stands below a table in sentences: bars and ties, what differs from the protocol, what a dash says."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from reports.board import Board, fractions

_MOST = 8
"""Rows that a note calls by name."""
TIE = ("Rows tie when their difference may be chance: a tied row has a range of ranks, and all that tie with the best "
       "of their backbone are bold")


RISING = 0.01
"""Gain over the last quarter of training from which a row still rises: a point, about what seeds differ by."""


def rising_note(frame: pd.DataFrame) -> str:
    """Which rows had not ended learning, and what they gained last.

    >>> rising_note(pd.DataFrame({"method": ["diva", "margin", "s2sd"], "late": [0.031, -0.002, 0.017]}))
    ' Still rising, by points of Recall@1 over the last quarter of training: diva (3.1), s2sd (1.7).'
    """
    rows = frame[frame["late"] >= RISING].sort_values("late", ascending=False) if "late" in frame else frame[:0]
    gains = [(method, 100 * late) for method, late in zip(rows["method"], rows.get("late", ()))]
    shown = ", ".join(f"{method} ({gain:.1f})" for method, gain in gains[:_MOST])
    more = f" and {len(gains) - _MOST} more" if len(gains) > _MOST else ""
    told = f" Still rising, by points of Recall@1 over the last quarter of training: {shown}{more}."
    return told if gains else ""


def longer_note(frame: pd.DataFrame) -> str:
    """Which rows have longer runs on another board.

    >>> longer_note(pd.DataFrame({"method": ["diva", "margin", "s2sd"], "longer": [140, float("nan"), 140]}))
    ' Trained for longer as well, on a board of that length: diva, s2sd (140 epochs).'
    """
    groups = frame.groupby("longer")["method"] if "longer" in frame else ()
    told = [f"{', '.join(methods)} ({epochs:.0f} epochs)" for epochs, methods in groups]
    return f" Trained for longer as well, on a board of that length: {'; '.join(told)}." if told else ""


def bar_note(board: pd.DataFrame, keys: list[str]) -> str:
    """What ± means in a board, and what its ranks say of ties, in a sentence each.

    >>> bar_note(pd.DataFrame({"ags:cub": [0.6], "ags:cub:n": [1], "ends:n": [3]}), ["ags:cub"])
    'AGS is of the seeds with every split: one each, so no deviations. Nearest and farthest are of up to 3 seeds.'
    """
    counts = sorted({int(n) for key in keys if f"{key}:n" in board for n in board[f"{key}:n"].dropna() if n > 1})
    ends = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1]))) if counts else ""
    bars = f"mean ± std over seeds (n = {ends}, ddof = 1)." if counts else "One seed each, so no deviations."
    ranked = board[board["rank"].notna()] if "rank" in board else board[:0]
    by_seeds = "rank:seeds" in ranked and bool(ranked["rank:seeds"].any())
    for key, splits in (("ends:n", "Nearest and farthest"), ("rungs:n", "Single splits")):
        if key in board and board[key].notna().any():  # some seeds have single splits alone
            whole = "AGS is of the seeds with every split"
            bars = f"{bars} {whole}." if counts else f"{whole}: one each, so no deviations."
            bars += f" {splits} are of up to {int(board[key].max())} seeds."
    if by_seeds and f"{keys[0]}:n" in board and ranked[f"{keys[0]}:n"].eq(1).any():
        of_splits = ("an AGS the deviation of the splits that have several, all else "
                     if any(key.partition(":")[0] in ("ags", "mean") for key in keys) else "them ")
        bars += (f" Scores without ± are of one seed. Tests give {of_splits}the mean deviation of the other rows, if "
                 "these are three; without it the order of the scores stands.")
    if "rank:tested" not in board or len(ranked) < 2:
        return bars
    tested, untested = (ranked[ranked["rank:tested"].astype(bool) == whether] for whether in (True, False))
    if len(tested):
        bars += f" {TIE} ({_how(tested, board, keys)}, Holm, 5 %)."
        if not by_seeds:
            bars = f"{bars[:-1]}; a single seed says nothing of the chance of training."
        bars += _seeds_alone(tested, keys[0])
    if len(untested):
        bars += (f" {'Other ranks' if len(tested) else 'Ranks'} are the order of the scores and not tested: with a "
                 "single seed that takes results of single queries, which some of these runs or this measure lack.")
    return bars


def _how(tested: pd.DataFrame, board: pd.DataFrame, keys: list[str]) -> str:
    """By what the ranks of these rows are tested."""
    by_classes = tested["rank:classes"].astype(bool)
    if not tested["rank:seeds"].any():
        return "test classes resampled; paired tests"
    if by_classes.all():
        return "classes resampled, seeds; paired tests"
    if by_classes.any():
        return "seeds, and classes resampled between rows that have results of single queries"
    drawn = [key for key in keys if f"{key}:high" in board and _by_classes(board, key)]
    names = [f"split {part}" if statistic == "rung" else part or statistic
             for statistic, _, part in (key.partition(":") for key in drawn)]
    return "tests over seeds alone" + (f", in {', '.join(names)} with classes resampled as well" if names else "")


def _seeds_alone(tested: pd.DataFrame, key: str) -> str:
    """Which rows have an interval without the error of test classes, where others have it: theirs are narrower.

    >>> rows = pd.DataFrame({"method": ["diva", "s2sd"], "rank:classes": [True, False], "ags:cars:high": [0.8, 0.8]})
    >>> _seeds_alone(rows, "ags:cars")
    ' Of s2sd the intervals are over seeds alone, not over test classes as those of other rows.'
    """
    by_classes = tested["rank:classes"].astype(bool)
    if not by_classes.any() or f"{key}:high" not in tested:
        return ""
    names = list(dict.fromkeys(tested.loc[~by_classes & tested[f"{key}:high"].notna(), "method"]))
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (f" Of {', '.join(names[:_MOST])}{more} the intervals are over seeds alone, not over test classes as those "
            "of other rows.")


def _by_classes(board: pd.DataFrame, key: str) -> bool:
    """Whether test classes count in the intervals of a column; of seeds alone they are t_{n-1} s / sqrt(n).

    Those of a single seed, from the splits that have several, tell nothing of that.
    """
    rows = board[board["rank"].notna() & board[f"{key}:high"].notna() & (board[f"{key}:n"] > 1)]
    n = rows[f"{key}:n"].to_numpy(float)
    seeds = special.stdtrit(n - 1, 0.975) * rows[f"{key}:std"] / np.sqrt(n)
    alike = [np.isclose(rows[f"{key}:{end}"], fractions(rows[key], rows[key] + sign * seeds), rtol=1e-6, atol=1e-12)
             for end, sign in (("low", -1), ("high", 1))]
    return not np.all(alike)


def fewshot_note(frame: pd.DataFrame) -> str:
    """Why no few-shot gains are shown though rows were adapted, see `fewshot.with_gain`.

    >>> fewshot_note(pd.DataFrame({"fewshot:why": ["", "no split is alike"]}))
    ' Few-shot gains are not shown: no split is alike.'
    """
    found = sorted(set(frame["fewshot:why"].dropna()) - {""}) if "fewshot:why" in frame else []
    return "".join(f" Few-shot gains are not shown: {why}." for why in found)


def frozen_of(rows: pd.DataFrame) -> str:
    """The network that gains of some rows are over, see `baselines.with_gains`.

    >>> frozen_of(pd.DataFrame({"backbone": ["conv4", "vit-s"], "best_frozen": [False, True]}))
    "the frozen network of the row's backbone, or of the protocol's best one where that was not run frozen (vit-s)"
    """
    without = ", ".join(sorted(set(rows.loc[rows["best_frozen"].astype(bool), "backbone"])))
    other = f", or of the protocol's best one where that was not run frozen ({without})" if without else ""
    return f"the frozen network of the row's backbone{other}"


def overrides_note(board: Board) -> str:
    """In what the runs of a board differ from the file of their protocol, and that published rows do not."""
    if not board.overrides:
        return ""
    beside = " Published rows are by the paper's own protocol." if board.rows["source"].eq("published").any() else ""
    return f" Differs from the protocol's file: {board.overrides}.{beside}"


def kept_note(frame: pd.DataFrame, keys: list[str]) -> str:
    """What a dash among the shares kept says, if the table shows these, where it is not that of a missing run.

    >>> kept_note(pd.DataFrame({"kept": [0.7, None], "kept:why": ["", "below the frozen network"]}), ["kept"])
    ' Kept is – where a row is below the frozen network.'
    """
    found = sorted(set(frame["kept:why"].dropna()) - {""}) if "kept" in keys and "kept:why" in frame else []
    return "".join(f" Kept is – where a row is {why}." for why in found)
