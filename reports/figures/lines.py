"""A chart of lines, one SVG group a method: drawn here as it is read without a script, laid out anew by `figures.js`.

A group is called by its row (`data-method`) and carries its points: `data-x`, percent of the width, where they are not
those of the chart, `data-y`, in the unit of the axis, `data-s`, half the band, and `data-after-gap`, which points come
after a gap. Rows beyond the best eight are grey and nameless until pointed at; what the script shows of them then, it
draws by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from reports.figures.drawing import GREY, GRID, HUES, INK, Style, short, spread_out
from reports.figures.ticks import ticks_within
from reports.wording import minus

NAMED = 16
"""Lines that can all be named at their ends; of more, those in colour and the baselines are."""
WIDTH, LEFT, TOP, SIZE, LETTER = 760, 40, 30, 12, 6.6
SHAPES = {"o": "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "s": "m-2.6-2.6h5.2v5.2h-5.2z", "^": "m0-3.4l3.2 5.8h-6.4z",
          "D": "m0-3.5l3.5 3.5-3.5 3.5-3.5-3.5z", "v": "m0 3.4l3.2-5.8h-6.4z",
          "P": "m-1-3h2v2h2v2h-2v2h-2v-2h-2v-2h2z",
          "X": "m-2.6-3.4l2.6 2.4 2.6-2.4.8.8-2.4 2.6 2.4 2.6-.8.8-2.6-2.4-2.6 2.4-.8-.8 2.4-2.6-2.4-2.6z",
          "*": "m0-3.8l1 2.6 2.7.2-2.1 1.7.7 2.7-2.3-1.5-2.3 1.5.7-2.7-2.1-1.7 2.7-.2z"}
"""Marks around a point, as paths that start there."""


@dataclass(frozen=True)
class Line:
    """The points of a row: where they lie across the chart (0 to 1), how high, and half of the band around them.

    Points `after_gap` are joined to the one before by a thin line alone: what lies between was not measured.
    """

    label: str
    name: str
    style: Style
    xs: Sequence[float]
    ys: Sequence[float]
    halves: Sequence[float] = ()
    family: str = ""
    after_gap: Sequence[int] = ()


@dataclass(frozen=True)
class Axes:
    """What stands around the lines: titles, names across, places marked, and which way is up."""

    head: str
    below: str
    ticks: Sequence[tuple[float, str]]
    marks: Sequence[tuple[float, str]] = ()
    height: float = 390
    slanted: bool = False
    downwards: bool = False
    zero: bool = False


def bounds(lines: Sequence[Line], downwards: bool) -> tuple[float, float]:
    """The lowest and the highest value of the axis, with some room; ranks have half a place."""
    ys = [y for line in lines for y in line.ys] or [0.0, 1.0]
    room = 0.5 if downwards else 0.04 * (max(ys) - min(ys)) or 1.0
    return min(ys) - room, max(ys) + room


def in_colour(lines: Sequence[Line]) -> list[bool]:
    """Which lines are drawn in their colour: those of the first methods, as many as there are hues; no baselines."""
    methods = [line.label.partition(" · ")[0] if line.style.number >= 0 else "" for line in lines]
    own = list(dict.fromkeys(filter(None, methods)))[:len(HUES)]
    return [method in own for method in methods]


def chart(lines: Sequence[Line], axes: Axes, name: str, title: str, about: str) -> str:
    """The chart as an SVG element; lines are in order, best first."""
    coloured = in_colour(lines)
    few = len(lines) <= NAMED
    named = [few or hue or line.style.number < 0 for line, hue in zip(lines, coloured)]
    most = max((len(line.name) for line, shown in zip(lines, named) if shown), default=0)
    right = min(0.4 * WIDTH, 26 + LETTER * most)
    deep = 46 if not axes.slanted else 40 + 0.62 * LETTER * max((len(text) for _, text in axes.ticks), default=0)
    height = axes.height + deep - 46
    first = max((len(text) for share, text in axes.ticks if axes.slanted and share < 0.05), default=0)
    left = max(LEFT, 0.74 * LETTER * first - 4)
    wide, tall = WIDTH - left - right, height - TOP - deep
    low, high = bounds(lines, axes.downwards)

    def across(share: float) -> float:
        return left + wide * (0.02 + 0.96 * share)

    def up(y: float) -> float:
        share = (y - low) / (high - low)
        return TOP + tall * (share if axes.downwards else 1 - share)

    parts = [_text(10, 14, axes.head, "head"), _text(left + wide / 2, height - 6, axes.below, "below", "middle"),
             _scale(axes, low, high, up, left, wide), _names(axes, across, TOP + tall)]
    placed: dict[int, float] = {}
    farthest = max((line.xs[-1] for line in lines), default=1.0)
    for share in {line.xs[-1] for line in lines}:  # names of lines that end in one place stand apart
        here = [i for i, line in enumerate(lines) if named[i] and line.xs[-1] == share]
        top = TOP if share == farthest else TOP + 20  # below what a marked place is called
        heights = spread_out([up(lines[i].ys[-1]) for i in here], SIZE + 3, top, TOP + tall)
        placed |= dict(zip(here, heights))
    groups = []
    usual = max(Counter(map(_places, lines)).items(), key=lambda one: one[1], default=("", 0))[0]
    for i, (line, hue, shown) in enumerate(zip(lines, coloured, named)):
        points = [(across(x), up(y)) for x, y in zip(line.xs, line.ys)]
        x, y = points[-1]
        label = left + wide + 14 if line.xs[-1] == farthest else x + 14, placed.get(i, y)
        groups.append((hue, _group(line, points, label, hue, shown, up, usual)))
    parts += [group for hue, group in groups if not hue] + [group for hue, group in groups if hue][::-1]
    flags = "".join(f' data-{flag}="1"' for flag in ("slanted", "downwards", "zero") if getattr(axes, flag))
    return (f'<svg viewBox="0 0 {WIDTH} {height:.0f}" xmlns="http://www.w3.org/2000/svg" version="1.1" class="lines" '
            f'data-height="{height:.0f}" data-deep="{deep:.0f}" data-left="{left:.0f}" data-x="{usual}"{flags} '
            f'fill="{INK}" font-size="{SIZE}" '
            f'font-family="DejaVu Sans, sans-serif" role="img" aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(about)}</desc>'
            f'{"".join(parts)}</svg>\n')


def _scale(axes: Axes, low: float, high: float, up: Callable[[float], float], left: float, wide: float) -> str:
    """The grid of the value axis with its numbers."""
    ticks = ticks_within(low, high)
    ticks = [tick for tick in ticks if not axes.downwards or tick == int(tick)]
    lines = "".join(f'<path d="M{left:.1f} {up(tick):.1f}h{wide:.1f}" stroke="{GRID}"/>'
                    + _text(left - 6, up(tick) + 4, minus(f"{tick:g}"), "", "end") for tick in ticks)
    at = f"M{left:.1f} {up(0):.1f}h{wide:.1f}"
    zero = f'<path class="zero" d="{at}" stroke="{GREY}" stroke-dasharray="3 3"/>' if axes.zero else ""
    return f'<g class="scale">{lines}{zero}</g>'


def _names(axes: Axes, across: Callable[[float], float], floor: float) -> str:
    """What the places across are called, those left out that would run into one another, and the marked places."""
    found = []
    places = [across(share) for share, _ in axes.ticks]
    if axes.slanted:
        order = sorted(range(len(places)), key=lambda i: places[i])
        apart = dict(zip(order, spread_out([places[i] for i in order], 17, places[order[0]] if order else 0, WIDTH)))
        places_shown = [apart[i] for i in range(len(places))]
    else:
        places_shown = places
    last = -math.inf
    for i, ((share, text), true, place) in enumerate(zip(axes.ticks, places, places_shown)):
        crowded = not axes.slanted and i < len(places) - 1 and (place - last < 44 or places[-1] - place < 44) and i > 0
        last = last if crowded else place
        shown = (f'<text transform="translate({place + 4:.1f} {floor + 18:.1f}) rotate(-40)" text-anchor="end" '
                 f'font-size="11">{escape(text)}</text>' if axes.slanted else
                 _text(place, floor + 18, text, "", "middle", hidden=crowded))
        found.append(f'<g class="tick" data-x="{100 * share:.2f}"><path d="M{true:.1f} {floor - 5:.1f}v5L{place:.1f} '
                     f'{floor + 5:.1f}" fill="none" stroke="{INK}"/>{shown}</g>')
    for share, text in axes.marks:
        x = across(share)
        found.append(f'<g class="mark" data-x="{100 * share:.2f}"><path d="M{x:.1f} {TOP}V{floor:.1f}" '
                     f'stroke="{GREY}" stroke-dasharray="1 3"/>{_text(x + 5, TOP + 9, text, size=11)}</g>')
    return f'<g>{"".join(found)}</g>'


def _group(line: Line, points: list[tuple[float, float]], label: tuple[float, float], hue: bool, named: bool,
           up: Callable[[float], float], usual: str) -> str:
    """One row: band, line, marks, and its name with a thin line that ties it to the end."""
    baseline = line.style.number < 0
    rest = not hue and not baseline
    colour = GREY if rest else line.style.colour
    off = ' display="none"'
    band = ""
    if any(line.halves):
        edge = [(x, up(y + half), up(y - half)) for (x, _), y, half in zip(points, line.ys, line.halves)]
        outline = "".join(f"{_outline(edge[start:end])}z" for start, end in _stretches(line))
        drawn = off if rest else f' d="{outline}"'
        band = f'<path class="band"{drawn} fill="{line.style.colour}" fill-opacity="0.13"/>'
    shape = SHAPES.get(line.style.marker, "")
    hidden = rest and len(points) > 1 and not line.after_gap  # a single point has no line to be seen by
    marks = off if hidden else f' d="{"".join(f"M{short(x)} {short(y)}{shape}" for x, y in points)}"'
    marked = f'<path class="marks"{marks} data-shape="{shape}" fill="{colour}"/>' if shape else ""
    dash = f' stroke-dasharray="{line.style.dash}"' if line.style.dash else ""
    faint = ' stroke-opacity="0.45"' if rest else ""
    told = ", ".join(f"{y:.4g}" for y in line.ys)
    tie = f' d="{_path([points[-1], (label[0] - 4, label[1])])}"' if named else off
    places = _places(line)
    across = f' data-x="{places}"' if places != usual else ""
    halves = f' data-s="{" ".join(short(half, 2) for half in line.halves)}"' if any(line.halves) else ""
    gaps = f' data-after-gap="{" ".join(map(str, line.after_gap))}"' if line.after_gap else ""
    measured = "".join(_path(points[start:end]) for start, end in _stretches(line))
    between = "".join(_path(points[i - 1:i + 1]) for i in line.after_gap)
    thin = (f'<path class="gap" d="{between}" fill="none" stroke="{colour}" stroke-width="0.7" stroke-opacity="0.4"/>'
            if between else "")
    return (f'<g class="line{" rest" if rest else ""}{" baseline" if baseline else ""}{"" if named else " unnamed"}" '
            f'data-method="{escape(line.label)}" data-family="{escape(line.family)}"{across} '
            f'data-y="{" ".join(short(value, 2) for value in line.ys)}"{halves}{gaps} style="--c:{line.style.colour}">'
            f"<title>{escape(line.label)}: {told}</title>{band}{thin}"
            f'<path class="stroke" d="{measured}" fill="none" stroke="{colour}" '
            f'stroke-width="{1 if rest else 1.8}"{dash}{faint}/>{marked}'
            f'<path class="tie"{tie} fill="none" stroke="{colour}" stroke-opacity="0.6"/>'
            + _text(label[0], label[1] + 4, line.name, "name", hidden=not named) + "</g>")


def _places(line: Line) -> str:
    return " ".join(short(100 * share, 2) for share in line.xs)


def _stretches(line: Line) -> list[tuple[int, int]]:
    """From where to where the points of a line have no gap between them."""
    return list(pairwise([0, *line.after_gap, len(line.ys)]))


def _outline(edge: Sequence[tuple[float, float, float]]) -> str:
    """Around a band, from its upper and lower edges; of a single point it is a narrow bar."""
    if len(edge) == 1:
        (x, top, low), = edge
        edge = [(x - 2, top, low), (x + 2, top, low)]
    return _path([(x, top) for x, top, _ in edge] + [(x, low) for x, _, low in edge[::-1]])


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "", size: float = 0,
          hidden: bool = False) -> str:
    looks = "".join((f' class="{kind}"' if kind else "", f' text-anchor="{anchor}"' if anchor else "",
                     f' font-size="{size:g}"' if size else "", ' display="none"' if hidden else ""))
    return f'<text x="{short(x)}" y="{short(y)}"{looks}>{escape(text)}</text>'
