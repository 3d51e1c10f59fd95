"""Which SVGs of others are published: those that draw and load nothing, as our own figures do."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from reports import ReportError
from reports.figures.comparisons import matrix
from reports.html import extras, svg_check
from tests.test_containment import inspected


@pytest.mark.parametrize(("inner", "sound"), [
    ('<path d="M0 0"/><use xlink:href="#a" style="stroke: none"/>', True), ("<script>alert(1)</script>", False),
    ("<svg:SCRIPT>alert(1)</svg:SCRIPT>", False), ('<rect onload="alert(1)"/>', False),
    ('<a xlink:href="javascript:alert(1)">x</a>', False), ("<foreignObject><b/></foreignObject>", False),
    ('<a xlink:href="&#106;avascript:alert(1)">x</a>', False), ('<image href="http://tracker.example/x.png"/>', False),
    ('<image xlink:href="data:image/png;base64,iVBORw0KGgo="/>', True), ('<use href="other.svg#a"/>', False),
    ('<image href="data:image/svg+xml;base64,PHN2Zz4="/>', False), ('<image href="picture.png"/>', False),
    ("<style>*{stroke-linejoin: round}</style>", True), ('<style>@import "http://x.example";</style>', False),
    ("<style><![CDATA[*{fill:url(http://x.example)}]]></style>", False), ('<g fill="u\\72l(//x.example)"/>', False),
    ('<g clip-path="url(#a)" style="fill: url( \'#b\' )"/>', True), ('<g style="fill:url(//x.example"/>', False),
    ('<g style="fill:image-set(&quot;//x.example&quot; 1x)"/>', False), ('<g xml:base="http://x.example"/>', False),
    ('<set attributeName="href" to="javascript:alert(1)"/>', False), ('<b xmlns="http://x.example"/>', False),
    ('<text data-x="a (b)" aria-label="f(x)">url(//x) @ onload="x" javascript:</text>', True), ("<?php x?>", False),
    ("&unknown;", False), ("<g>" * 200 + "</g>" * 200, False), ("<g>", False),
])
def test_drawings_with_scripts_are_not_published(inner: str, sound: bool, tmp_path: Path) -> None:
    home = inspected(tmp_path, files=["image-1.png", "a.svg"],
                     figures=[{"title": "t", "file": "a.svg", "caption": "c"}])[1]
    text = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:svg="http://www.w3.org/2000/svg" '
    text += f'xmlns:xlink="http://www.w3.org/1999/xlink">{inner}</svg>'
    (home / "a.svg").write_text(text)
    if sound:
        assert extras.read_inspection(home / "inspection.json")["figures"]
    else:
        with pytest.raises(ReportError, match="may not be published"):
            extras.read_inspection(home / "inspection.json")
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "glyphs-progression.svg").write_text(text)
    page: Any = SimpleNamespace(files={}, slug=str)
    assert bool(extras.Extras(tmp_path / "splits").of_splits(page, "glyphs")) is sound
    assert bool(page.files) is sound


SVG = '<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>'
DOCTYPE = ('<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd"{}>')


@pytest.mark.parametrize(("text", "encoding", "sound"), [
    (SVG, "utf-8", True), (SVG, "utf-8-sig", True), (SVG, "utf-16", False), (SVG, "utf-16-le", False),
    (f'<?xml version="1.0" encoding="UTF-8"?>{SVG}', "utf-8", True), ("", "utf-8", False),
    (f'<?xml version="1.0" encoding="utf-7"?>{SVG}', "utf-8", False), (DOCTYPE.format("") + SVG, "utf-8", True),
    (DOCTYPE.format(' [<!ENTITY a "b">]') + SVG, "utf-8", False), (f"<!DOCTYPE svg>{SVG}", "utf-8", False),
    (DOCTYPE.format("") + SVG.replace("<path", "&a;<path"), "utf-8", False),
    (f'<?xml-stylesheet href="//x.example"?>{SVG}', "utf-8", False), (SVG + " " * svg_check.LARGEST, "utf-8", False),
    ("<html/>", "utf-8", False),
])
def test_drawings_are_xml_in_utf_8_without_entities(text: str, encoding: str, sound: bool) -> None:
    assert (svg_check.fault(text.encode(encoding)) == "") is sound


@pytest.mark.parametrize("fonts", ["none", "path"])
def test_figures_of_matplotlib_and_of_the_pages_may_be_published(fonts: str) -> None:
    """All that figures here are drawn with, as matplotlib writes it and as the pages have it; a large one in time."""
    with matplotlib.rc_context({"svg.fonttype": fonts}):
        figure = Figure(figsize=(6, 4))
        lines, picture, bars = figure.subplots(1, 3)
        lines.plot([0, 1, 2], [1, 3, 2], "o--", label="$x^2$ (a) @ \\b")
        lines.scatter(*np.random.default_rng(0).random((2, 20_000)), alpha=0.3)
        lines.fill_between([0, 2], [0, 1], [1, 2], hatch="//")
        lines.legend(title="<script> & url(x)")
        picture.imshow(np.arange(9).reshape(3, 3))
        bars.bar([1, 2], [3, 4], yerr=1)
        figure.suptitle("café · ½")
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg")
    assert b"<!DOCTYPE" in drawn.getvalue()
    assert b"data:image/png;base64" in drawn.getvalue()
    began = time.process_time()
    assert svg_check.fault(drawn.getvalue()) == ""
    assert time.process_time() - began < 10
    table = pd.DataFrame({"a": [0.1, 0.2], "b (c)": [0.3, 0.4]}, index=["prompt 1", "prompt 2"])
    assert svg_check.fault(matrix(table, "prompts", "Mean weight of each prompt").encode()) == ""
    for path in (Path(__file__).parents[1] / "docs" / "pages" / "figures").glob("*.svg"):
        assert svg_check.fault(path.read_bytes()) == "", path
