"""What the pages show beside the boards: the cells of a ladder, the facts of its splits, the runs of a method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reports import aggregate
from reports.aggregate import ROW
from reports.analysis import baselines, significance
from reports.analysis.results import Results
from reports.records import FACTS, metrics
from reports.tables.boards import Column, Table, bar_note, row_columns

OBJECTS = ("ladder", "papers", "tags", "cite", "summary", "settings", "protocol_settings", "curve", "chosen_epochs",
           "path", "parts", "members")


def _metric_order(metric: str) -> tuple[bool, bool, str, int]:
    """Recall first, by k as a number; the measures that imitate released code last."""
    name, _, k = metric.partition("@")
    return metric.endswith("_released"), name != "recall", name, int(k) if k.isdigit() else 0


def distance(frd: float | None, split: Any) -> str:
    """A rung as the head of a column: its distance, or its number where it has none."""
    return f"split {split}" if frd is None or pd.isna(frd) else f"{frd:.0f}" if frd >= 100 else f"{frd:.1f}"


def rungs_of(cells: pd.DataFrame) -> pd.DataFrame:
    """The rungs among some cells in order of distance."""
    return cells.drop_duplicates("split").sort_values(["frd", "split"])


def heat_table(results: Results, dataset: str, metric: str) -> Table:
    """Method x rung with the AGS of the dataset: one row a method, one column a split, in order of distance.

    Ranked within each protocol by AGS, without a ladder by the score on the default split.
    """
    cells = results.cells(dataset, metric)
    runs = results.runs[results.runs["dataset"] == dataset]
    board = aggregate.ags_board(runs, metric)
    rungs = rungs_of(cells)
    note = "Columns are headed by the Fréchet distance of their split. " if rungs["frd"].notna().any() else ""
    if board.empty:
        board = cells[[*ROW, "family", "floor"]].drop_duplicates(ignore_index=True)
    keys = pd.MultiIndex.from_frame(board[ROW])
    for split in rungs["split"]:
        here = cells[cells["split"] == split].set_index(ROW)
        for key, column in ((f"rung{split}", "score"), (f"rung{split}:std", "std"), (f"rung{split}:n", "n")):
            board[key] = here[column].reindex(keys).to_numpy(dtype=float)
    by, splits = dataset, rungs["split"].tolist()
    if dataset not in board and splits:
        usual = aggregate.usual(rungs)["split"].iloc[0]
        by, note = f"rung{usual}", f"{note}There is no ladder: ranked by the score on split {usual}. "
        board = aggregate.ranked(board.assign(covered=1, cells=1), by, ("protocol",))
    parts = [_with_ties(results, part, dataset, metric, splits, by) for _, part in
             board.groupby("protocol", sort=False)]
    board = pd.concat(parts, ignore_index=True) if parts else board
    method, *rest = row_columns(board)
    columns = [Column("rank", "Rank", "rank"), method]
    if dataset in board:
        columns.append(Column(dataset, "AGS", "score", f"Area under {metric} over the normalised distance"))
    for split, frd, kind in zip(rungs["split"], rungs["frd"], rungs["kind"]):
        mark = " (default)" if kind == "default" else ""
        columns.append(Column(f"rung{split}", distance(frd, split), "score", f"Split {split}{mark}, {metric}",
                              heat=True))
    columns += rest
    note += "Ranks and bold are within a protocol. " if len(parts) > 1 else ""
    note += bar_note(board, [column.key for column in columns if column.kind == "score"])
    caption = f"{metric} of each method on each split of {dataset}"
    return Table(f"{dataset}-{metric}", caption, tuple(columns), board, note)


def _with_ties(results: Results, board: pd.DataFrame, dataset: str, metric: str, splits: list[int],
               by: str) -> pd.DataFrame:
    """The rows of one protocol with intervals, rank ranges and tie groups."""
    resamples = results.resamples(metric)
    rows = [tuple(row) for row in board[ROW].itertuples(index=False, name=None)]
    drawn = {f"rung{split}": resamples.scores(dataset, split, rows) for split in splits}
    columns = [f"rung{split}" for split in splits]
    if dataset in board:
        drawn[dataset] = resamples.ags(dataset, results.ladders[dataset], rows)
        columns.insert(0, dataset)
    classes = min((resamples.classes.get((dataset, split), 2) for split in splits), default=2)
    return significance.with_ties(board, by, columns, drawn, classes)


def split_table(results: Results, dataset: str) -> Table:
    """The facts of the splits of a dataset, as its records carry them."""
    runs = results.runs[results.runs["dataset"] == dataset]
    known = rungs_of(runs).reset_index(drop=True)
    known = known.assign(hash=known["split_hash"].map(lambda text: str(text)[:12] if text else ""))
    columns = (Column("split", "Split"), Column("kind", "Kind"),
               Column("iteration", "Iteration", "number", "Swapping iteration", 0),
               Column("frd", "Distance", "number", "Fréchet distance between the images of the two sides", 2),
               Column("frd_class_means_released", "Distance of class means", "number",
                      "Fréchet distance over class means, as the released script of the ooDML paper computes it", 2),
               Column("train_classes", "Training classes", "number", digits=0),
               Column("test_classes", "Test classes", "number", digits=0),
               Column("train_images", "Training images", "number", digits=0),
               Column("test_images", "Test images", "number", digits=0), Column("hash", "Hash"))
    shown = tuple(c for c in columns if known[c.key].notna().any())
    return Table(f"{dataset}-splits", f"The splits of {dataset}", shown, known[[c.key for c in shown]])


def gain_table(results: Results, dataset: str, metric: str) -> Table | None:
    """What each method gains over the frozen backbone on each rung, and where it falls below; None without floor."""
    whole = results.cells(dataset, metric)
    cells = baselines.gain_over_floor(whole)
    cells = cells[~cells["floor"] & cells["gain"].notna()]
    if cells.empty:
        return None
    board = cells.pivot_table(index=ROW, columns="split", values="gain")
    board = board.loc[board.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    board = board.rename(columns=lambda split: f"rung{split}").reset_index()
    below = baselines.falls_below(whole).set_index(ROW)["below"]
    board["below"] = below.reindex(pd.MultiIndex.from_frame(board[ROW])).to_numpy(dtype=float)
    rungs = rungs_of(cells)
    columns = [*row_columns(board), *(Column(f"rung{split}", distance(frd, split), "gain", f"Split {split}", heat=True)
                                      for split, frd in zip(rungs["split"], rungs["frd"])),
               Column("below", "Below from", "number", "Distance at which the row falls below the floor, straight "
                      "lines between rungs", 1)]
    return Table(f"{dataset}-gain", f"Gain over the frozen backbone, points of {metric}", tuple(columns), board)


def tau_table(flips: pd.DataFrame, rungs: pd.DataFrame, dataset: str) -> Table:
    """Kendall's tau between every two rungs as a square table."""
    heads = dict(zip(rungs["split"], (distance(frd, split) for split, frd in zip(rungs["split"], rungs["frd"]))))
    known = {(a, b): tau for a, b, tau in flips[["first", "second", "tau"]].itertuples(index=False, name=None)}
    rows = [{"rung": heads[a]} | {f"rung{b}": 1.0 if a == b else known.get((a, b), known.get((b, a))) for b in heads}
            for a in heads]
    columns = (Column("rung", "Distance"), *(Column(f"rung{b}", head, "number", digits=2) for b, head in heads.items()))
    return Table(f"{dataset}-tau", f"Kendall's τ between the rankings on the splits of {dataset}", columns,
                 pd.DataFrame(rows), "1: the same ranking, 0: unrelated, −1: reversed.")


