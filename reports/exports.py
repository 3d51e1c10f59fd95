"""What papers paste: tidy frames for CSV and JSON, shaped tables for LaTeX and Markdown, macros for prose.

Scores are fractions in CSV and JSON, percent with one decimal elsewhere. The tidy columns:

    ags        dataset metric method protocol backbone source rank rank:low rank:high ags std n low high coverage
    ladder     dataset metric method protocol backbone source split kind frd score std n low high
    uml        union metric method protocol backbone source group dataset score std n   (dataset: a part or a mean)
    recall     dataset method protocol backbone source, then a column for each metric, on the default split
    fewshot    dataset split frd method protocol backbone source seed shots metric zero few episodes
    structure  dataset split frd method protocol backbone source seed, the metric, then a column for each measure
    runs       one row a run, every plain column of the records

`std` is over seeds with n - 1, `low` and `high` bound the 95 % interval over resampled classes and seeds, and
`rank:low` to `rank:high` are the ranks that cannot be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd

from reports import ReportError, aggregate
from reports.aggregate import ROW, USUAL
from reports.analysis import views
from reports.analysis.results import Results, union_parts
from reports.records import metrics
from reports.tables import boards as tables
from reports.tables import formats
from reports.tables.boards import Column, Table

_FORMS = ("csv", "latex", "md", "json", "text", "macros")


def _tidy_ags(results: Results, metric: str) -> pd.DataFrame:
    rows = []
    for dataset in sorted(aggregate.on_ladder(results.runs)["dataset"].unique()):
        board = views.heat_table(results, dataset, metric).frame
        named = {dataset: "ags"} | {f"{dataset}:{what}": what for what in ("std", "n", "low", "high", "coverage")}
        rows.append(board.rename(columns=named).assign(dataset=dataset, metric=metric))
    columns = ["dataset", "metric", *ROW, "rank", "rank:low", "rank:high", "ags", "std", "n", "low", "high", "coverage"]
    return _joined(rows, columns)


def _tidy_ladder(results: Results, metric: str) -> pd.DataFrame:
    rows = []
    for dataset in results.datasets:
        for split in views.rungs_of(results.cells(dataset, metric))["split"]:
            cells, errors = results.rung_errors(dataset, split, metric)
            half = errors.half_widths()
            rows.append(cells.assign(metric=metric, low=cells["score"] - half, high=cells["score"] + half))
    return _joined(rows, ["dataset", "metric", *ROW, "split", "kind", "frd", "score", "std", "n", "low", "high"])


def _tidy_union(results: Results, metric: str) -> pd.DataFrame:
    rows = []
    for board in _union_boards(results, metric):
        for row in board.to_dict("records"):
            for part in [*union_parts(board), "unified", "harmonic", "arithmetic"]:
                if pd.notna(row[part]):
                    rows.append({key: row[key] for key in (*ROW, "group")} | {
                        "union": row["dataset"], "metric": metric, "dataset": part, "score": row[part],
                        "std": row[f"{part}:std"], "n": int(row[f"{part}:n"])})
    return _joined([pd.DataFrame(rows)], ["union", "metric", *ROW, "group", "dataset", "score", "std", "n"])


def _union_boards(results: Results, metric: str) -> list[pd.DataFrame]:
    boards = [results.universal(dataset, protocol, metric) for dataset in results.unions
              for protocol in results.protocols]
    return [board for board in boards if len(board)]


def _recall(results: Results, metric: str) -> pd.DataFrame:
    here = results.runs[results.runs["kind"].isin(USUAL)]
    if here.empty:
        return here
    grouped = here.groupby(["dataset", *ROW])[metrics(here)]
    return grouped.mean().join(grouped.count().add_suffix(":n")).join(grouped.std().add_suffix(":std")).reset_index()


def _structure(results: Results, metric: str) -> pd.DataFrame:
    runs = results.runs
    measures = [column for column in runs.columns if column.startswith("structure:")]
    here = runs.dropna(subset=measures, how="all") if measures else runs.iloc[:0]
    return here[["dataset", "split", "frd", *ROW, "seed", *([metric] if metric in runs else []), *measures]]


def _joined(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    whole = [frame for frame in frames if len(frame)]
    return pd.concat(whole, ignore_index=True).reindex(columns=columns) if whole else pd.DataFrame(columns=columns)


TABLES: dict[str, Callable[[Results, str], pd.DataFrame]] = {
    "ags": _tidy_ags, "ladder": _tidy_ladder, "uml": _tidy_union, "recall": _recall,
    "fewshot": lambda results, metric: results.fewshot, "structure": _structure,
    "runs": lambda results, metric: views.tidy(results.runs),
}


def _shaped(results: Results, name: str, metric: str, tidy: pd.DataFrame) -> list[Table]:
    """The table as it is printed: boards as pages show them, other frames as they are."""
    if name == "ags":
        boards = [results.ags(metric, protocol) for protocol in results.protocols]
        return [tables.ags_table(board, metric) for board in boards if len(board)]
    if name == "ladder":
        return [views.heat_table(results, dataset, metric) for dataset in sorted(tidy["dataset"].unique())]
    if name == "uml":
        return [tables.union_table(board, metric) for board in _union_boards(results, metric)]
    if name == "recall":
        return _recall_tables(results, tidy)
    scores = {*metrics(results.runs), *(("zero", "few") if name == "fewshot" else ())}
    columns = tuple(Column(key, key, "score" if key in scores else "text") for key in tidy.columns)
    return [Table(name, name, columns, tidy, marked=False)]


def _recall_tables(results: Results, tidy: pd.DataFrame) -> list[Table]:
    """A table a dataset, for scores on other images are not better or worse; floors are known, and never the best."""
    runs, found = results.runs, []
    floor = runs["family"].eq("floor") | runs["method"].str.split("[").str[0].isin(aggregate.FLOORS)
    floors = set(runs.loc[floor, ROW].itertuples(index=False, name=None))
    for dataset, rows in tidy.groupby("dataset", sort=True):
        rows = rows.assign(floor=[key in floors for key in rows[ROW].itertuples(index=False, name=None)])
        scores = [metric for metric in metrics(runs) if rows[metric].notna().any()]
        columns = (*(Column(key, key) for key in ("dataset", *ROW)), *(Column(key, key, "score") for key in scores))
        found.append(Table(f"recall-{dataset}", f"Scores on the default split of {dataset}", columns,
                           rows.reset_index(drop=True)))
    return found


def macro_name(*words: str) -> str:
    r"""A LaTeX command name, letters alone; pieces of one or two letters are taken for abbreviations.

    >>> macro_name("cub", "s2sd", "ags"), macro_name("cars", "proxy-anchor", "recall@1")
    ('oodmlCubSTwoSDAgs', 'oodmlCarsProxyAnchorRecallOne')
    """
    digits = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    text = re.sub(r"\d", lambda found: f"-{digits[int(found[0])]}-", "-".join(words))
    parts = [part for part in re.split(r"[^A-Za-z]+", text) if part]
    return "oodml" + "".join(part.upper() if len(part) < 3 else part[:1].upper() + part[1:] for part in parts)


def _macros(results: Results, tidy: pd.DataFrame, name: str, metric: str) -> str:
    """A command for each number of the AGS and union tables, so that prose cannot drift from the table."""
    if name not in ("ags", "uml"):
        raise ReportError("macros are made from --table ags or uml")
    value = "ags" if name == "ags" else "score"
    lines: dict[str, tuple[str, str]] = {}
    for row in tidy[tidy[value].notna() & (tidy["source"] != "published")].to_dict("records"):
        words = [row["union"]] if name == "uml" else []
        words += [row["dataset"], results.labels[tuple(row[key] for key in ROW)], *(["ags"] if name == "ags" else [])]
        words += [] if metric == "recall@1" else [metric]
        key = base = macro_name(*map(str, words))
        again = 2
        while key in lines:
            key, again = f"{base}{macro_name(str(again)).removeprefix('oodml')}", again + 1
        lines[key] = f"{100 * row[value]:.1f}", " ".join(map(str, words))
    return "".join(f"\\newcommand{{\\{key}}}{{{text}}} % {told}\n" for key, (text, told) in sorted(lines.items()))


def export(results: Results, name: str, form: str, metric: str = "recall@1") -> str:
    """A table of results in one of the formats csv, latex, md, json, text, macros."""
    if name not in TABLES:
        raise ReportError(f"unknown table '{name}'; there are: {', '.join(TABLES)}")
    if form not in _FORMS:
        raise ReportError(f"unknown format '{form}'; there are: {', '.join(_FORMS)}")
    tidy = TABLES[name](results, metric)
    if tidy.empty:
        makes = "oodml fewshot" if name == "fewshot" else "oodml run"
        raise ReportError(f"no run has what the table '{name}' shows; `{makes}` makes it")
    if form == "macros":
        return _macros(results, tidy, name, metric)
    if form in ("csv", "json"):
        columns = tuple(Column(key, key) for key in tidy.columns)
        return formats.render(Table(name, name, columns, tidy), form)
    return "\n".join(formats.render(table, form) for table in _shaped(results, name, metric, tidy))
