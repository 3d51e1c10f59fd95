"""One method over the grey field of all others, drawn by hand because every method has a page."""

from __future__ import annotations

from collections.abc import Sequence

from reports.figures.drawing import GREY, GRID, INK, Style
from reports.figures.inline import framed, text_at
from reports.figures.ladders import DISTANCE_AXIS
from reports.figures.ticks import ticks_around
from reports.wording import distance, metric_name

Curve = Sequence[tuple[float, float, float]]
"""(distance, score, deviation over seeds) of each rung, scores in percent; 0 where there is one seed."""
_LEFT, _TOP, _WIDTH, _HEIGHT = 44, 34, 520, 250


def shift_curve(own: Curve, others: Sequence[Curve], frozen: Curve, label: str, style: Style, name: str, title: str,
                metric: str) -> str:
    """The score of one row over distance, with a band of one deviation, over all other rows and its frozen network."""
    others = [curve for curve in others if len(curve) > 1]  # a line is what can be seen of them
    known = [point for curve in (own, frozen, *others) for point in curve]
    near, far = min(x for x, _, _ in known), max(x for x, _, _ in known)
    ticks = ticks_around([y for _, y, _ in known])
    low, high = ticks[0], ticks[-1]

    def across(x: float) -> float:
        return _LEFT + 8 + (_WIDTH - 16) * (x - near) / ((far - near) or 1)

    def up(y: float) -> float:
        return _TOP + _HEIGHT * (high - min(high, max(low, y))) / (high - low)

    def line(curve: Curve) -> str:
        return "M" + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y, _ in curve)

    parts = [text_at(_LEFT, 18, f"{metric_name(metric)}, percent")]
    for tick in ticks:
        parts.append(f'<path d="M{_LEFT} {up(tick):.1f}h{_WIDTH}" stroke="{GRID}" stroke-width="0.8"/>'
                     + text_at(_LEFT - 6, up(tick) + 4, f"{tick:g}", anchor="end"))
    shown = -1000.0
    for x in sorted({x for x, _, _ in own}):
        parts.append(f'<path d="M{across(x):.1f} {_TOP + _HEIGHT}v-5" stroke="{INK}" stroke-width="0.8"/>')
        if across(x) - shown > 34:
            parts.append(text_at(across(x), _TOP + _HEIGHT + 17, distance(x), anchor="middle"))
            shown = across(x)
    parts.append(text_at(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 36, DISTANCE_AXIS, anchor="middle"))
    field = "".join(map(line, others))
    parts.append(f'<path d="{field}" class="field" fill="none" stroke="{GREY}" stroke-width="1" opacity="0.35"/>')
    place = up(own[-1][1])
    if len(frozen) > 1:
        parts.append(f'<path d="{line(frozen)}" fill="none" stroke="{GREY}" stroke-width="1.6" '
                     'stroke-dasharray="5 4"/>')
        end = up(frozen[-1][1])
        apart = end if abs(end - place) > 16 else place + (18 if end >= place else -18)
        parts.append(text_at(_LEFT + _WIDTH + 4, apart + 4, "frozen"))
    colour = style.colour if style.number >= 0 else INK
    if any(std for _, _, std in own):
        band = [(x, y + std) for x, y, std in own] + [(x, y - std) for x, y, std in reversed(own)]
        parts.append('<path d="M' + "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in band)
                     + f'Z" fill="{colour}" opacity="0.16"/>')
    parts.append(f'<path d="{line(own)}" class="own" fill="none" stroke="{colour}" stroke-width="2.6"/>')
    parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.6" fill="{colour}"/>' for x, y, _ in own]
    parts.append(text_at(_LEFT + _WIDTH + 4, place + 4, f"{own[-1][1]:.1f}", weight=650))
    about = ", ".join(f"{y:.1f} at distance {x:.0f}" for x, y, _ in own)
    about = f"{label}: {about}. In grey {len(others)} others."
    return framed(parts, _LEFT + _WIDTH + 62, _TOP + _HEIGHT + 46, name, title, about)


def part_dots(own: Sequence[float | None], others: Sequence[Sequence[float]], frozen: Sequence[float | None],
              names: Sequence[str], label: str, style: Style, name: str, title: str, metric: str) -> str:
    """The scores of one row on each part of a union, in percent, over the marks of all other rows (by part)."""
    left, step = 20 + 9.6 * max(map(len, names)), 27
    known = [value for part in others for value in part] + [value for value in own if value is not None]
    ticks = ticks_around(known)
    height = _TOP + step * len(names)
    width = _LEFT + _WIDTH - left

    def across(value: float) -> float:
        return left + 8 + (width - 16) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts = [text_at(left, 18, f"{metric_name(metric)}, percent")]
    for tick in ticks:
        parts.append(f'<path d="M{across(tick):.1f} {_TOP - 6}V{height}" stroke="{GRID}" stroke-width="0.8"/>'
                     + text_at(across(tick), height + 16, f"{tick:g}", anchor="middle"))
    colour = style.colour if style.number >= 0 else INK
    for i, part in enumerate(names):
        y = _TOP + step * (i + 0.5)
        marks = "".join(f"M{across(value):.1f} {y - 5:.1f}v10" for value in others[i])
        parts.append(text_at(left - 8, y + 4, part, anchor="end")
                     + f'<path d="{marks}" class="field" stroke="{GREY}" stroke-width="1.4" opacity="0.4"/>')
        base, score = frozen[i], own[i]
        if base is not None:
            parts.append(f'<path d="M{across(base):.1f} {y - 9:.1f}v18" stroke="{GREY}" stroke-width="1.8" '
                         'stroke-dasharray="3 2"/>')
        if score is not None:
            parts.append(f'<circle cx="{across(score):.1f}" cy="{y:.1f}" r="5" class="own" fill="{colour}"/>'
                         + text_at(left + width + 4, y + 4, f"{score:.1f}", weight=650))
    about = f"{label}: " + ", ".join(f"{score:.1f} on {part}" for part, score in zip(names, own) if score is not None)
    return framed(parts, left + width + 62, height + 26, name, title, about + ".")
