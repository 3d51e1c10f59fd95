"""Boards as tables that can be shown: AGS over ladders, accuracy over a union."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from reports.board import Board, key_of
from reports.selection import ROW
from reports.tables.notes import (
    bar_note,
    fewshot_note,
    frozen_of,
    kept_note,
    longer_note,
    overrides_note,
    rising_note,
)
from reports.tables.table import Column, Table
from reports.wording import metric_name


def row_columns(board: pd.DataFrame) -> list[Column]:
    """The method, then whatever else names a row: protocol, backbone, source where they vary."""
    names = {"method": "Method", "protocol": "Protocol", "backbone": "Backbone", "source": "Level"}
    ours = board[board["source"] != "published"]
    # the protocol of what was submitted is not known, and its level says so
    run = ours[ours["source"] != "submitted"] if (ours["source"] != "submitted").any() else ours
    trained = run[~run["baseline"].astype(bool)] if "baseline" in run else run
    shown = {"protocol": trained if len(trained) else run, "source": board}
    varying = {key for key in ROW if shown.get(key, ours)[key].nunique() > 1}
    changed = "overrides" in board and ours["overrides"].nunique() > 1
    spare = {"backbone"} if "network" in board and by_network(board) else set()  # the head of their group says it
    told = "ranking" in board and trained.groupby("ranking")["protocol"].nunique().le(1).all()
    spare |= {"protocol"} if told else set()
    about = "Keys that differ from the protocol's file"
    return [*(Column(key, names[key], spare=key in spare) for key in ROW if key == "method" or key in varying),
            *([Column("overrides", "Differs", "text", about, spare=True)] if changed else [])]


def ags_table(board: Board, metric: str = "recall@1") -> Table:
    """The table of an `aggregate.ags_board`."""
    frame, datasets = board.wide(), board.parts("ags")
    about = "AGS of {} on {}: the area under the score over the normalised distance"
    scores = [Column(key_of("ags", name), name if len(datasets) > 1 else "AGS", "score",
                     about.format(metric_name(metric), name),
                     role="part") for name in datasets]
    if len(datasets) > 1:
        about = "Mean AGS over the datasets; only where all are complete"
        scores.insert(0, Column("mean", "Mean AGS", "score", about, role="mean"))
    shown = [column for score in scores for column in (score, *gain_column(frame, score))]
    extra = [Column(key, head, kind, about, digits, role="whole" if kind in ("gain", "percent") else "", spare=spare)
             for key, head, kind, about, digits, spare in EXTRA
             if key in frame and frame[key].notna().any() and not (key == "gain" and "mean:gain" in frame)]
    method, *rest = row_columns(frame)
    ends = [column for column in extra if column.kind == "percent"]
    columns = (Column("rank", "Rank", "rank"), method, *shown, *ends, *regime_column(frame), *rest,
               *(column for column in extra if column not in ends))
    return Table("ags", f"AGS of {metric_name(metric)}{differing(board)}", columns, frame,
                 bar_note(frame, [column.key for column in scores])
                 + kept_note(frame, [column.key for column in ends]) + rising_note(frame) + longer_note(frame)
                 + fewshot_note(frame) + overrides_note(board), grouped=by_network(frame))


def by_network(frame: pd.DataFrame) -> str:
    """What rows are printed in groups of: their network, where there are several."""
    return "network" if frame["network"].nunique() > 1 else ""


def gain_column(frame: pd.DataFrame, score: Column) -> tuple[Column, ...]:
    """The column beside a score that tells the gain over the frozen baseline, where the board knows it."""
    key = f"{score.key}:gain"
    if key not in frame or not frame[key].notna().any():
        return ()
    about = f"Points by which {score.head} lies above that of {frozen_of(frame[frame[key].notna()])}"
    return (Column(key, "vs frozen", "gain", about, role="whole"),)


def regime_column(frame: pd.DataFrame, always: bool = False) -> tuple[Column, ...]:
    """How rows were trained, where it varies or is asked for."""
    about = ("What was trained: the whole network (full), few parameters of it (parameter-efficient), one network for "
             "each dataset (dataset-specific), or nothing (baseline); what was submitted does not say")
    return (Column("group", "Training", "text", about),) if always or frame["group"].nunique() > 1 else ()


def differing(board: Board) -> str:
    """What the title of a board adds to the name of the protocol."""
    return f", differing from the protocol's file: {board.overrides}" if board.overrides else ""


DISTANCE = "Fréchet distance"
BEST_LAST = "Best − last epoch, points"
"""The selection gap: what is gained by choosing the epoch on the test classes."""
LATE = "Last quarter, points"
LATE_ABOUT = ("Points of Recall@1 gained over the last quarter of training, mean over runs; where they are many, the "
              "method had not ended learning")
_SHARE = "Share of the score on the nearest split that is left on the farthest"
_UNDEFINED = ("Not defined, –, for a method that is below the frozen network of its backbone on the nearest split, or, "
              "where that was not run, scores higher on the farthest: it has failed there, and any share says nothing")
KEPT = f"{_SHARE}. {_UNDEFINED}"
EXTRA = (
    ("nearest", "Nearest", "percent", "Score on the split whose test classes are nearest to the training classes", 1,
     False),
    ("farthest", "Farthest", "percent", "Score on the split whose test classes are farthest from them", 1, False),
    ("kept", "Kept, %", "percent", f"{_SHARE}; the line is the way there. {_UNDEFINED}", 0, False),
    ("gain", "vs frozen", "gain", "Points by which AGS lies above that of the frozen network, mean over datasets", 1,
     False),
    ("gap", BEST_LAST, "gain", "Points by which AGS at the epoch that is best on the test classes, which papers "
     "print, lies above that at the last epoch", 1, True),
    ("gap:validation", "Validation − last epoch, points", "gain", "Points by which AGS at the epoch that is best on "
     "held-out training classes lies above that at the last epoch", 1, True),
    ("late", LATE, "gain", LATE_ABOUT, 1, True),
    ("fewshot", "Few-shot", "gain", "Gain of few-shot adaptation, mean over the splits that all adapted rows have with "
     "the same settings, at the fewest shots of these", 1, False),
    ("parameters", "Trained parameters", "number", "Parameters that training changes", -1, False),
    ("seconds", "Time", "time", "Time of the device, all runs of the row; those that shared it took their part", 0,
     True),
    ("energy_wh", "Energy, Wh", "number", "Watt hours that the GPU took, without the rest of the machine, all runs of "
     "the row; those that shared it took their part", 1, True),
)


def union_table(board: Board, metric: str = "recall@1") -> Table:
    """The table of an `aggregate.union_board`."""
    frame = board.wide()
    parts = [part for part in board.parts("recall") if (frame[f"{key_of('recall', part)}:n"] > 0).any()]
    method, *rest = row_columns(frame)
    columns = [Column("rank", "Rank", "rank"), method]
    score = metric_name(metric)
    means = [Column("harmonic", "Harmonic mean", "score", f"Harmonic mean of {score} over the parts", role="harmonic"),
             Column("unified", "Unified", "score", f"{score} with all parts in one gallery", role="whole"),
             Column("arithmetic", "Arithmetic mean", "score", f"Arithmetic mean of {score} over the parts",
                    role="arithmetic")]
    columns += [replace(column, spare=mean.key == "arithmetic" or (column.kind == "gain" and mean.key != "harmonic"))
                for mean in means for column in (mean, *gain_column(frame, mean))]
    families = {name.partition("-")[0] for name in parts if "-" in name}
    family = f"{families.pop()}-" if len(families) == 1 and all("-" in name for name in parts) else ""
    # glyphs-latin is headed latin among others of glyphs
    columns += [Column(key_of("recall", name), name.removeprefix(family), "score", f"{score} on {name} alone",
                       role="part") for name in parts]
    columns += [Column("weakest", "Weakest", "text", "The part with the lowest score", role="weakest", spare=True),
                *regime_column(frame, always=True),
                Column("parameters", "Trained parameters", "number", "Parameters that training changes", -1), *rest]
    scores = [column.key for column in columns if column.kind == "score"]
    return Table("union", f"{score} on the union{differing(board)}", tuple(columns), frame,
                 bar_note(frame, scores) + rising_note(frame) + overrides_note(board), grouped=by_network(frame))


def without_parts(table: Table) -> Table:
    """A union's table with its aggregates alone, where there is no room for the parts."""
    few = ("rank", *ROW, "overrides", "harmonic", "harmonic:gain", "unified", "unified:gain", "arithmetic", "weakest",
           "group", "parameters")
    return replace(table, columns=tuple(replace(column, spare=column.spare and column.key != "weakest")
                                        for column in table.columns if column.key in few))
