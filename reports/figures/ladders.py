"""The figures of ladders and unions: score, gain and rank along the ladder, parts of a union."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from reports.aggregate import without_gaps
from reports.board import key_of
from reports.figures.drawing import Style
from reports.figures.lines import Axes, Line, chart
from reports.figures.ticks import ticks_within
from reports.selection import ROW, in_words
from reports.wording import distance, metric_name

DISTANCE_AXIS = "Fréchet distance between training and test images"
KINDS = {"score": "{}, percent", "difference": "{}, points above the mean over methods",
         "gain": "{}, points above the frozen backbone"}
"""What a curve shows of a score, and how its axis is called."""


def ladder_curve(cells: pd.DataFrame, look: dict[str, Style], name: str, title: str, metric: str,
                 kind: str = "score") -> str:
    """Score over Fréchet distance at true scale, a line for each `label` in the cells of `aggregate.rung_scores`.

    `difference` takes off the mean over methods, on the splits that they have in common; `gain` shows the column of
    that name, see `baselines.gain_over_frozen`. The band is one standard deviation over seeds. The default split is
    marked; baselines are dashed and grey, and are left out but where scores are shown. Rows that have one split of
    several are points in one place, and left out where others are lines. Over splits that a row lacks its line is thin.
    """
    cells = cells[~single(cells)]
    if kind != "score":
        cells = cells[~cells["baseline"]]
    if kind == "difference":
        cells = without_gaps(cells)
        cells = cells.assign(score=cells["score"] - cells.groupby("split")["score"].transform("mean"))
    if kind == "gain":
        cells = cells.assign(score=cells["gain"])[cells["gain"].notna()]
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])
    near, far = rungs["frd"].min(), rungs["frd"].max()
    lines = curve_lines(cells if kind == "score" else cells.assign(std=np.nan), look,
                        ((cells["frd"] - near) / (far - near)).fillna(0.0))
    rungs = rungs.assign(share=((rungs["frd"] - near) / (far - near)).fillna(0.0))
    ticks = list(zip(rungs["share"], map(distance, rungs["frd"])))
    marks = [(place, "default split") for place in rungs.loc[rungs["kind"] == "default", "share"]]
    ends = "; ".join(f"{line.label} ends at {line.ys[-1]:.1f}" for line in lines)
    axes = Axes(KINDS[kind].format(metric_name(metric)), DISTANCE_AXIS, ticks, marks, zero=kind != "score")
    about = f"{metric_name(metric)} over the distance of {len(rungs)} splits: {ends}."
    return chart(lines, axes, name, title, about)


def curve_lines(cells: pd.DataFrame, look: dict[str, Style], along: pd.Series) -> list[Line]:
    """A line for each `label` in the cells, in percent, and where each cell lies along it."""
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])["split"]
    order = {split: i for i, split in enumerate(rungs)}
    lines = []
    for label, curve in cells.assign(along=along).groupby("label", sort=False):
        halves = (100 * curve["std"].fillna(0)).tolist()
        line = _line(curve, str(label), look, curve["along"].tolist(), (100 * curve["score"]).tolist(), halves)
        places = [order[split] for split in curve["split"]]
        lines.append(replace(line, after_gap=[i for i in range(1, len(places)) if places[i] > places[i - 1] + 1]))
    return _named(lines, cells)


def single(cells: pd.DataFrame) -> pd.Series:
    """Which cells are of rows that have one split, where methods have several."""
    splits: dict[str, set[int]] = {}
    for label, split in zip(cells["label"], cells["split"]):
        splits.setdefault(label, set()).add(split)
    counts = pd.Series([len(splits[label]) for label in cells["label"]], cells.index, dtype=int)
    return (counts == 1) & bool((counts[~cells["baseline"]] > 1).any())


def fixed_test_curve(cells: pd.DataFrame, control: pd.DataFrame, look: dict[str, Style], name: str, title: str,
                     metric: str) -> str:
    """Two lines a row over one axis of distance: along the ladder, and with its hardest test classes on every split.

    The second, dashed, falls by shift alone. Rows that have both are shown; a frozen network is level on the second.
    """
    both = [label for label in cells["label"].unique() if label in set(control["label"])]
    near, far = (getattr(pd.concat([cells["frd"], control["frd"]]), end)() for end in ("min", "max"))
    lines = []
    # the first are drawn last: the names of dashed lines, which end within the figure, lie above the others
    for rows, ending, dash in ((control, ", fixed test", "5 3"), (cells, "", "")):
        for label in both:
            curve = rows[rows["label"] == label].sort_values("frd")
            line = _line(curve, label, look, ((curve["frd"] - near) / (far - near)).tolist(),
                         (100 * curve["score"]).tolist(), (100 * curve["std"].fillna(0)).tolist())
            lines.append(replace(line, name=f"{curve['method'].iloc[0]}{ending}", style=replace(line.style, dash=dash)))
    ticks = [((tick - near) / (far - near), distance(tick)) for tick in ticks_within(near, far, 8)]
    falls = "; ".join(f"{line.name} from {line.ys[0]:.1f} to {line.ys[-1]:.1f}" for line in lines)
    return chart(lines, Axes(KINDS["score"].format(metric_name(metric)), DISTANCE_AXIS, ticks), name, title,
                 f"{metric_name(metric)} from the nearest to the farthest split: {falls}.")


def _line(rows: pd.DataFrame, label: str, look: dict[str, Style], xs: list[float], ys: list[float],
          halves: Sequence[float] = ()) -> Line:
    family = str(rows["family"].iloc[0]) if "family" in rows else ""
    return Line(label, label, look[label], xs, ys, halves, "baseline" if look[label].number < 0 else family)


def _named(lines: list[Line], rows: pd.DataFrame) -> list[Line]:
    """Lines called by their method, and by what else tells it apart where a method has several; the rest is solid."""
    if "method" not in rows:
        return lines
    others = [key for key in ROW if key in rows and key != "method"]
    known: dict[str, tuple[str, list[Any]]] = {}
    for label, method, *told in zip(*(rows[key].tolist() for key in ("label", "method", *others))):
        known.setdefault(label, (method, told))
    values: dict[str, list[set[Any]]] = {}
    for method, told in known.values():
        for one, seen in zip(told, values.setdefault(method, [set() for _ in others])):
            seen.add(one)
    names = {label: " · ".join([method, *(in_words(str(one)) for one, seen in zip(told, values[method])
                                             if len(seen) > 1)])
             for label, (method, told) in known.items()}
    counts, rows_of = Counter(names.values()), Counter(known[line.label][0] for line in lines)
    made = []
    for line in lines:
        alone = rows_of[known[line.label][0]] == 1 and line.style.number >= 0
        made.append(replace(line, name=names[line.label] if counts[names[line.label]] == 1 else line.name,
                            style=replace(line.style, dash="") if alone else line.style))
    return made


def rank_flips(cells: pd.DataFrame, look: dict[str, Style], name: str, title: str) -> str:
    """The rank of each method on each rung, rungs in order of distance: lines that cross are rankings that flip.

    Takes the cells of `aggregate.without_gaps`.
    """
    wide = cells.pivot_table(index="label", columns="split", values="score", sort=False)
    rungs = cells.drop_duplicates("split").sort_values(["frd", "split"])
    ranks = wide[rungs["split"].tolist()].rank(ascending=False, method="min")
    places = np.linspace(0, 1, len(rungs)).tolist()
    lines = [_line(cells[cells["label"] == label], str(label), look, places, row.tolist()) for label, row in
             ranks.iterrows()]
    axes = Axes("rank on each split", "Fréchet distance, in order and not to scale",
                list(zip(places, map(distance, rungs["frd"]))), height=min(560, max(240, 90 + 20 * len(ranks))),
                downwards=True)
    listed = "; ".join(f"{label}: {', '.join(str(int(rank)) for rank in row)}" for label, row in ranks.iterrows())
    return chart(_named(lines, cells), axes, name, title, f"Ranks from the nearest to the farthest split. {listed}.")


def size_bias(board: pd.DataFrame, sizes: dict[str, int], look: dict[str, Style], name: str, title: str,
              metric: str) -> str:
    """Score on each part of a union, less the mean over methods, in the order of their training images.

    A line that rises to the right is a method that favours large datasets more than the others do.
    """
    parts = sorted(sizes, key=lambda part: (sizes[part], part))
    keys = [key_of("recall", part) for part in parts]
    rows = board[~board["baseline"].astype(bool) & board[keys].notna().all(axis=1)]
    mean = rows[keys].mean().to_numpy(float)
    places = np.linspace(0, 1, len(parts)).tolist()  # at true scale parts of one size would stand in one place
    lines = [_line(rows[rows["label"] == label], label, look, places, (100 * (scores - mean)).tolist())
             for label, scores in zip(rows["label"], rows[keys].to_numpy(float))]
    axes = Axes(f"{metric_name(metric)}, points above the mean over methods",
                "parts by their number of training images, in order and not to scale",
                [(place, f"{part} {sizes[part]:,}") for place, part in zip(places, parts)], slanted=True, zero=True)
    about = f"{metric_name(metric)} of {len(lines)} methods on {', '.join(parts)}, by training size."
    return chart(_named(lines, rows), axes, name, title, about)


def union_parts(board: pd.DataFrame, parts: Sequence[str], look: dict[str, Style], name: str, title: str,
                metric: str) -> str:
    """The score on each part of a union, easiest first, then unified and the harmonic mean: a line for each row."""
    mean = {part: board[key_of("recall", part)].mean() for part in parts}
    names = [*sorted(parts, key=lambda part: (-mean[part], part)), "unified", "harmonic"]
    keys = [key_of("recall", part) for part in names[:-2]] + names[-2:]
    rows = board[board[keys].notna().all(axis=1)]
    places = np.linspace(0, 1, len(names)).tolist()
    lines = [_line(rows[rows["label"] == label], label, look, places, (100 * scores).tolist())
             for label, scores in zip(rows["label"], rows[keys].to_numpy(float))]
    said = metric_name(metric)
    axes = Axes(f"{said}, percent", "part of the union, easiest first; all in one gallery; harmonic mean",
                list(zip(places, names)), slanted=True)
    return chart(_named(lines, rows), axes, name, title, f"{said} of {len(lines)} methods on {', '.join(names)}.")
