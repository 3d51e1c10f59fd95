"""What papers paste: tidy frames for CSV and JSON, shaped tables for LaTeX and Markdown, macros for prose.

Scores are fractions in CSV and JSON, percent with one decimal elsewhere. The tidy columns:

    ags        dataset metric method protocol backbone source rank rank:low rank:high rank:of ags std n low high
               coverage   (rank:of: how many rows the rank is among)
    ladder     dataset metric method protocol backbone source split kind frd score std n low high
    uml        union metric method protocol backbone source group dataset statistic score std n   (dataset: a part or a
               mean; statistic: recall of a part, or unified, harmonic, arithmetic)
    recall     dataset method protocol backbone source, then a column for each metric, on the default split
    fewshot    dataset split frd method protocol backbone source seed shots metric zero few episodes iterations
               lr   (episodes, iterations and learning rate of the adaptation)
    thresholds dataset split kind frd method protocol backbone source seed fixed_on rate threshold false_accepts
               false_rejects tar open_recall opis r_auroc
    wise       dataset split frd method protocol backbone source seed alpha metric score   (alpha: 0 the start of a run)
    frozen     dataset metric what backbone protocol source score parameters resolution pooling dim pretraining
               contamination images_per_second device pareto best gain   (what: which score it is)
    structure  dataset split frd method protocol backbone source seed, the metric, then a column for each measure
    tuning     method dataset budget diverged choice default chosen gain test test_gain spread worst, one row a search
               of `oodml tune`   (default and chosen are validation scores, spread is their deviation over the trials);
               then one row a method whose whole ladder was tested, with settings rungs tuned_ags default_ags ags_gain
               in place of these   (LaTeX, Markdown and text: a table of their own)
    trials     method dataset protocol backbone split number settings state score chosen run, one row a configuration
    runs       one row a run, every plain column of the records; then share:seconds and share:energy_wh, the part of the
               run (see `costs.share`) in cost:seconds and, in watt hours, in the cost:energy_joules of the whole GPU
    queries    one row a query of a run that kept them: dataset split split_hash method protocol backbone source seed
               identity query (its place on the test side) class counted first_hit (rank; 0: none looked at) map@r
               map@1000 (average precision of the query) part

`std` is over seeds with n - 1, `low` and `high` bound the 95 % interval over resampled classes and seeds, cut at 0
and 1, and `rank:low` to `rank:high` are the ranks among which a row does not differ significantly. The last column of
each, `overrides`, names the keys in which the runs of a row differ from the file of their protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from reports import ReportError
from reports.analysis import frozen, ladder_tables, run_tables, tuned_ags, tuning, wise
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board, rungs_of
from reports.board import Board
from reports.figures import pgfplots
from reports.records import metrics
from reports.safe_text import one_line
from reports.selection import DEFAULT_KINDS, ROW, on_ladder, row_keys
from reports.sharing import outcomes
from reports.tables import formats, narrowing
from reports.tables.boards import ags_table, union_table
from reports.tables.table import Column, Table
from reports.wording import metric_name

_FORMS = ("csv", "latex", "md", "json", "text", "macros", "pgfplots")


def _tidy_ags(results: Results, metric: str) -> pd.DataFrame:
    boards = [_scores(_with_others(rung_board(results, dataset, metric)), "ags")
              for dataset in sorted(on_ladder(results.runs)["dataset"].unique())]
    columns = ["dataset", "metric", *ROW, "rank", "rank:low", "rank:high", "rank:of", "ags", "std", "n", "low", "high",
               "coverage"]
    return _joined([board.rename(columns={"part": "dataset", "score": "ags"}).assign(metric=metric)
                    for board in boards], columns)


def _with_others(board: Board) -> Board:
    """A `rung_board` with its ranks by AGS alone, and `rank:of`: how many rows of a board and network have one.

    A protocol of which no method has the whole ladder is ranked by a split, and that is no rank of this table.
    """
    if not len(board):
        return board
    by_split = board.rows["ranked_by"] != ""
    board = board.assign(**{name: board.rows[name].mask(by_split) for name in ("rank", "rank:low", "rank:high")})
    rows = board.rows
    return board.assign(**{"rank:of": rows.groupby(["board", "network"])["rank"].transform("count")})


def _scores(board: Board, *statistics: str) -> pd.DataFrame:
    """The scores of some statistics with the facts of their rows, row by row."""
    scores = board.scores[board.scores["statistic"].isin(statistics)]
    position = {row: i for i, row in enumerate(board.rows.index)}
    scores = scores.sort_values("row", key=lambda rows: rows.map(position), kind="stable")
    return scores.join(board.rows.drop(columns="group", errors="ignore").rename(columns={"dataset": "union"}), on="row")


def _tidy_ladder(results: Results, metric: str) -> pd.DataFrame:
    rows = []
    for dataset in results.datasets:
        for split in rungs_of(results.cells(dataset, metric))["split"]:
            cells, errors = results.rung_errors(dataset, split, metric)
            low, high = errors.bounds(cells["score"].to_numpy(float))
            rows.append(cells.assign(metric=metric, low=low, high=high))
    return _joined(rows, ["dataset", "metric", *ROW, "split", "kind", "frd", "score", "std", "n", "low", "high"])


def _tidy_union(results: Results, metric: str) -> pd.DataFrame:
    rows = []
    for board in _union_boards(results, metric):
        scores = _scores(board, "recall", "unified", "harmonic", "arithmetic").dropna(subset=["score"])
        group = scores["row"].map(board.rows["group"])
        rows.append(scores.assign(metric=metric, group=group, n=scores["n"].astype(int),
                                  dataset=scores["part"].where(scores["part"] != "", scores["statistic"])))
    # what was submitted, and a network that is not trained, stand on the boards of several protocols
    tidy = _joined(rows, ["union", "metric", *ROW, "group", "dataset", "statistic", "score", "std", "n"])
    return tidy[~tidy.duplicated(["union", *ROW, "group", "dataset", "statistic"])].reset_index(drop=True)


def _union_boards(results: Results, metric: str) -> list[Board]:
    return [board for dataset in results.unions for board in results.boards(metric, dataset).values()]


def _recall(results: Results, metric: str) -> pd.DataFrame:
    here = results.runs[results.runs["kind"].isin(DEFAULT_KINDS)]
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
    "fewshot": lambda results, metric: results.fewshot,
    "thresholds": lambda results, metric: results.thresholds, "frozen": frozen.collect,
    "wise": lambda results, metric: wise.collect(results.runs), "structure": _structure,
    "runs": lambda results, metric: run_tables.tidy(results.runs),
    "queries": lambda results, metric: outcomes(results.runs),
}


def _shaped(results: Results, name: str, metric: str, tidy: pd.DataFrame) -> list[Table]:
    """The table as it is printed: boards as pages show them, other frames as they are."""
    if name == "ags":
        return [ags_table(board, metric) for board in results.boards(metric).values()]
    if name == "ladder":
        return [ladder_tables.heat_table(results, dataset, metric) for dataset in sorted(tidy["dataset"].unique())]
    if name == "uml":
        return [union_table(board, metric) for board in _union_boards(results, metric)]
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
    """A command for each number of the AGS and union tables, so that prose cannot drift from the table.

    Names that share their letters, as of beta=1.2 and beta=12, are numbered in their own order, not in that of ranks.
    """
    if name not in ("ags", "uml"):
        raise ReportError("macros are made from --table ags or uml")
    value = "ags" if name == "ags" else "score"
    lines: dict[str, tuple[str, str]] = {}
    told = []
    for row in tidy[tidy[value].notna() & (tidy["source"] != "published")].to_dict("records"):
        words = [row["union"]] if name == "uml" else []
        words += [row["dataset"], results.labels[tuple(row[key] for key in ROW)], *(["ags"] if name == "ags" else [])]
        told.append(([*words, *([] if metric == "recall@1" else [metric])], row))
    for words, row in sorted(told, key=lambda one: one[0]):
        key = base = macro_name(*map(str, words))
        again = 2
        while key in lines:
            key, again = f"{base}{macro_name(str(again)).removeprefix('oodml')}", again + 1
        differs = f" ({row['overrides']})" if row["overrides"] else ""
        lines[key] = f"{100 * row[value]:.1f}", one_line(" ".join(map(str, words)) + differs)
    return "".join(f"\\newcommand{{\\{key}}}{{{text}}} % {about}\n" for key, (text, about) in sorted(lines.items()))


def searched(searches: Sequence[tuning.Search], name: str, form: str, wanted: str = "all") -> str:
    """What `oodml tune` tried and chose, the tables `tuning` and `trials`, in one of the formats but macros."""
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


def tidy_table(results: Results, name: str, metric: str = "recall@1", wanted: str = "all") -> pd.DataFrame:
    """The tidy frame of a table with the columns that are wanted, as the top of this file lists them."""
    if name not in TABLES:
        raise ReportError(f"unknown table '{name}'; there are: {', '.join(TABLES)}")
    tidy = TABLES[name](results, metric)
    if tidy.empty:
        makes = {"fewshot": "oodml fewshot --dataset NAME", "wise": "oodml wise --dataset NAME",
                 "uml": "oodml run --dataset union:NAME,NAME"}.get(name, "oodml run")
        raise ReportError(f"no run has what the table '{name}' shows; `{makes}` makes it")
    if "overrides" not in tidy and name != "queries":
        tidy = tidy.assign(overrides=[results.overrides.get(key, "") for key in row_keys(tidy)])
    return narrowing.frame(tidy, wanted)


WITH_PAPERS = {"ags": ("latex", "md", "text"), "uml": ("csv", "latex", "md", "json", "text", "parquet")}
"""The tables that can have rows from papers, and in which formats: the others are of runs alone."""


def without_papers(results: Results, name: str, form: str, metric: str = "recall@1") -> str:
    """Why a table has no row from papers, in words; '' where it has some."""
    if form not in WITH_PAPERS.get(name, ()):
        which = ", or ".join(f"{table} as {', '.join(forms)}" for table, forms in WITH_PAPERS.items())
        return f"no row from papers is in the table {name} as {form}; those that can have some: {which}"
    boards = _union_boards(results, metric) if name == "uml" else results.boards(metric).values()
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
    """A table of results in one of `_FORMS`, with the columns that are wanted; `pgfplots` draws it."""
    if form not in _FORMS:
        raise ReportError(f"unknown format '{form}'; there are: {', '.join(_FORMS)}")
    tidy = tidy_table(results, name, metric)
    if form == "macros":
        return _macros(results, tidy, name, metric)
    if form == "pgfplots":
        return _drawn(results, name, metric)
    if form in ("csv", "json"):
        shown = tuple(Column(key, head) for key, head in formats.headers(tidy.columns).items())
        return _rendered([Table(name, name, shown, tidy)], form, wanted)
    return _rendered(_shaped(results, name, metric, tidy), form, wanted)


def _drawn(results: Results, name: str, metric: str) -> str:
    """The curve of each dataset that has several splits."""
    if name != "ladder":
        raise ReportError("figures are made from --table ladder")
    cells = {dataset: results.cells(dataset, metric) for dataset in results.datasets}
    drawn = [pgfplots.ladder_figure(rows, f"{metric_name(metric)} on {dataset}", metric)
             for dataset, rows in cells.items() if rows["split"].nunique() > 1 and rows["frd"].notna().all()]
    if not drawn:
        raise ReportError("no dataset has runs on several splits with distances, so there is no curve")
    return "\n".join(drawn)


def _rendered(tables: Sequence[Table], form: str, wanted: str) -> str:
    tables = narrowing.tables(tables, wanted)
    if form in ("csv", "json") and wanted != "all":  # these have what the frame has, as the deviation beside a score
        tables = [replace(table, frame=table.frame[[column.key for column in table.columns]]) for table in tables]
    return "\n".join(formats.render(table, form) for table in tables)
