"""What the pages show beside the boards: the cells of a ladder, the facts of its splits, the runs of a method."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pandas as pd

from reports.aggregate import ROW, ags_board, gain_over_floor, rung_scores
from reports.records import FACTS, metrics
from reports.tables import Column, Table, bar_note, row_columns

METRICS = ("recall@1", "map@1000", "map@r")
OBJECTS = ("ladder", "papers", "tags", "cite", "summary", "settings", "protocol_settings", "curve", "chosen_epochs",
           "path")


def known_metrics(frame: pd.DataFrame) -> list[str]:
    """The metrics that boards are made for: those of METRICS that were measured, else whatever was."""
    there = metrics(frame)
    return [metric for metric in METRICS if metric in there and frame[metric].notna().any()] or there[:1]


def _metric_order(metric: str) -> tuple[bool, bool, str, int]:
    """Recall first, by k as a number; the measures that imitate released code last."""
    name, _, k = metric.partition("@")
    return metric.endswith("_released"), name != "recall", name, int(k) if k.isdigit() else 0


def heat_table(frame: pd.DataFrame, dataset: str, metric: str) -> Table:
    """Method x rung with the AGS of the dataset: one row a method, one column a split, in order of distance."""
    cells = rung_scores(frame, dataset, metric)
    board = ags_board(frame[frame["dataset"] == dataset], metric)
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])
    if board.empty:
        board = cells[[*ROW, "family", "floor"]].drop_duplicates().reset_index(drop=True)
        board = board.assign(rank=float("nan"))
    for split in rungs["split"]:
        here = cells[cells["split"] == split].set_index(ROW)
        keys = pd.MultiIndex.from_frame(board[ROW])
        for key, column in ((f"rung{split}", "score"), (f"rung{split}:std", "std"), (f"rung{split}:n", "n")):
            board[key] = here[column].reindex(keys).to_numpy(dtype=float)
    method, *rest = row_columns(board)
    columns = [Column("rank", "Rank", "rank"), method]
    if dataset in board:
        columns.append(Column(dataset, "AGS", "score", f"Area under {metric} over the normalised distance"))
    for split, frd, kind in zip(rungs["split"], rungs["frd"], rungs["kind"]):
        mark = " (default)" if kind == "default" else ""
        head = f"{frd:.0f}" if pd.notna(frd) and frd >= 100 else f"{frd:.1f}" if pd.notna(frd) else f"split {split}"
        columns.append(Column(f"rung{split}", head, "score", f"Split {split}{mark}, {metric}", heat=True))
    columns += rest
    note = "Columns are headed by the Fréchet distance of their split. "
    note += bar_note(board, [column.key for column in columns if column.kind == "score"])
    caption = f"{metric} of each method on each split of {dataset}"
    return Table(f"{dataset}-{metric}", caption, tuple(columns), board, note)


def split_table(frame: pd.DataFrame, dataset: str) -> Table:
    """The facts of the splits of a dataset, as its records carry them."""
    runs = frame[frame["dataset"] == dataset]
    known = runs.drop_duplicates("split").sort_values(["frd", "split"]).reset_index(drop=True)
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


def gain_table(frame: pd.DataFrame, dataset: str, metric: str) -> Table | None:
    """What each method gains over the frozen backbone on each rung; None where no frozen run is there."""
    cells = gain_over_floor(rung_scores(frame, dataset, metric))
    cells = cells[~cells["floor"] & cells["gain"].notna()]
    if cells.empty:
        return None
    board = cells.pivot_table(index=ROW, columns="split", values="gain")
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])
    board = board.loc[board.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    board = board.rename(columns=lambda split: f"rung{split}").reset_index()
    below = cells[cells["gain"] < 0].groupby(ROW)["frd"].min()
    board["below"] = below.reindex(pd.MultiIndex.from_frame(board[ROW])).to_numpy(dtype=float)
    columns = [*row_columns(board), *(Column(f"rung{split}", f"{frd:.0f}" if frd >= 100 else f"{frd:.1f}", "gain",
                                             f"Split {split}", heat=True)
                                      for split, frd in zip(rungs["split"], rungs["frd"]))]
    if board["below"].notna().any():
        columns.append(Column("below", "Below from", "number", "First distance at which the row is below the floor", 1))
    return Table(f"{dataset}-gain", f"Gain over the frozen backbone, points of {metric}", tuple(columns), board)


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
    """The numbers behind `figures.training_curves`: run, epoch, loss and score."""
    keys = ("epoch", "loss", metric)
    rows = [(label, *(point.get(key) for key in keys)) for label, curve in curves for point in curve]
    frame = pd.DataFrame(rows, columns=["run", *keys])
    columns = (Column("run", "Dataset and split"), Column("epoch", "Epoch", "number", digits=0),
               Column("loss", "Loss", "number", digits=4), Column(metric, metric, "score"))
    return Table(name, caption, columns, frame, marked=False)


def paper_says(runs: pd.DataFrame, method: str, metrics_: list[str]) -> Table | None:
    """The AGS that the ooDML paper prints for a method beside ours; None where the two have no dataset in common."""
    with resources.files("reports").joinpath("published/oodml_ags.csv").open(encoding="utf-8") as file:
        said = pd.read_csv(file)
    rows = []
    for row in said[(said["method"] == method) & said["metric"].isin(metrics_)].to_dict("records"):
        here = runs[runs["dataset"] == row["dataset"]]
        board = ags_board(here, row["metric"]) if len(here) else here
        for ours in board.to_dict("records"):
            value = ours[row["dataset"]]
            rows.append({"dataset": row["dataset"], "metric": row["metric"], "paper": row["ags"] / 100,
                         "paper:std": row["std"] / 100, "ours": value, "ours:std": ours[f"{row['dataset']}:std"],
                         "ours:coverage": ours[f"{row['dataset']}:coverage"], "difference": value - row["ags"] / 100})
    columns = (Column("dataset", "Dataset"), Column("metric", "Metric"), Column("paper", "Paper says", "score"),
               Column("ours", "We got", "score"), Column("difference", "Difference", "gain"))
    caption = f"AGS of {method}: what the ooDML paper prints and what was measured here"
    return Table(f"{method}-paper", caption, columns, pd.DataFrame(rows), marked=False) if rows else None


def settings_table(settings: dict[str, Any], name: str, caption: str) -> Table:
    """Names and values of settings."""
    rows = pd.DataFrame([(key, str(value)) for key, value in sorted(settings.items())], columns=["key", "value"])
    return Table(name, caption, (Column("key", "Setting"), Column("value", "Value")), rows)
