"""Tables of a ladder: every method on every split, the facts of its splits, gains over the frozen network, rankings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from reports import selection
from reports.analysis import baselines
from reports.analysis.results import Results
from reports.analysis.rung_board import apart, rung_board, rungs_of
from reports.board import Board, key_of
from reports.overrides import overrides_text
from reports.selection import ROW, row_keys
from reports.tables.boards import BEST_LAST, DISTANCE, KEPT, LATE, LATE_ABOUT, gain_column, regime_column, row_columns
from reports.tables.notes import RISING, bar_note, frozen_of, kept_note, overrides_note, rising_note
from reports.tables.table import Column, Table
from reports.wording import distance, metric_name

Part = Literal["ladder", "trained", "default"]
"""What a table of a ladder has of it: all splits, those that methods were trained on, or the default one alone."""
FEW = 4
"""Splits that the board of a ladder trained in part shows on the home page; of more both ends and the default one."""
NOTABLE = 0.01
"""Selection gap from which a table shows it: a point, about what seeds differ by."""


def _head(frd: float | None, split: Any) -> str:
    """A rung as the head of a column: its distance, or its number where it has none."""
    return f"split {split}" if frd is None or pd.isna(frd) else distance(frd)


def heat_table(results: Results, dataset: str, metric: str, part: Part = "ladder") -> Table:
    """Method x rung with the AGS of the dataset: one row a method, one column a split, in order of distance.

    Of the splits that methods were `trained` on, where they are more than FEW, both ends and the default one, and what
    is kept of the score at the near end of the ladder where both ends are among them; rows that have no board by AGS.
    """
    board, cells, rungs, ends = _selection(results, dataset, metric, part)
    frame = board.wide()
    frame = frame.assign(ranking=_rankings(frame), dataset=dataset)
    alone = frame["baseline"].astype(bool).groupby(frame["ranking"]).transform("all")  # networks nothing is trained on
    frame = frame.loc[alone.sort_values(kind="stable").index].reset_index(drop=True)
    method, *rest = row_columns(frame)
    # of rows ranked together; beside a whole ladder there is no room for it
    lengths = [column for column in rest if column.key == "protocol" and not column.spare and part == "trained"]
    columns = [Column("rank", "Rank", "rank"), method, *lengths]
    if board.parts("ags"):
        area = Column(key_of("ags", dataset), "AGS", "score",
                      f"Area under {metric_name(metric)} over the normalised distance")
        columns += [area, *gain_column(frame, area)]
    columns += _rung_columns(frame, cells, rungs, ends, metric, part)
    if "gap" in frame and frame["gap"].max() >= NOTABLE:
        frame = frame.assign(gap=frame["gap"].mask(frame["baseline"].astype(bool)))  # a frozen network has no epochs
        columns.append(Column("gap", BEST_LAST, "gain", f"Points by which {metric_name(metric)} at the epoch that is "
                              "best on the test classes, which papers print, lies above that at the last; mean over "
                              "the runs"))
    if frame["late"].max() >= RISING:
        columns.append(Column("late", LATE, "gain", LATE_ABOUT, spare=True))
    ranked_by = _ranked_by(frame, rungs) if len(rungs) > 1 else ""
    if part != "ladder":
        frame = frame[frame[[f"rung:{split}" for split in rungs["split"]]].notna().any(axis=1)]
    columns += [*regime_column(frame), *(column for column in rest if column not in lengths)]
    length = len(results.ladders[dataset] or ())
    where = (f"{len(rungs)} of the {length} splits" if part != "ladder" and 1 < len(rungs) < length else
             "each split" if len(rungs) > 1 else f"the {' '.join(rungs['kind'])} split")
    caption = f"{metric_name(metric)} of each method on {where} of {dataset}"
    return Table(f"{dataset}-{metric}", caption, tuple(columns), frame, _note(board, frame, rungs, columns, ranked_by),
                 grouped="ranking" if frame["ranking"].nunique() > 1 else "")


def _selection(results: Results, dataset: str, metric: str,
               part: Part) -> tuple[Board, pd.DataFrame, pd.DataFrame, dict[int, str]]:
    """(The board, its cells, the rungs of its columns, what the ends of the ladder are called where they are told)."""
    board = rung_board(results, dataset, metric, part == "default")
    cells = results.cells(dataset, metric)
    if part == "trained":
        board = apart(board)
        rows, runs = set(board.keys), results.runs[results.runs["dataset"] == dataset]
        cells, runs = (frame[[key in rows for key in row_keys(frame)]] for frame in (cells, runs))
        board = replace(board, overrides=overrides_text(runs["overrides"], most=3))
    cells = selection.on_default(cells) if part == "default" else cells
    methods = cells[~cells["baseline"]]
    if part == "ladder":
        return board, cells, rungs_of(cells), {}
    rungs = rungs_of(methods if len(methods) else cells)
    ladder = [split for split, _ in sorted(results.ladders[dataset] or (), key=lambda rung: rung[1])]
    ends = dict(zip((ladder[0], ladder[-1]), ("nearest", "farthest"))) if len(rungs) > 1 and len(ladder) > 1 else {}
    if len(rungs) > FEW and ends.keys() <= set(rungs["split"]):
        rungs = rungs[rungs["split"].isin(ends) | rungs["kind"].isin(selection.DEFAULT_KINDS)]
    return board, cells, rungs, ends


def _rung_columns(frame: pd.DataFrame, cells: pd.DataFrame, rungs: pd.DataFrame, ends: dict[int, str], metric: str,
                  part: Part) -> list[Column]:
    """A score for each rung, beside it the gain over the frozen network where only some are shown; what is kept."""
    trained_on = set(cells.loc[~cells["baseline"], "split"])
    has_frozen = frame.loc[~frame["baseline"].astype(bool), "backbone"].isin(
        frame.loc[frame["base_method"] == "frozen", "backbone"]).any()
    columns: list[Column] = []
    for split, frd, kind in zip(rungs["split"], rungs["frd"], rungs["kind"]):
        mark = " (default)" if kind == "default" else ""
        named = ends.get(split) or ("default" if part != "ladder" and kind == "default" else "")
        head = f"{named.capitalize()}, {_head(frd, split)}" if named else _head(frd, split)
        # what no method has waits to be asked for
        score = Column(f"rung:{split}", head if len(rungs) > 1 else metric_name(metric), "score",
                       f"Split {split}{mark}, {metric_name(metric)}", heat=True,
                       spare=bool(trained_on) and split not in trained_on)
        columns += [score, *(gain_column(frame, score) if part != "ladder" and has_frozen else ())]
    if ends and ends.keys() <= set(rungs["split"]):
        columns.append(Column("kept", "Kept, %", "percent", KEPT, 0))
    return columns


def _note(board: Board, frame: pd.DataFrame, rungs: pd.DataFrame, columns: list[Column], ranked_by: str) -> str:
    """What stands below the table: what heads its columns, by what rows are ranked, what bars and marks mean."""
    keys = [column.key for column in columns]
    note = ("Columns are headed by the Fréchet distance of their split. "
            if len(rungs) > 1 and rungs["frd"].notna().any() else "")
    note += ranked_by + ("Scores are of the last epoch. " if "gap" in keys else "")
    note += "Ranks and bold are within a protocol. " if _protocols(frame) > 1 else ""
    note += bar_note(frame, [column.key for column in columns if column.kind == "score"])
    return note + kept_note(frame, keys) + rising_note(frame) + overrides_note(board)


def _protocols(frame: pd.DataFrame) -> int:
    """Of how many protocols a board has trained rows, which are ranked apart."""
    return int(frame.loc[~frame["baseline"].astype(bool), "board"].nunique())


def _rankings(frame: pd.DataFrame) -> pd.Series:
    """What heads the rows that are ranked together: their network, and their protocol where there are several."""
    named = frame["network"] + ", protocol " + frame["board"]
    alone = frame["baseline"].astype(bool).groupby(named).transform("all")
    return frame["network"] if _protocols(frame) < 2 else named.mask(alone, frame["network"])


def _ranked_by(frame: pd.DataFrame, rungs: pd.DataFrame) -> str:
    """By what rows are ranked where that is not the AGS of all."""
    splits = frame.loc[frame["rank"].notna(), "ranked_by"].drop_duplicates().tolist()
    heads = {str(split): _head(frd, split) for split, frd in zip(rungs["split"], rungs["frd"])}
    default = set(selection.on_default(rungs)["split"].astype(str))
    said = [f"the {'default ' if split in default and len(default) == 1 else ''}split at {heads.get(split, split)}"
            for split in splits if split]
    if not said:
        return ""
    if "" in splits:
        return f"Protocols without a whole ladder are ranked by the score on {', '.join(said)}. "
    return f"No method has the whole ladder yet: ranked by the score on {said[0]}" + (
        f", protocols that were not run on it by that on {', '.join(said[1:])}. " if said[1:] else ". ")


def split_table(results: Results, dataset: str) -> Table:
    """The facts of the splits of a dataset, as its records carry them."""
    runs = results.runs[results.runs["dataset"] == dataset]
    known = rungs_of(runs).reset_index(drop=True)
    known = known.assign(hash=known["split_hash"].map(lambda text: str(text)[:12] if text else ""),
                         # a released file tells no iterations, and 0 is that of the default split
                         iteration=known["iteration"].mask(known["kind"].eq("imported")),
                         kind=known["kind"].replace(selection.KINDS))
    columns = (Column("split", "Split"), Column("kind", "Kind", "text", selection.ABOUT_KINDS),
               Column("iteration", "Iteration", "number", "Of swapping or removing classes or, where test classes are "
                      "fixed, the choice of training classes; of imported splits it is not known", 0),
               Column("frd", DISTANCE, "number", "Between the training and the test images", 2),
               Column("frd_equal_n", "Fréchet distance at equal n", "number",
                      "The same with as many images a side on every split; fewer images raise the estimate", 2),
               Column("frd_class_means_released", "Fréchet distance of class means", "number",
                      "Over the means of classes, as the released script of the ooDML paper computes it", 2),
               Column("train_classes", "Training classes", "number", digits=0),
               Column("test_classes", "Test classes", "number", digits=0),
               Column("train_images", "Training images", "number", digits=0),
               Column("test_images", "Test images", "number", digits=0), Column("hash", "Hash"))
    shown = tuple(c for c in columns if known[c.key].notna().any())
    return Table(f"{dataset}-splits", f"The splits of {dataset}", shown, known[[c.key for c in shown]])


def gain_table(results: Results, dataset: str, metric: str) -> Table | None:
    """What each method gains over the frozen backbone on each rung, and where it falls below; None without that."""
    whole = results.cells(dataset, metric)
    cells = baselines.gain_over_frozen(whole)
    cells = cells[~cells["baseline"] & cells["gain"].notna()]
    if cells.empty:
        return None
    board = cells.pivot_table(index=ROW, columns="split", values="gain")
    board = board.loc[board.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    board = board.rename(columns=lambda split: f"rung:{split}").reset_index()
    below = baselines.falls_below(whole).set_index(ROW)["below"]
    board["below"] = below.reindex(pd.MultiIndex.from_frame(board[ROW])).to_numpy(dtype=float)
    rungs = rungs_of(cells)
    columns = [*row_columns(board), *(Column(f"rung:{split}", _head(frd, split), "gain", f"Split {split}", heat=True)
                                      for split, frd in zip(rungs["split"], rungs["frd"])),
               Column("below", "First below frozen at", "number", "Fréchet distance at which the row falls below the "
                      "frozen network, straight lines between splits", 1)]
    caption = f"Points of {metric_name(metric)} above {frozen_of(cells)}, on the same split"
    return Table(f"{dataset}-gain", caption, tuple(columns), board)


def tau_table(flips: pd.DataFrame, rungs: pd.DataFrame, dataset: str) -> Table:
    """Kendall's tau between every two rungs as a square table."""
    heads = dict(zip(rungs["split"], (_head(frd, split) for split, frd in zip(rungs["split"], rungs["frd"]))))
    known = {(a, b): tau for a, b, tau in flips[["first", "second", "tau"]].itertuples(index=False, name=None)}
    rows = [{"rung": heads[a]} | {f"rung:{b}": 1.0 if a == b else known.get((a, b), known.get((b, a))) for b in heads}
            for a in heads]
    columns = (Column("rung", DISTANCE),
               *(Column(f"rung:{b}", head, "number", digits=2) for b, head in heads.items()))
    return Table(f"{dataset}-tau", f"Kendall's τ between the rankings on the splits of {dataset}", columns,
                 pd.DataFrame(rows), "1: the same ranking, 0: unrelated, −1: reversed.")