def runs_table(runs: pd.DataFrame, name: str, caption: str) -> Table:
    """Every run of a method with its seed, scores and cost."""
    scores = sorted((metric for metric in metrics(runs) if runs[metric].notna().any()), key=_metric_order)
    rest = [key for key in ("best-test:recall@1", "validation:recall@1") if key in runs and runs[key].notna().any()]
    columns = [Column("dataset", "Dataset"), Column("split", "Split"), Column("frd", "Distance", "number", digits=1),
               *(Column(key, head) for key, head in (("protocol", "Protocol"), ("backbone", "Backbone"))
                 if runs[key].nunique() > 1),
               Column("seed", "Seed"), *(Column(metric, metric, "score") for metric in scores),
               *(Column(key, key.replace(":", ": "), "score") for key in rest)]
    if "cost:seconds" in runs:
        columns.append(Column("cost:seconds", "Seconds", "number", digits=1))
    columns += [Column("date", "Date"), Column("identity", "Run")]
    shown = runs.assign(identity=runs["identity"].str[:12], date=runs["date"].map(lambda d: str(d)[:10] if d else ""))
    shown = shown.sort_values(["dataset", "frd", "split", "protocol", "backbone", "seed"], kind="stable")
    return Table(name, caption, tuple(columns), shown[[c.key for c in columns]], marked=False)


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """All runs with their plain columns, for the CSV beside the site; ladders, curves and paths stay in the records."""
    plain = [key for key in FACTS if key not in OBJECTS]
    return frame[[*plain, *(column for column in frame.columns if column not in (*FACTS, "label"))]]


