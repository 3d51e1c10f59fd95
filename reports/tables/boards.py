"""Boards as tables that can be shown: one `Table` for files, terminal and pages, and what each of its cells says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from reports.board import Board, key_of
from reports.selection import ROW, in_words
from reports.storage.row import selected_level
from reports.storage.text import decimal, duration, metric_name, minus
from reports.tables.notes import bar_note, fewshot_note, frozen_of, kept_note, overrides_note, rising_note


@dataclass(frozen=True)
class Column:
    """A column of a table: its key in the frame, its header, what kind of value it holds, what it means.

    The kinds: text, rank, score, gain and percent (fractions, shown in percent; a gain with its sign, a percent without
    bar or mark), number, p (a p-value), time (seconds), and html, which pages alone show. A page hides a `spare` column
    until it is asked for. The role says what becomes of the column when a reader takes some datasets away in the page:
    a `part` can be taken away, `mean`, `harmonic`, `arithmetic` and `weakest` are computed again, `whole` is hidden.
    """

    key: str
    head: str
    kind: str = "text"
    about: str = ""
    digits: int = 1
    heat: bool = False
    role: str = ""
    spare: bool = False


@dataclass(frozen=True)
class Table:
    """A frame with the columns to be shown; `KEY:std`, `KEY:n` and `KEY:coverage` beside a score tell its bar.

    Scores are fractions in the frame (and in CSV and JSON) and percent with one decimal wherever they are shown.
    `KEY:group` says which rows stand together as best (1) and second (2); `KEY:low` and `KEY:high` bound a score,
    `KEY:why` says why there is none.
    Rows are printed in groups of equal `grouped`, if that names a column.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    frame: pd.DataFrame
    note: str = ""
    marked: bool = True
    grouped: str = ""

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The frame, row by row."""
        # all columns at once: `to_dict` goes through them one by one, and a board has dozens
        lines, names = self.frame.to_numpy(dtype=object).tolist(), self.frame.columns.tolist()
        return [dict(zip(names, [value.item() if isinstance(value, np.generic) else value for value in line]))
                for line in lines]

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that are text, that is all but those of pages alone."""
        return tuple(column for column in self.columns if column.kind != "html")

    def text(self, row: dict[str, Any], column: Column) -> str:
        """What a cell shows: `71.3 ± 0.4` in percent, `7/9` where the ladder is incomplete, a dash where nothing is."""
        value = row.get(column.key)
        if column.kind == "text":
            said = level_of(row) if column.key == "source" else value
            words = {"protocol": in_words, "metric": metric_name}.get(column.key, str)
            return "" if missing(said) else words(str(said))
        if column.kind == "rank":
            return rank_text(row)
        if missing(value):
            return str(row.get(f"{column.key}:coverage") or "–")
        number = float(value)  # type: ignore[arg-type]
        if math.isinf(number):
            return "never"
        if column.kind == "time":
            return duration(number)
        if column.kind == "number":
            return compact(number) if column.digits < 0 else decimal(number, column.digits)
        if column.kind == "p":
            least = 10.0**-column.digits
            return f"< {least:.{column.digits}f}" if number < least else f"{number:.{column.digits}f}"
        shown = decimal(100 * number, column.digits, signed=column.kind == "gain")
        std = row.get(f"{column.key}:std")
        return shown if missing(std) else f"{shown} ± {100 * float(std):.{column.digits}f}"  # type: ignore[arg-type]

    def marks(self, column: Column) -> dict[int, str]:
        """Which rows are 'best' and 'second' in a score column; baselines and published rows take no part.

        By tie group where the differences were tested, else by the number as it is shown.
        """
        if column.kind != "score" or not self.marked:
            return {}
        if f"{column.key}:group" in self.frame:
            named = {1.0: "best", 2.0: "second"}
            groups = {index: row.get(f"{column.key}:group") for index, row in enumerate(self.rows)}
            return {index: named[group] for index, group in groups.items() if group in named}
        values = {}
        for index, row in enumerate(self.rows):
            counts = row.get("baseline") is not True and row.get("source") != "published"
            if counts and not missing(row.get(column.key)):
                values[index] = round(100 * float(row[column.key]), column.digits)
        levels = dict(zip(sorted(set(values.values()), reverse=True), ("best", "second")))
        return {index: levels[value] for index, value in values.items() if value in levels} if len(values) > 1 else {}

    def interval(self, row: dict[str, Any], column: Column) -> str:
        """What is known of a score beside its bar: the 95 % interval and the number of seeds; empty if nothing is."""
        low, high, n = (row.get(f"{column.key}:{what}") for what in ("low", "high", "n"))
        if column.kind != "score" or missing(low) or missing(high):
            return ""
        bounds = " to ".join(decimal(100 * float(bound), column.digits) for bound in (low, high))  # type: ignore[arg-type]
        return f"95 % interval {bounds}" + ("" if missing(n) else f", n = {int(n)}")  # type: ignore[arg-type]

    def reason(self, row: dict[str, Any], column: Column) -> str:
        """Why a cell holds a dash though there are runs, where the frame says it in `KEY:why`; empty elsewhere."""
        why = row.get(f"{column.key}:why")
        return "" if missing(why) or not missing(row.get(column.key)) else f"Not defined: {why}" if why else ""


