"""The curve of a ladder for a paper, drawn by LaTeX: its fonts and its width, every number readable in the source."""

from __future__ import annotations

import pandas as pd

from reports.figures.drawing import styles
from reports.figures.ladders import curve_lines, single
from reports.figures.lines import Line
from reports.safe_text import one_line
from reports.tables.formats import tex
from reports.wording import counted, metric_name

MARKS = {"o": "*", "s": "square*", "^": "triangle*", "D": "diamond*", "v": "triangle*, mark options={rotate=180}",
         "P": "+", "X": "x", "*": "star", "": "none"}
"""pgfplots' marks in place of those of `drawing.MARKERS`."""


def ladder_figure(cells: pd.DataFrame, title: str, metric: str) -> str:
    """A `tikzpicture` of score over Fréchet distance, a line for each row; bars are one standard deviation over seeds.

    Rows of one split are left out where others have several, and a line ends where its row lacks splits.
    """
    cells = cells[~single(cells)].sort_values("frd", kind="stable")
    order = cells.groupby(["baseline", "label"])["score"].mean().reset_index().sort_values(
        ["baseline", "score"], ascending=[True, False])
    floor = order.loc[order["baseline"], "label"].tolist()
    if len(floor) > 2:  # grey lines can be told apart where names stand at their ends, but not by a legend
        floor = []
    rows = [label for label in order["label"] if label not in floor]
    methods = {label: label if base else method for label, method, base in zip(
        cells["label"], cells["method"], cells["baseline"])}
    look = styles(rows, floor, methods, [list(dict.fromkeys(methods[label] for label in rows))])
    lines = {line.label: line for line in curve_lines(cells, look, cells["frd"])}
    least, most = int(cells["n"].min()), int(cells["n"].max())
    seeds = counted(most, "seed") if least == most else f"{least} to {most} seeds"
    colours = dict.fromkeys(line.style.colour for line in lines.values())
    return "\n".join([
        r"% needs \usepackage{pgfplots} and \pgfplotsset{compat=1.16}",
        f"% {one_line(title)}; {seeds}, bars: one standard deviation over them",
        r"\begin{tikzpicture}",
        *(rf"\definecolor{{{_name(colour)}}}{{HTML}}{{{colour[1:].upper()}}}" for colour in colours),
        r"\begin{axis}[width=0.7\linewidth, height=0.5\linewidth, legend pos=outer north east, legend cell align=left,",
        r"  legend style={font=\small, draw=none}, unbounded coords=jump,",
        r"  every axis plot/.append style={semithick, mark size=1.6pt, error bars/y dir=both, error bars/y explicit},",
        rf"  xlabel={{Fr\'echet distance}}, ylabel={{{tex(metric_name(metric))}, percent}}]",
        *(_plot(lines[label]) for label in order["label"]),
        r"\end{axis}", r"\end{tikzpicture}", ""])


def _plot(line: Line) -> str:
    """One row: its points with their bars, and what the legend calls it."""
    lengths = line.style.dash.split()
    pattern = " ".join(f"{word} {length}pt" for word, length in zip(("on", "off") * len(lengths), lengths))
    look = f"{_name(line.style.colour)}, mark={MARKS[line.style.marker]}" + (
        f", dash pattern={pattern}" if pattern else "")
    points = []
    for i, (x, y) in enumerate(zip(line.xs, line.ys)):
        half = line.halves[i] if line.halves else 0.0
        points += ["(nan, nan)"] * (i in line.after_gap)
        points.append(f"({x:.6g}, {y:.2f})" + (f" +- (0, {half:.2f})" if half else ""))
    return rf"\addplot[{look}] coordinates {{{' '.join(points)}}};" + "\n" + rf"\addlegendentry{{{tex(line.name)}}}"


def _name(colour: str) -> str:
    """A colour's name in LaTeX, of letters and digits."""
    return f"hue{colour[1:].upper()}"
