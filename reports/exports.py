"""What papers paste: tables in every format, macros for prose, curves in LaTeX, and what to cite.

Scores are fractions in CSV and JSON, which have the columns of `tidy`, and percent with one decimal elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from reports import ReportError, citing
from reports.analysis import ladder_tables, tuned_ags, tuning
from reports.analysis.results import Results
from reports.figures import pgfplots
from reports.records import metrics
from reports.safe_text import one_line
from reports.selection import ROW, row_keys
from reports.tables import formats
from reports.tables.boards import ags_table, union_table
from reports.tables.columns import tables_with
from reports.tables.table import Column, Table
from reports.tidy import tidy_table, union_boards
from reports.wording import metric_name

_FORMS = ("csv", "latex", "md", "json", "text", "macros", "pgfplots", "bib")


def _shaped(results: Results, name: str, metric: str, tidy: pd.DataFrame) -> list[Table]:
    """The table as it is printed: boards as pages show them, other frames as they are."""
    if name == "ags":
        return [ags_table(board, metric) for board in results.boards(metric).values()]
    if name == "ladder":
        return [ladder_tables.heat_table(results, dataset, metric) for dataset in sorted(tidy["dataset"].unique())]
    if name == "uml":
        return [union_table(board, metric) for board in union_boards(results, metric)]
    if name == "recall":
        return _recall_tables(results, tidy)
    scores = {*metrics(results.runs), *(("zero", "few") if name == "fewshot" else ()), "score"}
    columns = tuple(Column(key, key, "score" if key in scores else "gain" if key == "gain" else "text")
                    for key in tidy.columns)
    return [Table(name, name, columns, tidy, marked=False)]


def _recall_tables(results: Results, tidy: pd.DataFrame) -> list[Table]:
    """A table a dataset: scores on other images are not better or worse; baselines are known, and never the best."""
    runs, made = results.runs, []
    baselines = set(row_keys(runs[runs["baseline"]]))
    for dataset, rows in tidy.groupby("dataset", sort=True):
        rows = rows.assign(baseline=[key in baselines for key in row_keys(rows)])
        scores = [metric for metric in metrics(runs) if rows[metric].notna().any()]
        columns = (*(Column(key, key) for key in ("dataset", *ROW)), *(Column(key, key, "score") for key in scores),
                   *((Column("overrides", "overrides"),) if rows["overrides"].ne("").any() else ()))
        made.append(Table(f"recall-{dataset}", f"Scores on the default split of {dataset}", columns,
                          rows.reset_index(drop=True)))
    return made


def macro_name(*words: str) -> str:
    r"""A LaTeX command name, letters alone; pieces of one or two letters are taken for abbreviations.

    >>> macro_name("cub", "s2sd", "ags"), macro_name("cars", "proxy-anchor", "recall@1")
    ('oodmlCubSTwoSDAgs', 'oodmlCarsProxyAnchorRecallOne')
    """
    digits = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    text = re.sub(r"\d", lambda digit: f"-{digits[int(digit[0])]}-", "-".join(words))
    parts = [part for part in re.split(r"[^A-Za-z]+", text) if part]
    return "oodml" + "".join(part.upper() if len(part) < 3 else part[:1].upper() + part[1:] for part in parts)


def _macros(results: Results, tidy: pd.DataFrame, name: str, metric: str) -> str:
    """A command for each score of the AGS, ladder and union tables, so that prose cannot drift from the table.

    Names that share their letters, as of beta=1.2 and beta=12, are numbered in their own order, not in that of ranks.
    """
    if name not in ("ags", "ladder", "uml"):
        raise ReportError("macros are made from --table ags, ladder or uml")
    value = "ags" if name == "ags" else "score"
    lines: dict[str, tuple[str, str]] = {}
    told = []
    for row in tidy[tidy[value].notna() & (tidy["source"] != "published")].to_dict("records"):
        last = {"ags": ["ags"], "ladder": ["split", str(row.get("split"))], "uml": []}[name]
        words = [*([row["union"]] if name == "uml" else []), row["dataset"],
                 results.labels[tuple(row[key] for key in ROW)], *last]
        told.append(([*words, *([] if metric == "recall@1" else [metric])], row))
    for words, row in sorted(told, key=lambda one: one[0]):
        key = base = macro_name(*map(str, words))
        again = 2
        while key in lines:  # after the number of a split another would read as its next digit
            more = f"row-{again}" if name == "ladder" else str(again)
            key, again = f"{base}{macro_name(more).removeprefix('oodml')}", again + 1
        differs = f" ({row['overrides']})" if row["overrides"] else ""
        lines[key] = f"{100 * row[value]:.1f}", one_line(" ".join(map(str, words)) + differs)
    return "".join(f"\\newcommand{{\\{key}}}{{{text}}} % {about}\n" for key, (text, about) in sorted(lines.items()))


def searched(searches: Sequence[tuning.Search], name: str, form: str, wanted: str = "all") -> str:
    """What `oodml tune` tried and chose, the tables `tuning` and `trials`, in one of `formats.FORMATS`."""
    if not searches:
        raise ReportError(f"nothing was tuned, so there is no table '{name}'; `oodml tune` makes it")
    if form not in formats.FORMATS:
        raise ReportError(f"the table '{name}' has the formats {', '.join(formats.FORMATS)}, not '{form}'")
    board, over = tuning.board(searches), tuned_ags.table(searches)
    if name == "trials":
        tables = [tuning.trials(searches)]
    elif form in ("csv", "json"):
        tables = [tuned_ags.joined(board, over)]
    else:
        tables = [table for table in (over, board) if table]
    return _rendered(tables, form, wanted)


WITH_PAPERS = {"ags": ("latex", "md", "text"), "uml": ("csv", "latex", "md", "json", "text", "parquet")}
"""The tables that can have rows from papers, and in which formats: the others are of runs alone."""


def without_papers(results: Results, name: str, form: str, metric: str = "recall@1") -> str:
    """Why a table has no row from papers, in words; '' where it has some."""
    if form not in WITH_PAPERS.get(name, ()):
        which = ", or ".join(f"{table} as {', '.join(forms)}" for table, forms in WITH_PAPERS.items())
        return f"no row from papers is in the table {name} as {form}; those that can have some: {which}"
    boards = union_boards(results, metric) if name == "uml" else results.boards(metric).values()
    if any(board.rows["source"].eq("published").any() for board in boards):
        return ""
    here = results.unions if name == "uml" else results.laddered
    unlike = [results.unlike_papers[dataset] for dataset in here if dataset in results.unlike_papers]
    unknown = [dataset for dataset in here if dataset not in results.unlike_papers]
    what = f"AGS of {metric}" if name == "ags" else f"{metric} of unions"
    reasons = [*unlike, *([f"papers print no {what} on {', '.join(unknown)}"] if unknown else [])]
    return (f"no row from papers fits the table {name}: {'; '.join(reasons)}; what they print is on the page Published "
            "of `oodml report`")


def export(results: Results, name: str, form: str, metric: str = "recall@1", wanted: str = "all") -> str:
    """A table of results in one of `_FORMS`, with the columns that are wanted; `pgfplots` draws it, `bib` cites it."""
    if form not in _FORMS:
        raise ReportError(f"unknown format '{form}'; there are: {', '.join(_FORMS)}")
    if form == "bib":
        return citing.bibliography(results.runs)
    if form == "pgfplots":
        return _drawn(results, name, metric)
    tidy = tidy_table(results, name, metric)
    if form == "macros":
        return _macros(results, tidy, name, metric)
    if form in ("csv", "json"):
        shown = tuple(Column(key, head) for key, head in formats.headers(tidy.columns).items())
        return _rendered([Table(name, name, shown, tidy)], form, wanted)
    return _rendered(_shaped(results, name, metric, tidy), form, wanted)


def _drawn(results: Results, name: str, metric: str) -> str:
    """The curve of each dataset that has several splits."""
    if name != "ladder":
        raise ReportError("figures are made from --table ladder")
    cells = {dataset: results.cells(dataset, metric) for dataset in results.datasets}
    drawn = {dataset: pgfplots.ladder_figure(rows, f"{metric_name(metric)} on {dataset}", metric)
             for dataset, rows in cells.items() if rows["split"].nunique() > 1 and rows["frd"].notna().all()}
    if not drawn:
        raise ReportError("no dataset has runs on several splits with distances, so there is no curve")
    others = ", ".join(dataset for dataset in cells if dataset not in drawn)
    return "\n".join([*drawn.values(), *([f"% no curve: {others}, without several splits at known distances\n"]
                                         if others else [])])


def _rendered(tables: Sequence[Table], form: str, wanted: str) -> str:
    tables = tables_with(tables, wanted)
    if form in ("csv", "json") and wanted != "all":  # these have what the frame has, as the deviation beside a score
        tables = [replace(table, frame=table.frame[[column.key for column in table.columns]]) for table in tables]
    return "\n".join(formats.render(table, form) for table in tables)