def level_of(row: Mapping[Any, Any]) -> str:
    """How far the result of a row was followed here, one of `row.LEVELS`."""
    told = row.get("level")
    return selected_level(str(row.get("source"))) if missing(told) else str(told)


def missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def rank_text(row: Mapping[Any, Any]) -> str:
    """A rank, the range of ranks among which it does not differ significantly, or why there is none.

    >>> rank_text({"rank": 2, "rank:low": 1, "rank:high": 3}), rank_text({"rank": None, "baseline": True})
    ('1–3', 'baseline')
    """
    rank, low, high = row.get("rank"), row.get("rank:low"), row.get("rank:high")
    if missing(rank):
        return "baseline" if row.get("baseline") is True else "–"
    return str(int(rank)) if missing(low) or low == high else f"{int(low)}–{int(high)}"  # type: ignore[arg-type]


def compact(number: float) -> str:
    """A count or a quantity in four characters or so.

    >>> compact(23508032), compact(912), compact(0)
    ('23.5M', '912', '0')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return minus(f"{number / size:.1f}{letter}")
    return decimal(number, 0)


def row_columns(board: pd.DataFrame) -> list[Column]:
    """The method, then whatever else names a row: protocol, backbone, source where they vary."""
    names = {"method": "Method", "protocol": "Protocol", "backbone": "Backbone", "source": "Level"}
    ours = board[board["source"] != "published"]
    # the protocol of what was submitted is not known, and its level says so
    run = ours[ours["source"] != "submitted"] if (ours["source"] != "submitted").any() else ours
    trained = run[~run["baseline"].astype(bool)] if "baseline" in run else run
    shown = {"protocol": trained if len(trained) else run, "source": board}
    varying = {key for key in ROW if shown.get(key, ours)[key].nunique() > 1}
    changed = "overrides" in board and ours["overrides"].nunique() > 1
    spare = {"backbone"} if "network" in board and by_network(board) else set()  # the head of their group says it
    spare |= {"protocol"} if "ranking" in board else set()
    about = "Keys that differ from the protocol's file"
    return [*(Column(key, names[key], spare=key in spare) for key in ROW if key == "method" or key in varying),
            *([Column("overrides", "Differs", "text", about, spare=True)] if changed else [])]


def ags_table(board: Board, metric: str = "recall@1") -> Table:
    """The table of an `aggregate.ags_board`."""
    frame, datasets = board.wide(), board.parts("ags")
    about = "AGS of {} on {}: the area under the score over the normalised distance"
    scores = [Column(key_of("ags", name), name if len(datasets) > 1 else "AGS", "score",
                     about.format(metric_name(metric), name),
                     role="part") for name in datasets]
    if len(datasets) > 1:
        about = "Mean AGS over the datasets; only where all are complete"
        scores.insert(0, Column("mean", "Mean AGS", "score", about, role="mean"))
    shown = [column for score in scores for column in (score, *gain_column(frame, score))]
    extra = [Column(key, head, kind, about, digits, role="whole" if kind in ("gain", "percent") else "", spare=spare)
             for key, head, kind, about, digits, spare in EXTRA
             if key in frame and frame[key].notna().any() and not (key == "gain" and "mean:gain" in frame)]
    method, *rest = row_columns(frame)
    ends = [column for column in extra if column.kind == "percent"]
    columns = (Column("rank", "Rank", "rank"), method, *shown, *ends, *regime_column(frame), *rest,
               *(column for column in extra if column not in ends))
    return Table("ags", f"AGS of {metric_name(metric)}{differing(board)}", columns, frame,
                 bar_note(frame, [column.key for column in scores])
                 + kept_note(frame, [column.key for column in ends]) + rising_note(frame) + fewshot_note(frame)
                 + overrides_note(board), grouped=by_network(frame))


def by_network(frame: pd.DataFrame) -> str:
    """What rows are printed in groups of: their network, where there are several."""
    return "network" if frame["network"].nunique() > 1 else ""


def gain_column(frame: pd.DataFrame, score: Column) -> tuple[Column, ...]:
    """The column beside a score that tells the gain over the frozen baseline, where the board knows it."""
    key = f"{score.key}:gain"
    if key not in frame or not frame[key].notna().any():
        return ()
    about = f"Points by which {score.head} lies above that of {frozen_of(frame[frame[key].notna()])}"
    return (Column(key, "vs frozen", "gain", about, role="whole"),)


def regime_column(frame: pd.DataFrame, always: bool = False) -> tuple[Column, ...]:
    """How rows were trained, where it varies or is asked for."""
    about = ("What was trained: the whole network (full), few parameters of it (parameter-efficient), one network for "
             "each dataset (dataset-specific), or nothing (baseline); what was submitted does not say")
    return (Column("group", "Training", "text", about),) if always or frame["group"].nunique() > 1 else ()


def differing(board: Board) -> str:
    """What the title of a board adds to the name of the protocol."""
    return f", differing from the protocol's file: {board.overrides}" if board.overrides else ""


DISTANCE = "Fréchet distance"
BEST_LAST = "Best − last epoch, points"
"""The selection gap: what is gained by choosing the epoch on the test classes."""
LATE = "Last quarter, points"
LATE_ABOUT = ("Points of Recall@1 gained over the last quarter of training, mean over runs; where they are many, the "
              "method had not ended learning")
_SHARE = "Share of the score on the nearest split that is left on the farthest"
_UNDEFINED = ("Not defined, –, for a method that is below the frozen network of its backbone on the nearest split, or, "
              "where that was not run, scores higher on the farthest: it has failed there, and any share says nothing")
KEPT = f"{_SHARE}. {_UNDEFINED}"
EXTRA = (
    ("nearest", "Nearest", "percent", "Score on the split whose test classes are nearest to the training classes", 1,
     False),
    ("farthest", "Farthest", "percent", "Score on the split whose test classes are farthest from them", 1, False),
    ("kept", "Kept, %", "percent", f"{_SHARE}; the line is the way there. {_UNDEFINED}", 0, False),
    ("gain", "vs frozen", "gain", "Points by which AGS lies above that of the frozen network, mean over datasets", 1,
     False),
    ("gap", BEST_LAST, "gain", "Points by which AGS at the epoch that is best on the test classes, which papers "
     "print, lies above that at the last epoch", 1, True),
    ("gap:validation", "Validation − last epoch, points", "gain", "Points by which AGS at the epoch that is best on "
     "held-out training classes lies above that at the last epoch", 1, True),
    ("late", LATE, "gain", LATE_ABOUT, 1, True),
    ("fewshot", "Few-shot", "gain", "Gain of few-shot adaptation, mean over the splits that all adapted rows have with "
     "the same settings, at the fewest shots of these", 1, False),
    ("parameters", "Trained parameters", "number", "Parameters that training changes", -1, False),
    ("seconds", "Time", "time", "Time of the device, all runs of the row; those that shared it took their part", 0,
     True),
    ("energy_wh", "Energy, Wh", "number", "Watt hours that the GPU took, without the rest of the machine, all runs of "
     "the row; those that shared it took their part", 1, True),
)


def union_table(board: Board, metric: str = "recall@1") -> Table:
    """The table of an `aggregate.union_board`."""
    frame = board.wide()
    parts = [part for part in board.parts("recall") if (frame[f"{key_of('recall', part)}:n"] > 0).any()]
    method, *rest = row_columns(frame)
    columns = [Column("rank", "Rank", "rank"), method]
    score = metric_name(metric)
    means = [Column("harmonic", "Harmonic mean", "score", f"Harmonic mean of {score} over the parts", role="harmonic"),
             Column("unified", "Unified", "score", f"{score} with all parts in one gallery", role="whole"),
             Column("arithmetic", "Arithmetic mean", "score", f"Arithmetic mean of {score} over the parts",
                    role="arithmetic")]
    columns += [replace(column, spare=mean.key == "arithmetic" or (column.kind == "gain" and mean.key != "harmonic"))
                for mean in means for column in (mean, *gain_column(frame, mean))]
    families = {name.partition("-")[0] for name in parts if "-" in name}
    family = f"{families.pop()}-" if len(families) == 1 and all("-" in name for name in parts) else ""
    # glyphs-latin is headed latin among others of glyphs
    columns += [Column(key_of("recall", name), name.removeprefix(family), "score", f"{score} on {name} alone",
                       role="part") for name in parts]
    columns += [Column("weakest", "Weakest", "text", "The part with the lowest score", role="weakest", spare=True),
                *regime_column(frame, always=True),
                Column("parameters", "Trained parameters", "number", "Parameters that training changes", -1), *rest]
    scores = [column.key for column in columns if column.kind == "score"]
    return Table("union", f"{score} on the union{differing(board)}", tuple(columns), frame,
                 bar_note(frame, scores) + rising_note(frame) + overrides_note(board), grouped=by_network(frame))


def without_parts(table: Table) -> Table:
    """A union's table with its aggregates alone, where there is no room for the parts."""
    few = ("rank", *ROW, "overrides", "harmonic", "harmonic:gain", "unified", "unified:gain", "arithmetic", "weakest",
           "group", "parameters")
    return replace(table, columns=tuple(replace(column, spare=column.spare and column.key != "weakest")
                                        for column in table.columns if column.key in few))
