"""axe-core finds nothing wrong on any kind of page, light and dark, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe: `make test-browser`")


def kinds(site: Path) -> list[str]:
    """One page of each kind: every page at the top, and the first below each folder."""
    folders = [sorted(folder.glob("*.html"))[0] for folder in sorted(site.iterdir()) if any(folder.glob("*.html"))]
    return [str(path.relative_to(site)) for path in (*sorted(site.glob("*.html")), *folders)]


SHORTER = """() => document.querySelectorAll("tbody").forEach(
    body => [...body.rows].slice(6, -2).forEach(row => row.remove()))"""
"""Of hundreds of rows that are alike, which take axe minutes, a few are looked at."""


COLOURS = ("color-contrast", "link-in-text-block")
"""The rules that look at colours, which take most of axe's time."""
LOOKS = {(1280, "light"): {}, (1280, "dark"): {"runOnly": COLOURS},
         (390, "light"): {"rules": {rule: {"enabled": False} for rule in COLOURS}}}
"""The scheme changes colours and nothing else, the width everything but colours."""


@pytest.mark.parametrize("half", [0, 1])
def test_no_kind_of_page_has_a_violation(browser: Any, published: Path, half: int) -> None:
    # axe tells the console what it could not look at, so this is not the page on which nothing may be told
    page = browser.new_page(reduced_motion="reduce")
    found = []
    for path in kinds(published)[half::2]:  # side by side
        page.goto(f"{published.as_uri()}/{path}")
        page.evaluate(SHORTER)
        for (width, scheme), rules in LOOKS.items():
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            result = axe.Axe().run(page, options={"resultTypes": ["violations"], **rules})
            found += [f"{path}, {width}, {scheme}: {one['id']}: {node['target']} {node.get('failureSummary', '')}"
                      for one in result.response["violations"] for node in one["nodes"][:3]]
    page.close()
    assert len(kinds(published)) > 10
    assert found == []