def failure_table(failures: pd.DataFrame) -> Table:
    """Runs without a result, with their cause."""
    columns = (Column("dataset", "Dataset"), Column("split", "Split"), Column("method", "Method"),
               Column("seed", "Seed"), Column("state", "State"), Column("cause", "Cause"), Column("remedy", "Remedy"))
    order = [c.key for c in columns]
    first = failures["cause"].map(lambda cause: str(cause or "not told").splitlines()[0])
    shown = failures.assign(cause=first)[order].fillna("").astype(str).sort_values(order, kind="stable")
    return Table("failures", "Runs without a result", columns, shown.reset_index(drop=True))


def curve_table(curves: list[tuple[str, list[dict[str, Any]]]], metric: str, name: str, caption: str) -> Table:
    """The numbers behind `small_figures.training_curves`: run, epoch, loss and score."""
    keys = ("epoch", "loss", metric)
    rows = [(label, *(point.get(key) for key in keys)) for label, curve in curves for point in curve]
    frame = pd.DataFrame(rows, columns=["run", *keys])
    columns = (Column("run", "Dataset and split"), Column("epoch", "Epoch", "number", digits=0),
               Column("loss", "Loss", "number", digits=4), Column(metric, metric, "score"))
    return Table(name, caption, columns, frame, marked=False)


def made_with(runs: pd.DataFrame) -> pd.Series:
    """The commit that each run was made with, short; `+ changes` where the tree held more than that."""
    changed = runs["dirty"].map(lambda dirty: " + changes" if dirty is True else "")
    return runs["commit"].map(lambda commit: str(commit)[:9] if commit else "") + changed


def changelog(runs: pd.DataFrame) -> Table:
    """When what came to the board: runs of each day and commit, newest first."""
    days = runs.assign(day=runs["date"].map(lambda date: str(date)[:10] if date else "not dated"),
                       code=made_with(runs),
                       version=runs["version"].fillna("").astype(str))
    rows = []
    for (day, version, code), group in days.groupby(["day", "version", "code"], sort=True):
        names = sorted(group["method"].unique())
        told = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        rows.append((day, version, code, len(group), ", ".join(sorted(group["dataset"].unique())), told))
    frame = pd.DataFrame(rows[::-1], columns=["day", "version", "code", "runs", "datasets", "methods"])
    columns = (Column("day", "Day"), Column("version", "Version"), Column("code", "Commit"),
               Column("runs", "Runs", "number", digits=0), Column("datasets", "Datasets"), Column("methods", "Methods"))
    return Table("changelog", "Runs by day and code", columns, frame)


def spearman(a: pd.Series, b: pd.Series) -> float:
    """Spearman's rank correlation of two series, of the pairs that are whole; NaN below three or where one is flat."""
    both = pd.concat([a, b], axis=1).astype(float).dropna()
    if len(both) < 3 or both.nunique().min() < 2:
        return float("nan")
    ranks = both.rank()
    return float(np.corrcoef(ranks.iloc[:, 0], ranks.iloc[:, 1])[0, 1])
