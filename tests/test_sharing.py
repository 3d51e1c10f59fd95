"""What a shared link, a citation and a reader who wants the records find on the pages."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from reports import packing, records, site
from reports.analysis import paper_tables
from reports.analysis.results import Results
from reports.figures.preview import SIZE
from tests.sample_records import write_sample


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work") / "runs"
    write_sample(folder, {"frozen": 0.2, "margin": 0.66, "s2sd": 0.73}, ("glyphs",), seeds=1)
    return folder


@pytest.fixture(scope="module")
def built(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame, lost = records.scan(runs)
    frame.loc[frame["method"] == "s2sd", "dirty"] = True
    return site.build(Results(frame), lost, tmp_path_factory.mktemp("site"), url="https://board.example/x").parent


def test_every_page_has_what_a_preview_needs(built: Path) -> None:
    titles = set()
    for path in built.rglob("*.html"):
        found = dict(re.findall(r'<meta (?:property|name)="((?:og|twitter):\w+|description)" content="([^"]+)">',
                                path.read_text()))
        assert {"og:title", "og:description", "og:image", "twitter:card", "description"} <= set(found), path
        assert found["og:image"] == "https://board.example/x/assets/preview.png"
        titles.add(found["og:title"])
    assert {"margin · oodml", "Submit · oodml", "Compare · oodml"} <= titles
    with Image.open(built / "assets" / "preview.png") as picture:
        assert picture.mode == "P"  # every page counts its bytes
        assert picture.size == SIZE
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 50


def test_every_section_can_be_linked_to(built: Path) -> None:
    for path in built.rglob("*.html"):
        text = path.read_text()
        for attributes, inner in re.findall(r"<h2([^>]*)>(.*?)</h2>", text, re.S):
            if "tab-title" not in attributes:
                name = re.search(r'id="([^"]+)"', attributes)
                assert name, (path, inner)
                assert f'href="#{name[1]}"' in inner
        names = re.findall(r'role="region"[^>]*aria-label="([^"]*)"', text)
        assert len(names) == len(set(names)), path


def test_all_records_are_one_click_away(built: Path, runs: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO((built / "data" / "records.zip").read_bytes())) as archive:
        archive.extractall(tmp_path)
    again, before = packing.scan(tmp_path / "records")[0], records.collect(runs)
    assert sorted(again["identity"]) == sorted(before["identity"])
    one, two = (frame.set_index("identity")["recall@1"].sort_index() for frame in (again, before))
    assert one.tolist() == two.tolist()


def test_dates_commits_and_citation(built: Path, runs: Path) -> None:
    frame = records.collect(runs)
    page, about = (built / "method" / "s2sd.html").read_text(), (built / "about.html").read_text()
    assert page.count("+ changes") > 1
    footer = re.search(r"<footer>(.*?)</footer>", page, re.S)
    assert footer
    count = int((frame["method"] == "s2sd").sum())
    assert f"{count} of them were made with changes" in footer[1]
    assert str(max(frame["date"]))[:10] in footer[1]
    assert "@misc{oodml" in about
    assert "oodml submit" in (built / "submit.html").read_text()


def test_printed_names_have_no_marks_of_typesetting() -> None:
    for _, tables in paper_tables.boards():
        for table in tables:
            assert not table.frame["method"].str.contains(r"[$\\]").any(), table.name
