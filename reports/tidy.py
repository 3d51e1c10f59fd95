"""Tidy frames of results, for CSV, JSON and parquet: a row a score, which are fractions. All their columns:

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

from collections.abc import Callable

import pandas as pd

from reports import ReportError
from reports.analysis import frozen, run_tables, wise
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board, rungs_of
from reports.board import Board
from reports.records import metrics
from reports.selection import DEFAULT_KINDS, ROW, on_ladder, row_keys
from reports.sharing import outcomes
from reports.tables.columns import frame_with


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
    for board in union_boards(results, metric):
        scores = _scores(board, "recall", "unified", "harmonic", "arithmetic").dropna(subset=["score"])
        group = scores["row"].map(board.rows["group"])
        rows.append(scores.assign(metric=metric, group=group, n=scores["n"].astype(int),
                                  dataset=scores["part"].where(scores["part"] != "", scores["statistic"])))
    # what was submitted, and a network that is not trained, stand on the boards of several protocols
    tidy = _joined(rows, ["union", "metric", *ROW, "group", "dataset", "statistic", "score", "std", "n"])
    return tidy[~tidy.duplicated(["union", *ROW, "group", "dataset", "statistic"])].reset_index(drop=True)


def union_boards(results: Results, metric: str) -> list[Board]:
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


def tidy_table(results: Results, name: str, metric: str = "recall@1", wanted: str = "all") -> pd.DataFrame:
    """The tidy frame of a table; of the columns that the top of this file lists those that are wanted."""
    if name not in TABLES:
        raise ReportError(f"unknown table '{name}'; there are: {', '.join(TABLES)}")
    tidy = TABLES[name](results, metric)
    if tidy.empty:
        makes = {"fewshot": "oodml fewshot --dataset NAME", "wise": "oodml wise --dataset NAME",
                 "uml": "oodml run --dataset union:NAME,NAME"}.get(name, "oodml run")
        raise ReportError(f"no run has what the table '{name}' shows; `{makes}` makes it")
    if "overrides" not in tidy and name != "queries":
        tidy = tidy.assign(overrides=[results.overrides.get(key, "") for key in row_keys(tidy)])
    return frame_with(tidy, wanted)
