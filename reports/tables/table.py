"""A table that can be shown, in files, a terminal and pages: its columns, and what each of its cells says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from reports.selection import in_words
from reports.storage.row import selected_level
from reports.wording import decimal, duration, metric_name, minus


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
            part = row.get(f"{column.key}:coverage")
            return "–" if missing(part) else str(part or "–")
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

    def coverage(self, row: dict[str, Any], column: Column) -> str:
        """How much of what a score needs was run, `1 of 9`, where there is no score for it; empty elsewhere."""
        part = str(row.get(f"{column.key}:coverage"))
        return part.replace("/", " of ") if "/" in part and missing(row.get(column.key)) else ""

    def reason(self, row: dict[str, Any], column: Column) -> str:
        """Why a cell holds no score though there are runs: some are missing, or `KEY:why` says it; empty elsewhere."""
        if part := self.coverage(row, column):
            return f"No score: run on {part} {'parts' if column.role in ('harmonic', 'arithmetic') else 'splits'}"
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
    >>> rank_text({"rank": 1, "rank:of": 1})  # the first of one says nothing
    '–'
    """
    rank, low, high = row.get("rank"), row.get("rank:low"), row.get("rank:high")
    if missing(rank) or row.get("rank:of") == 1:
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
