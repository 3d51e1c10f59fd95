"""The board of one dataset: every method on every split of its ladder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from reports import aggregate, selection
from reports.analysis import baselines, board_columns, significance
from reports.analysis.results import Results
from reports.board import SCORE, Board
from reports.overrides import overrides_text


def rungs_of(cells: pd.DataFrame) -> pd.DataFrame:
    """The rungs among some cells in order of distance."""
    return cells.drop_duplicates("split").sort_values(["frd", "split"])


def rung_board(results: Results, dataset: str, metric: str, default: bool = False) -> Board:
    """The board of one dataset: `ags`, and the score on each split as `rung`, ranked within protocol and network.

    Ranked by AGS, or by the score on the default split in a protocol of which no trained row has a whole ladder (by
    the split that most of its rows have, where that was not run: the fact `ranked_by`); with intervals, rank
    ranges and tie groups. The facts `nearest`, `farthest` and `kept` are of the ends of its ladder, see
    `board_columns.with_kept`. With `default` the board of the default split alone.
    """
    return results.once(("rungs", dataset, metric, default), lambda: _rung_board(results, dataset, metric, default))


def beside_ladder(results: Results, dataset: str, metric: str) -> str:
    """What methods were trained on of a ladder that others have whole, which is a board of its own.

    'part': several splits, by a protocol of which no method has the whole, 'default': its default split; '': neither.
    """
    return results.once(("beside", dataset, metric), lambda: _beside_ladder(results, dataset, metric))


def apart(board: Board) -> Board:
    """The rows of a `rung_board` but for those that stand with others on a board by AGS.

    A single row with a whole ladder stays among those that have a part of it.
    """
    ranked = board.rows["ranked_by"].eq("") & board.rows["rank"].notna()
    several = ranked.groupby(board.rows["board"]).transform("sum") > 1
    return board.where(~several)


def _beside_ladder(results: Results, dataset: str, metric: str) -> str:
    board = rung_board(results, dataset, metric)
    default_rung = selection.on_default(rungs_of(results.cells(dataset, metric)))
    if not board.parts("ags") or len(default_rung) != 1:
        return ""
    rungs = pd.DataFrame({split: board.column("rung", split)["score"].notna() for split in board.parts("rung")})
    short = board.column("ags", dataset)["score"].isna() & ~board.rows["baseline"].astype(bool)
    short &= rungs[str(default_rung["split"].iloc[0])]
    apart = short & board.rows["ranked_by"].ne("")
    return "" if not short.any() else "part" if rungs[apart].sum(axis=1).gt(1).any() else "default"


def _rung_board(results: Results, dataset: str, metric: str, default: bool) -> Board:
    cells, runs = results.cells(dataset, metric), results.runs[results.runs["dataset"] == dataset]
    board = aggregate.ags_board(runs, metric)
    if default:
        cells, runs = selection.on_default(cells), selection.on_default(runs)
    by, splits = ("ags", dataset), rungs_of(cells)["split"].tolist()
    default_rung = ("rung", str(selection.on_default(rungs_of(cells))["split"].iloc[0])) if splits else by
    if default or not _trained(board, by):
        facts = aggregate.facts_of_rows(runs)
        rows = [facts[key] | {"covered": 1, "cells": 1} for key in
                dict.fromkeys(selection.row_keys(cells))]
        board, by = Board.of(rows, [], overrides_text(runs["overrides"], most=3)), default_rung
    numbers = {key: number for number, key in zip(board.rows.index, board.keys)}
    scores = cells.assign(row=[numbers[key] for key in selection.row_keys(cells)],
                          statistic="rung", part=cells["split"].astype(str), coverage=None)[SCORE]
    own = board.scores[board.scores["statistic"] == "ags"]
    board = replace(board, scores=pd.concat([own, scores], ignore_index=True) if len(own) else scores)
    if default:  # there a row is ranked among those of its own length, whatever its study does
        board = board.assign(ranked_with=board.rows["protocol"].map(selection.ranked_as))
    boards = aggregate.boards_of(board.rows)
    board = board.assign(board=[boards[key] for key in board.keys])
    board = board_columns.with_late_gain(board_columns.with_gap(baselines.with_gains(board), runs, metric), runs)
    ladder = results.ladders[dataset] or ()
    if len(ladder) > 1 and not default:
        near, far = board_columns.at_ends(runs[~selection.is_union(runs)], ladder, metric)
        board = board_columns.with_kept(board, board.aligned(near.mean()), board.aligned(far.mean()))
        board = board.assign(**{"rungs:n": _beyond(board, dataset, splits)})
    resamples = results.resamples(metric)
    # what is told of one split has the classes of that split, AGS the fewest of any
    classes = {("rung", str(split)): resamples.classes.get((dataset, split), 2) for split in splits}
    classes["ags", dataset] = min(classes.values(), default=2)
    parts = []
    trained = board.rows.loc[~board.rows["baseline"].astype(bool), "board"].value_counts()
    named = {name: board.where(board.rows["board"] == name) for name in board.rows["board"].unique()}
    # whole ladders come first
    for _, part in sorted(named.items(), key=lambda one: (not _trained(one[1], by), -trained.get(one[0], 0), one[0])):
        others = [default_rung, *(("rung", str(split)) for split in splits)]
        own_by = by if _trained(part, by) else max(others, key=lambda one: _trained(part, one))
        split_of = own_by[1] if own_by[0] == "rung" else ""
        part = part.assign(ranked_by=split_of).ranked(own_by, ("board",), level=results.level)
        drawn = {("rung", str(split)): resamples.scores(dataset, split, part.keys) for split in splits}
        if len(own):
            drawn[by] = resamples.ags(dataset, results.ladders[dataset], part.keys)
        over_seeds = significance.board_seeds(part, results.seed_scores(metric), results.ladders)
        parts.append(significance.with_ties(part, own_by, drawn, classes, over_seeds))
    return replace(board, rows=pd.concat([part.rows for part in parts]),
                   scores=pd.concat([part.scores for part in parts], ignore_index=True)) if parts else board


def _beyond(board: Board, dataset: str, splits: list[int]) -> np.ndarray:
    """The most seeds of any split of the rows that have an AGS of fewer; NaN of the others."""
    whole = board.column("ags", dataset)["n"].to_numpy(float)
    most = np.fmax.reduce([board.column("rung", str(split))["n"].to_numpy(float) for split in splits])
    return np.where((whole > 0) & (most > whole), most, np.nan)


def _trained(board: Board, by: tuple[str, str]) -> int:
    """How many rows that are no baselines have this score."""
    return int(board.column(*by)["score"][~board.rows["baseline"].astype(bool)].notna().sum())
