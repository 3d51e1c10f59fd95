"""Every page of a site with everything on it is valid HTML, leads nowhere in vain, and can be read by a machine."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from reports import packing, site
from reports.analysis.results import Results
from tests.sample_records import make_record, records, write_sample
from tests.test_report_studies import write_cross, write_fewshot

html5lib = pytest.importorskip("html5lib", reason="the validation of pages needs html5lib: `make test` installs it")
XHTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


def write_everything(folder: Path) -> Path:
    """Runs of which every page can be made: a ladder, a union, few-shot, transfer, backbones, samplers, a gallery."""
    write_sample(folder, {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73}, ("glyphs", "cars"), seeds=2, queries=True)
    run = next((folder / "glyphs" / "1" / "margin").iterdir())
    write_fewshot(run, 0.5, 0.6)
    write_cross(run, {"cars": (0.3, 0.4)})
    for backbone in ("conv4", "resnet50"):
        records.write(folder / backbone, make_record("glyphs", 1, "arcface", 0, 0.4, backbone={
            "name": backbone, "weights": None}))
    for sampler in ("spc-4", "fr"):
        records.write(folder / sampler, make_record("glyphs", 1, "triplet", 0, 0.4, protocol={
            "name": "demo", "batches": sampler}))
    records.write_failure(folder / "cars" / "2" / "diva" / "s0-0000", {"cause": 'loss became <nan> & "stayed" so'})
    shot = {"id": 1, "image": "image-1.png", "class": "<A> & co"}
    gallery = {"kind": "sampled", "title": "Sampled queries", "note": "Drawn.", "neighbours": 1, "rows": [
        {"query": shot, "neighbours": [shot | {"right": True, "similarity": 0.9}]}]}
    figure = {"title": "Weights", "file": "image-1.png", "caption": "c", "heads": ["a", "b"], "rows": [["x", "1"]]}
    (run / "inspect").mkdir()
    (run / "inspect" / "image-1.png").write_bytes(b"png")
    (run / "inspect" / "inspection.json").write_text(json.dumps({
        "schema": 1, "run": "x", "side": 112, "galleries": [gallery], "figures": [figure], "files": ["image-1.png"],
        "lead": "What it finds."}))
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame, lost = packing.scan(write_everything(tmp_path_factory.mktemp("work") / "runs"))
    return site.build(Results(frame), lost, tmp_path_factory.mktemp("site")).parent


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, Element]:
    found = {}
    for path in sorted(built.rglob("*.html")):
        parser = html5lib.HTMLParser(strict=True)
        try:
            found[str(path.relative_to(built))] = parser.parse(path.read_text(encoding="utf-8"))
        except html5lib.html5parser.ParseError as error:
            pytest.fail(f"{path.name}: {error} at {parser.tokenizer.stream.position()}")
    return found


def local(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_all_kinds_of_pages_are_there(pages: dict[str, Element]) -> None:
    assert {"index.html", "about.html", "audit.html", "compare.html", "statistics.html", "structure.html",
            "published.html", "fewshot.html", "cross.html", "backbones.html", "samplers.html"} <= set(pages)
    assert {path.partition("/")[0] for path in pages if "/" in path} == {
        "dataset", "union", "method", "inspect", "paper"}


def test_ids_are_unique_and_what_names_one_finds_it(pages: dict[str, Element]) -> None:
    for name, page in pages.items():
        ids = Counter(element.get("id") for element in page.iter() if element.get("id"))
        assert [key for key, count in ids.items() if count > 1] == [], name
        for element in page.iter():
            for key in ("aria-labelledby", "aria-describedby", "for"):
                for told in (element.get(key) or "").split():
                    assert told in ids, (name, key, told)
            assert " " not in (element.get("id") or ""), name


def test_links_and_anchors_lead_somewhere(pages: dict[str, Element], built: Path) -> None:
    for name, page in pages.items():
        for element in page.iter():
            for key in ("href", "src", f"{'{http://www.w3.org/1999/xlink}'}href"):
                link = element.get(key)
                if link is None or link.startswith(("https://arxiv.org/", "data:")):
                    continue
                target, _, anchor = link.partition("#")
                there = (built / name).parent.joinpath(target).resolve() if target else built / name
                assert there.is_file(), (name, link)
                if anchor and "=" not in anchor:  # else it is what is chosen on that page
                    page_there = pages[str(there.relative_to(built.resolve() if target else built))]
                    assert any(one.get("id") == anchor for one in page_there.iter()), (name, link)


def test_pictures_have_a_text(pages: dict[str, Element]) -> None:
    pictures = 0
    for name, page in pages.items():
        for image in page.iter(f"{XHTML}img"):
            assert image.get("alt"), name
            pictures += 1
        for drawing in page.iter(f"{SVG}svg"):
            hidden = drawing.get("aria-hidden") == "true"
            title, about = drawing.find(f"{SVG}title"), drawing.find(f"{SVG}desc")
            assert hidden or (title is not None and text(title) and about is not None and text(about)), name
            pictures += not hidden
        for button in page.iter(f"{XHTML}button"):
            assert text(button) or button.get("aria-label"), name
        for link in page.iter(f"{XHTML}a"):
            assert text(link) or link.get("aria-label"), (name, link.get("href"))
    assert pictures > 15


def test_headings_are_not_skipped(pages: dict[str, Element]) -> None:
    for name, page in pages.items():
        levels = [int(local(element)[1]) for element in page.iter() if local(element) in ("h1", "h2", "h3", "h4")]
        assert levels[0] == 1, name
        assert levels.count(1) == 1, name
        assert all(after <= before + 1 for before, after in pairwise(levels)), (name, levels)


def test_tables_say_what_their_cells_are(pages: dict[str, Element]) -> None:
    for name, page in pages.items():
        for table in page.iter(f"{XHTML}table"):
            caption = table.find(f"{XHTML}caption")
            assert caption is not None, name
            assert text(caption), name
            heads = [head for head in table.iter(f"{XHTML}th") if head.get("scope") == "col"]
            assert heads, name
            assert all(text(head) for head in heads), (name, table.get("id"))
            for row in table.iter(f"{XHTML}tr"):
                cells: list[Any] = [cell for cell in row if local(cell) in ("td", "th")]
                assert sum(int(cell.get("colspan", 1)) for cell in cells) == len(heads), (name, table.get("id"))
                if all(cell.get("scope") != "col" for cell in cells):
                    assert any(local(cell) == "th" for cell in cells), (name, table.get("id"), text(row))


def test_landmarks(pages: dict[str, Element]) -> None:
    for name, page in pages.items():
        for tag in ("main", "header", "footer", "title"):
            assert sum(local(element) == tag and not element.tag.startswith(SVG) for element in page.iter()) == 1, name
        labels = [element.get("aria-label") for element in page.iter() if local(element) == "nav"]
        assert all(labels), name
        assert len(set(labels)) == len(labels), "a reader tells them apart by what they are called"
        root = page if local(page) == "html" else page.find(f"{XHTML}html")
        assert root is not None
        assert root.get("lang") == "en"
