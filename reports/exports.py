"""What papers paste: tidy frames for CSV and JSON, shaped tables for LaTeX and Markdown, macros for prose.

Scores are fractions in CSV and JSON, percent with one decimal elsewhere. The tidy columns:

    ags        dataset metric method protocol backbone source rank ags std n coverage
    ladder     dataset metric method protocol backbone source split kind frd score std n
    uml        union metric method protocol backbone source dataset score std n   (dataset: a part or an aggregate)
    recall     dataset method protocol backbone source, then a column for each metric, on the default split
    structure  dataset split method protocol backbone source seed, then a column for each measure
    runs       one row a run, every plain column of the records
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from reports import ReportError, aggregate, tables, views
from reports.aggregate import ROW
from reports.records import metrics
from reports.tables import Column, Table

_FORMS = ("csv", "latex", "md", "json", "text", "macros")


def _tidy_ags(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    rows = []
    for dataset in sorted(aggregate.on_ladder(runs)["dataset"].unique()):
        board = aggregate.ags_board(runs[runs["dataset"] == dataset], metric)
        named = {dataset: "ags", f"{dataset}:std": "std", f"{dataset}:n": "n", f"{dataset}:coverage": "coverage"}
        rows.append(board.rename(columns=named).assign(dataset=dataset, metric=metric))
    return _joined(rows, ["dataset", "metric", *ROW, "rank", "ags", "std", "n", "coverage"])


def _tidy_ladder(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    datasets = sorted(runs.loc[~aggregate.is_union(runs), "dataset"].unique())
    rows = [aggregate.rung_scores(runs, dataset, metric).assign(dataset=dataset, metric=metric) for dataset in datasets]
    return _joined(rows, ["dataset", "metric", *ROW, "split", "kind", "frd", "score", "std", "n"])


def _tidy_union(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    rows = []
    for row in aggregate.union_board(runs, metric).to_dict("records"):
        for part in [str(key).removesuffix(":n") for key in row if str(key).endswith(":n")]:
            if pd.notna(row[part]):
                rows.append({key: row[key] for key in ROW} | {
                    "union": row["dataset"], "metric": metric, "dataset": part, "score": row[part],
                    "std": row[f"{part}:std"], "n": int(row[f"{part}:n"])})
    return _joined([pd.DataFrame(rows)], ["union", "metric", *ROW, "dataset", "score", "std", "n"])


def _recall(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    here = runs[runs["kind"] == "default"]
    if here.empty:
        return here
    grouped = here.groupby(["dataset", *ROW])[metrics(here)]
    return grouped.mean().join(grouped.count().add_suffix(":n")).join(grouped.std().add_suffix(":std")).reset_index()


def _structure(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    measures = [column for column in runs.columns if column.startswith("structure:")]
    here = runs.dropna(subset=measures, how="all") if measures else runs.iloc[:0]
    return here[["dataset", "split", "frd", *ROW, "seed", *([metric] if metric in runs else []), *measures]]


def _joined(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    whole = [frame for frame in frames if len(frame)]
    return pd.concat(whole, ignore_index=True)[columns] if whole else pd.DataFrame(columns=columns)


TABLES: dict[str, Callable[[pd.DataFrame, str], pd.DataFrame]] = {
    "ags": _tidy_ags, "ladder": _tidy_ladder, "uml": _tidy_union, "recall": _recall, "structure": _structure,
    "runs": lambda runs, metric: views.tidy(runs),
}


def _shaped(runs: pd.DataFrame, name: str, metric: str, tidy: pd.DataFrame) -> list[Table]:
    """The table as it is printed: boards as pages show them, other frames as they are."""
    if name == "ags":
        return [tables.ags_table(aggregate.ags_board(runs, metric), metric)]
    if name == "ladder":
        return [views.heat_table(runs, dataset, metric) for dataset in sorted(tidy["dataset"].unique())]
    if name == "uml":
        boards = aggregate.union_board(runs, metric)
        return [tables.union_table(board, metric) for _, board in boards.groupby("dataset", sort=True)]
    scores = set(metrics(runs))
    shown = [key for key in tidy.columns if not key.endswith((":n", ":std"))]
    columns = tuple(Column(key, key, "score" if key in scores else "text") for key in shown)
    return [replace(Table(name, name, columns, tidy), marked=name == "recall")]


def macro_name(*words: str) -> str:
    r"""A LaTeX command name, letters alone.

    >>> macro_name("cub", "s2sd", "ags"), macro_name("cars", "proxy-anchor", "recall@1")
    ('oodmlCubSTwoSdAgs', 'oodmlCarsProxyAnchorRecallOne')
    """
    digits = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    text = re.sub(r"\d", lambda found: f"-{digits[int(found[0])]}-", "-".join(words))
    return "oodml" + "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z]+", text))


def _macros(runs: pd.DataFrame, tidy: pd.DataFrame, name: str, metric: str) -> str:
    """A command for each number of the AGS and union tables, so that prose cannot drift from the table."""
    if name not in ("ags", "uml"):
        raise ReportError("macros are made from --table ags or uml")
    value = "ags" if name == "ags" else "score"
    labels = aggregate.labels(runs)
    lines: dict[str, str] = {}
    for row in tidy[tidy[value].notna()].to_dict("records"):
        words = [row["union"]] if name == "uml" else []
        words += [row["dataset"], labels[tuple(row[key] for key in ROW)], *(["ags"] if name == "ags" else [])]
        words += [] if metric == "recall@1" else [metric]
        lines[macro_name(*map(str, words))] = f"{100 * row[value]:.1f}"
    return "".join(f"\\newcommand{{\\{key}}}{{{text}}}\n" for key, text in sorted(lines.items()))


def export(frame: pd.DataFrame, name: str, form: str, metric: str = "recall@1") -> str:
    """A table of collected runs in one of the formats csv, latex, md, json, text, macros."""
    if name not in TABLES:
        raise ReportError(f"unknown table '{name}'; there are: {', '.join(TABLES)}")
    if form not in _FORMS:
        raise ReportError(f"unknown format '{form}'; there are: {', '.join(_FORMS)}")
    runs, _ = aggregate.select(frame)
    tidy = TABLES[name](runs, metric)
    if tidy.empty:
        raise ReportError(f"no run has what the table '{name}' shows; `oodml run` makes runs")
    if form == "macros":
        return _macros(runs, tidy, name, metric)
    if form in ("csv", "json"):
        columns = tuple(Column(key, key) for key in tidy.columns)
        return tables.render(Table(name, name, columns, tidy), form)
    return "\n".join(tables.render(table, form) for table in _shaped(runs, name, metric, tidy))
