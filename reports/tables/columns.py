"""Which columns of a table are written: all, those that were asked for, or all but some."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pandas as pd

from reports.picking import matching, picked
from reports.tables.formats import headers
from reports.tables.notes import kept_note
from reports.tables.table import Column, Table


def tables_with(whole: Sequence[Table], wanted: str) -> list[Table]:
    """The tables with the columns of a list such as `rank,method,ags`, in its order, or without those of `-time,-kept`.

    A column has the name of its heading, which may end at a comma in it, or of its key in the frame. A column that only
    others have is left out of a table, and a table that keeps none is left out whole.
    """
    picked(wanted, _names(column for table in whole for column in table.shown), "column")  # refuses what none has
    kept = [matching(wanted, _names(table.shown)) for table in whole]
    return [replace(table, columns=tuple(columns), note=_note(table, columns))
            for table, columns in zip(whole, kept) if columns]


def _note(table: Table, columns: Collection[Column]) -> str:
    """The note without the sentence on the shares kept where these are left out."""
    there = any(column.key == "kept" for column in columns)
    return table.note if there else table.note.replace(kept_note(table.frame, ["kept"]), "")


def frame_with(whole: pd.DataFrame, wanted: str) -> pd.DataFrame:
    """A tidy frame with the columns of a list, by their names in it or those that they have in a file.

    >>> frame_with(pd.DataFrame({"method": ["margin"], "ags": [0.8], "ags:std": [0.1]}), "ags*,method").columns.tolist()
    ['ags', 'ags:std', 'method']
    """
    kept = picked(wanted, _names(Column(*names) for names in headers(whole.columns).items()), "column")
    return whole[[column.key for column in kept]]


def _names(columns: Iterable[Column]) -> dict[Column, tuple[str, ...]]:
    return {column: (column.head.partition(",")[0].strip(), column.head, column.key) for column in columns}
