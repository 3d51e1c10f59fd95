"""Drawings made smaller show the same: paths are read again, marks stand where the data are, looks reach each mark."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from matplotlib.figure import Figure

from reports.figures.compact import compact, path
from reports.figures.drawing import HUES, drawing, svg

SVG = "{http://www.w3.org/2000/svg}"


def corners(d: str) -> list[tuple[float, ...]]:
    """What a path says, step by step: the letter as a number, then where it leads, in absolute coordinates."""
    told, place, letter = [], (0.0, 0.0), ""
    tokens = re.findall(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)", d)
    while tokens:
        letter = tokens.pop(0) if tokens[0].isalpha() else {"M": "L"}.get(letter, letter)
        take = {"H": 1, "V": 1, "C": 6, "Q": 4, "z": 0}.get(letter, 2)
        numbers = [float(tokens.pop(0)) for _ in range(take)]
        if letter in "HV":
            numbers = [numbers[0], place[1]] if letter == "H" else [place[0], numbers[0]]
        if numbers:
            place = (numbers[-2], numbers[-1])
        told.append((ord("L" if letter in "HV" else letter), *numbers))
    return told


@pytest.mark.parametrize("seed", range(20))
def test_a_short_path_leads_through_the_same_corners(seed: int) -> None:
    rng, steps = np.random.default_rng(seed), []
    for _ in range(30):
        letter = str(rng.choice(list("MLLLLCQz"))) if steps else "M"
        count = {"C": 6, "Q": 4, "z": 0}.get(letter, 2)
        numbers = rng.choice([-3.14159, -0.5, 0.0, -0.001, 0.07, 12.0, 250.126], count)
        steps.append(f"{letter} {' '.join(f'{number:.6f}' for number in numbers)}\n")
    whole, short = "".join(steps), path("".join(steps))
    assert len(short) < len(whole) / 2
    before, after = corners(whole), corners(short)
    assert [len(step) for step in before] == [len(step) for step in after]
    for one, other in zip(before, after):
        assert one == pytest.approx(other, abs=0.0051)


def looks(root: Element) -> list[tuple[Element, dict[str, str]]]:
    """Every element with the style that it has or inherits."""
    found: list[tuple[Element, dict[str, str]]] = []

    def visit(element: Element, inherited: dict[str, str]) -> None:
        own = dict(re.findall(r"([\w-]+)\s*:\s*([^;]+)", element.get("style", "")))
        found.append((element, inherited | own))
        for child in element:
            visit(child, {key: value for key, value in (inherited | own).items() if "opacity" not in key or "-" in key})

    visit(root, {})
    return found


def test_marks_stand_where_the_data_are_with_their_looks() -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.random((3, 40))
    with drawing("figure"):
        figure = Figure(figsize=(4, 3))
        axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
        axes.plot(x, y, ls="", marker="s", markerfacecolor="none", markeredgecolor=HUES[1], markeredgewidth=0.7)
        axes.plot(x, z, ls="", marker="^", color=HUES[0])
        axes.plot([0, 1], [0, 1], marker="o", color=HUES[2])  # two marks stay what they were
        axes.tick_params(length=0)
        axes.text(0.5, 0.5, "a < b & c", alpha=0.5)
        text = svg(figure, "figure", "Title", "Description")
        raw = io.StringIO()
        figure.savefig(raw, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(text)
    assert len(text) < len(raw.getvalue()) / 2
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(set(ids)) == len(ids)
    assert all(str(name).startswith("figure-") for name in ids)
    used = set(re.findall(r'(?:url\(|href=")#([^")]*)', text))
    assert used <= set(ids)
    markers = {element.get("id"): (element, look) for element, look in looks(root) if element.tag == f"{SVG}marker"}
    drawn = [(corners(str(element.get("d"))), markers[name[1]]) for element, look in looks(root)
             if (name := re.fullmatch(r"url\(#(.*)\)", look.get("marker", "")))]
    assert len(drawn) == 2
    for (steps, (marker, look)), values, colour, fill in zip(drawn, (y, z), (HUES[1], HUES[0]), (None, HUES[0])):
        expected = axes.transData.transform(np.stack([x, values], 1)) * 72 / figure.dpi
        expected[:, 1] = 3 * 72 - expected[:, 1]
        assert np.array([step[1:] for step in steps]) == pytest.approx(expected, abs=0.0051)
        (shape,) = marker
        told = look | dict(re.findall(r"([\w-]+):([^;]+)", shape.get("style", "")))
        assert told["stroke"].lower() == colour.lower()
        assert told["fill"].lower() == fill.lower() if fill else told["fill-opacity"] == "0"
    assert sum(element.tag == f"{SVG}use" for element in root.iter()) == 2
    assert "a &lt; b &amp; c" in text


def test_each_part_looks_as_before() -> None:
    """Cells of a matrix share what they have in common and keep what they have not; opacity is nobody's to share."""
    cells = "".join(f'<path d="M {i} 0 L {i} 1" clip-path="url(#c)" style="fill: red; fill-opacity: 0.{i}; '
                    f'opacity: 0.5; stroke: blue"/>' for i in range(1, 9))
    whole = (f'<svg xmlns="{SVG[1:-1]}"><defs><style>*{{}}</style></defs><g id="a"><g id="b"/>{cells}</g>'
             '<path d="M 0 0 L 1 1" style="fill: none"/>'
             '<defs><clipPath id="c"><rect x="0" y="0"/></clipPath></defs></svg>')
    root = ElementTree.fromstring(compact(whole, "n"))
    parts = [(element.get("d"), look) for element, look in looks(root) if element.tag == f"{SVG}path"]
    assert parts == [(f"M{i} 0V1", {"fill": "red", "fill-opacity": f"0.{i}", "opacity": "0.5", "stroke": "blue"})
                     for i in range(1, 9)]
    (group,) = [element for element in root if element.tag == f"{SVG}g"]
    (clip,) = [element for element in root.iter() if element.tag == f"{SVG}clipPath"]
    assert group.get("clip-path") == f"url(#{clip.get('id')})"
    assert all(part.get("clip-path") is None for part in group)
    assert "opacity" not in dict(re.findall(r"([\w-]+):([^;]+)", group.get("style", "")))
