"""Recomputes every aggregate of a table from the values it claims to summarise and says which do not follow.

A printed number stands for all numbers that round to it, so an aggregate *follows* if some choice of the values
behind it, each within its rounding, gives the printed one within its own.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError
from reports.aggregate import ags, harmonic_mean
from reports.safe_text import one_line
from reports.selection import ROW
from reports.storage import paths
from reports.tables.table import Column, Table
from reports.wording import metric_name

AGGREGATES = ("unified", "harmonic", "arithmetic")
FINDING = ["kind", "where", "printed", "recomputed", "low", "high", "verdict"]
_PAPERS = {"oodml": "ooDML", "revisiting": "Revisiting DML", "uml": "UML", "crt": "CRT"}
"""What the papers are called whose tables come with the package, by how their files begin."""
_VALUES = {"statistic", "value", "score", "std", "n", "train_params_m", "total_params_m"}


_NUMBER = re.compile(r"\s*[+-]?\d{0,12}(\d|\.\d{1,40}|\d\.)(e[+-]?\d{1,2})?\s*", re.ASCII | re.IGNORECASE)
"""A number that a table may print, of a size that can be computed with."""


def half_unit(numbers: Iterable[str]) -> float:
    """Half a unit of the last decimal that a column prints; a column written from binary fractions gets 1e-9.

    >>> half_unit(["71.2", "70"]), half_unit(["8.25", "3.1"])
    (0.05, 0.005)
    """
    digits = max((len(text.partition(".")[2]) for text in numbers if "e" not in text), default=0)
    return 1e-9 if digits > 6 else 0.5 * 10.0**-digits


def ags_bounds(fids: Sequence[float], scores: Sequence[float], fid_half: float,
               score_half: float) -> tuple[float, float]:
    """The least and the greatest AGS that rounded scores and, to first order, rounded distances allow.

    AGS rises with every score, and its weights sum to one: the scores add `score_half` each way. A distance d_i
    adds |dAGS / dd_i| `fid_half`, taken by a central difference.
    """
    centre, slack = ags(fids, scores), score_half
    step = max(fid_half, 1e-6)
    for i in range(len(fids)):
        moved = [[fid + sign * step * (i == j) for j, fid in enumerate(fids)] for sign in (-1, 1)]
        slack += abs(ags(moved[1], scores) - ags(moved[0], scores)) / (2 * step) * fid_half
    return centre - slack, centre + slack


def _verdict(printed: float, half: float, low: float, high: float) -> str:
    return "follows" if printed + half >= low - 1e-9 and printed - half <= high + 1e-9 else "does not follow"


def _where(keys: Sequence[str], values: Sequence[Any]) -> str:
    """The row of a table that an aggregate stands in, as one would look for it.

    >>> _where(["table", "setting", "method", "metric"], ["2", "universal-full", "triplet", "recall@1"])
    'table 2, universal-full, triplet, Recall@1'
    """
    words = {"table": lambda value: f"table {value}", "metric": metric_name}
    return ", ".join(words.get(key, str)(value) for key, value in zip(keys, values))


def audit_ags(ladder: pd.DataFrame, board: pd.DataFrame) -> pd.DataFrame:
    """Each printed AGS against the scores (`value`) along its ladder; both tables with their numbers as text."""
    keys = [key for key in ("dataset", "metric", *ROW) if key in ladder and key in board]
    rungs = {name: sorted(set(group["split"])) for name, group in ladder.groupby("dataset")}
    cells: dict[tuple[Any, ...], list[tuple[Any, str, str]]] = {}
    for *key, split, fid, value in ladder.loc[ladder["value"].notna(), [*keys, "split", "fid", "value"]].itertuples(
            index=False, name=None):
        cells.setdefault(tuple(key), []).append((split, fid, value))
    halves = half_unit(ladder["fid"].dropna()), half_unit(ladder["value"].dropna()), half_unit(board["ags"].dropna())
    found = []
    for row in board[board["ags"].notna()].to_dict("records"):
        group = cells.get(tuple(row[key] for key in keys), [])
        where, printed = _where(keys, [row[key] for key in keys]), float(row["ags"])
        if sorted(split for split, _, _ in group) != rungs.get(row["dataset"]):
            missing = f"incomplete: {len(group)}/{len(rungs.get(row['dataset'], []))} rungs printed"
            found.append(("AGS", where, printed, math.nan, math.nan, math.nan, missing))
            continue
        fids, scores = [float(fid) for _, fid, _ in group], [float(value) for _, _, value in group]
        low, high = ags_bounds(fids, scores, halves[0], halves[1])
        found.append(("AGS", where, printed, ags(fids, scores), low, high, _verdict(printed, halves[2], low, high)))
    return pd.DataFrame(found, columns=FINDING)


def audit_harmonic(table: pd.DataFrame) -> pd.DataFrame:
    """Each printed harmonic or arithmetic mean against the parts of its row; the table with its numbers as text."""
    keys = [key for key in table.columns if key not in _VALUES | {"dataset"}]
    half = half_unit(table["value"].dropna())
    means = {"harmonic": harmonic_mean, "arithmetic": lambda values: math.fsum(values) / len(values)}
    rows: dict[str, dict[str, float]] = {}
    for dataset, number, *key in table.loc[table["value"].notna(), ["dataset", "value", *keys]].itertuples(
            index=False, name=None):
        rows.setdefault(_where(keys, key), {})[dataset] = float(number)
    found = []
    for where, numbers in rows.items():
        parts = [number for name, number in numbers.items() if name not in AGGREGATES]
        for kind, mean in means.items():
            if kind in numbers and parts:
                low, high = (mean([max(0.0, part + sign * half) for part in parts]) for sign in (-1, 1))
                verdict = _verdict(numbers[kind], half, low, high)
                found.append((f"{kind} mean", where, numbers[kind], mean(parts), low, high, verdict))
    return pd.DataFrame(found, columns=FINDING)


def published() -> list[Path]:
    """The tables of the papers that come with this package."""
    return sorted(Path(str(path)) for path in resources.files("reports").joinpath("data/published").iterdir()
                  if path.name.endswith(".csv"))


def _read(path: Path) -> pd.DataFrame:
    """A table with its numbers as they are printed; `frd` becomes `fid`, and `score` becomes `value`."""
    try:
        table = pd.read_csv(io.BytesIO(paths.plain_file(path).read_bytes()), dtype=str)
    except (OSError, ValueError) as error:
        raise ReportError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    for column in (name for name in ("fid", "frd", "value", "score", "ags") if name in table):
        for row, text in enumerate(table[column], 1):
            if not (pd.isna(text) or _NUMBER.fullmatch(text)):
                raise ReportError(f"{path}, row {row}: {one_line(repr(text), 60)} in the column {column} is no number")
    return table.rename(columns={old: new for old, new in (("frd", "fid"), ("score", "value")) if new not in table})


def audit(files: Iterable[Path] | None = None) -> pd.DataFrame:
    """The findings on CSV files, by default on the published ones: one row an aggregate, with its verdict.

    A file with `split` and a distance is a ladder, one with `ags` claims aggregates of the ladders given with it,
    one whose `dataset` column holds `harmonic` is a table of a union; in others there is nothing to recompute.
    """
    read = {path: _read(path) for path in map(Path, files or published())}
    ladders = [table for table in read.values() if {"split", "dataset", "method", "fid", "value"} <= set(table)]
    findings = []
    for path, table in read.items():
        if {"ags", "dataset", "method"} <= set(table):
            if not ladders:
                raise ReportError(f"{path} claims aggregates of a ladder; give the file of its scores too")
            findings.append(audit_ags(pd.concat(ladders), table).assign(file=path.name))
        elif {"dataset", "method", "value"} <= set(table) and table["dataset"].isin(("harmonic", "arithmetic")).any():
            findings.append(audit_harmonic(table).assign(file=path.name))
    if not findings:
        raise ReportError(f"no aggregate in {', '.join(map(str, read))}: nothing to recompute")
    return pd.concat(findings, ignore_index=True)[["file", *FINDING]]


def summary(findings: pd.DataFrame) -> list[str]:
    """One line a file and kind: how many aggregates follow, how many do not, how many cannot be checked."""
    lines = []
    for (file, kind), group in findings.groupby(["file", "kind"], sort=True):
        complete = group[~group["verdict"].str.startswith("incomplete")]
        follow = int((complete["verdict"] == "follows").sum())
        rest = f"; {len(group) - len(complete)} cannot be checked" if len(group) > len(complete) else ""
        paper = paper_of(str(file))
        paper = "" if paper == file else f"{paper}, "
        lines.append(f"{paper}{file}: {follow} of {len(complete)} printed values of {kind} follow{rest}")
    return lines


def paper_of(file: str) -> str:
    """The paper that a published file is of, else the file itself.

    >>> paper_of("uml_results.csv"), paper_of("mine.csv")
    ('UML', 'mine.csv')
    """
    named = _PAPERS.get(file.partition("_")[0], "")
    return named if named and file in {path.name for path in published()} else file


def audit_table(findings: pd.DataFrame, everything: bool = False) -> Table:
    """The findings as a table; those that do not follow, or all of them."""
    shown = findings if everything else findings[findings["verdict"] == "does not follow"]
    nearest = shown["printed"].clip(shown["low"], shown["high"])
    shown = shown.assign(paper=[paper_of(file) for file in shown["file"]], off=shown["printed"] - nearest)
    columns = (Column("paper", "Table of", "text", "The paper, or the file"),
               Column("where", "Row"), Column("kind", "Aggregate"),
               Column("printed", "Printed", "number", digits=2),
               Column("recomputed", "Recomputed", "number", "From the values printed beside it", 2),
               Column("low", "At least", "number", "The least that these values allow before they were rounded", 2),
               Column("high", "At most", "number", "The most that these values allow before they were rounded", 2),
               Column("off", "Off by", "number", "What is printed less the nearest value that is possible", 2),
               *([Column("verdict", "Verdict")] if everything else []), Column("file", "File", spare=True))
    caption = "Printed aggregates" if everything else "Printed aggregates that do not follow from their values"
    return Table("audit", caption, columns, shown.reset_index(drop=True),
                 "Rounding of every printed number is taken into account.")
