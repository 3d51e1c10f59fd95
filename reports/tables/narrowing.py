"""Which columns of a table are written: all, those that were asked for, or all but some."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch

import pandas as pd

from reports import ReportError
from reports.tables.formats import headers
from reports.tables.table import Column, Table
from reports.wording import near


def tables(whole: Sequence[Table], wanted: str) -> list[Table]:
    """The tables with the columns of a list such as `rank,method,ags`, in its order, or without those of `-time,-kept`.

    A column has the name of its heading, which may end at a comma in it, or of its key in the frame; `*` stands for any
    letters. A column that only others have is left out of a table, and a table that keeps none is left out whole.
    """
    kept = _chosen([table.shown for table in whole], wanted)
    return [replace(table, columns=columns) for table, columns in zip(whole, kept) if columns]


def frame(whole: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """A tidy frame with the columns of a list, by their names in it or those that they have in a file.

    >>> frame(pd.DataFrame({"method": ["margin"], "ags": [0.8], "ags:std": [0.1]}), "ags*,method").columns.tolist()
    ['ags', 'ags:std', 'method']
    """
    [kept] = _chosen([[Column(key, name) for key, name in headers(whole.columns).items()]], wanted)
    return whole[[column.key for column in kept]]


def _chosen(columns: Sequence[Sequence[Column]], wanted: str) -> list[tuple[Column, ...]]:
    """Of the columns of each table those that are wanted."""
    entries = [entry for part in wanted.split(",") if (entry := _bare(part))]
    taken_away = bool(entries) and entries[0].startswith("-")
    kept: list[list[Column]] = [list(of_one) if taken_away else [] for of_one in columns]
    for entry in entries:
        minus, entry = entry.startswith("-"), entry.removeprefix("-")
        found = [[column for column in of_one if _is_called(column, entry)] for of_one in columns]
        if not any(found):
            known = list(dict.fromkeys(_bare(column.head) for of_one in columns for column in of_one))
            raise ReportError(f"there is no column '{entry}'{near(entry, known)}; there are: {'; '.join(known)}")
        for of_one, here in zip(kept, found):
            of_one[:] = [column for column in of_one if column not in here] if minus else \
                dict.fromkeys([*of_one, *here])
    if not any(kept):
        raise ReportError(f"--columns {wanted} leaves no column")
    return [tuple(of_one) for of_one in kept]


def _bare(text: str) -> str:
    """A heading or name as it is compared: small letters, a typed minus, single spaces."""
    return re.sub(r"\s+", " ", re.sub("[−–]", "-", text)).strip().lower()


def _is_called(column: Column, name: str) -> bool:
    head = _bare(column.head)
    return name == "all" or any(fnmatch(one, name) for one in (_bare(column.key), head, head.partition(",")[0]))
