"""The site: whole, self-contained, the same bytes again, and no number that is not in the CSV."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.report import command
from reports import ReportError, records, site
from reports.analysis.results import Results
from reports.figures import drawing
from reports.html import dataset_pages
from tests.sample_records import DOMAINS, make_record, write_sample

VOID = {"meta", "link", "input", "br", "img", "hr", "mspace", "wbr"}


class Page(HTMLParser):
    """Reads a page: unclosed tags, ids, what is linked, what is loaded, and the rows of its tables."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.heads: dict[str, list[dict[str, str]]] = {}
        self.rows: dict[str, list[list[str]]] = {}
        self.table = ""
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if "id" in given:
            self.ids[given["id"]] += 1
        if tag == "a":
            self.links.append(given["href"])
        for key in ("src", "data", "poster", "srcset", *(("href",) if tag in ("link", "image", "use") else ())):
            if key in given:
                self.loads.append(given[key])
        if tag == "table":
            self.table = given["id"]
            self.heads[self.table], self.rows[self.table] = [], []
        if self.table and tag == "th" and given.get("scope") == "col":
            self.heads[self.table].append(given)
        if self.table and tag == "tr":
            self.rows[self.table].append([])
        if self.table and tag in ("td", "th") and given.get("scope") != "col":
            self.rows[self.table][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> does not close the last open tag"
        if tag == "table":
            self.table = ""

    def handle_data(self, data: str) -> None:
        inside = {"td", "th"} & set(self.open[-4:]) and "thead" not in self.open
        if self.table and inside:
            self.rows[self.table][-1][-1] += data


def build(runs: Path, out: Path) -> Path:
    frame, lost = records.scan(runs)
    return site.build(Results(frame), lost, out)


METHODS = {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "proxyanchor": 0.7}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work") / "runs"
    write_sample(folder, METHODS, ("glyphs", "cars"), seeds=2, queries=True)
    records.write(folder / "x", make_record("cars", 1, "diva", 0, 0.6))
    records.write_failure(folder / "cars" / "2" / "diva" / "s0-0000", {"cause": "loss became <nan>"})
    return folder


@pytest.fixture(scope="module")
def built(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(runs, tmp_path_factory.mktemp("site")).parent


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, Page]:
    return {str(path.relative_to(built)): Page(path) for path in sorted(built.rglob("*.html"))}


def test_every_page_is_there(pages: dict[str, Page]) -> None:
    assert set(pages) == {"index.html", "about.html", "audit.html", "compare.html", "statistics.html",
                          "structure.html", "published.html", "submit.html", "dataset/glyphs.html", "dataset/cars.html",
                          "union/glyphs-union.html", "paper/oodml.html", "paper/revisiting.html", "paper/crt.html",
                          "paper/uml.html", *(f"method/{name}.html" for name in (*METHODS, "diva"))}


def test_pages_are_well_formed_and_small(pages: dict[str, Page], built: Path) -> None:
    for name, page in pages.items():
        assert page.open == [], name
        assert page.text.startswith("<!doctype html>\n<html lang=\"en\">"), name
        assert [key for key, count in page.ids.items() if count > 1] == [], name
        assert len(page.text) < 1_000_000, name
        assert page.text.count("<h1>") == 1, name
        assert "Undefined" not in page.text, name


def test_nothing_is_loaded_from_another_host(pages: dict[str, Page], built: Path) -> None:
    for name, page in pages.items():
        for load in page.loads:
            assert load.startswith(("data:", "#")) or (built / name).parent.joinpath(load).is_file(), (name, load)
        for link in page.links:
            if not link.startswith("https://arxiv.org/"):
                target, _, anchor = link.partition("#")
                there = (built / name).parent.joinpath(target).resolve() if target else built / name
                assert there.is_file(), (name, link)
                if anchor and "=" not in anchor:  # else it is what is chosen on that page
                    assert f'id="{anchor}"' in there.read_text(), (name, link)
    for asset in (path for path in (built / "assets").iterdir() if path.suffix != ".png"):
        assert not re.search(r"https?://|@import|url\((?!#)|fetch\(|XMLHttpRequest", asset.read_text()), asset


def test_the_same_records_give_the_same_bytes_on_any_number_of_cores(
        runs: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MANY", 1)
    again = build(runs, tmp_path).parent
    first = {path.relative_to(built): path.read_bytes() for path in built.rglob("*") if path.is_file()}
    second = {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}
    assert first == second


SHOWN = {"score": r"[\d.]+( ± [\d.]+)?", "gain": r"[+−]?[\d.]+( ± [\d.]+)?", "percent": r"[\d.]+",
         "number": r"−?[\d,.]+", "p": r"[\d.]+"}
"""What a number looks like in a column of each kind."""


def numbers_in_csv(page: Page, built: Path) -> int:
    """Holds every number of the boards of a page against their files; how many there are."""
    checked = 0
    for table, heads in page.heads.items():
        file = built / "data" / f"{table.removeprefix('table-')}.csv"
        csv = pd.read_csv(file, keep_default_na=False, na_values=[""], float_precision="round_trip")
        rows = [row for row in page.rows[table] if len(row) == len(heads)]
        assert len(rows) == len(csv), table
        for shown, row in zip(rows, csv.to_dict("records")):
            for cell, head in zip(shown, heads):
                kind, value = head["data-kind"], row.get(head["data-key"])
                if kind not in SHOWN or not re.fullmatch(SHOWN[kind], cell):
                    continue
                digits = len(cell.split(" ")[0].partition(".")[2])
                scale, form = (1, ",") if kind in ("number", "p") else (100, "+" if kind == "gain" else "")
                std = row.get(f"{head['data-key']}:std")
                bar = f" ± {100 * std:.{digits}f}" if " ± " in cell or (kind == "score" and pd.notna(std)) else ""
                told = f"{scale * value:{form}.{digits}f}".replace("-", "−")
                told = told if told.strip("+−0.") else told.lstrip("+−")  # zero has no sign
                assert cell == told + bar, (table, head["data-key"])
                checked += 1
    return checked


def test_every_number_of_a_board_is_in_its_csv(pages: dict[str, Page], built: Path) -> None:
    counts = [numbers_in_csv(page, built) for name, page in pages.items()
              if not name.startswith("paper/")]  # not boards: tests/test_papers.py
    assert sum(counts) > 500


def test_incomplete_and_failed_runs_are_shown_as_such(pages: dict[str, Page]) -> None:
    shown = [row for row in pages["index.html"].rows["table-ags-demo-recall-1"] if len(row) > 1]
    rows = {row[1].strip(): row for row in shown}
    assert rows["diva"][0] == "–"
    assert "1 of 8" in rows["diva"]
    assert rows["frozen"][0] == "baseline"
    assert [row[0] for row in shown][:3] == ["1", "2", "3"]
    assert "loss became &lt;nan&gt;" in pages["index.html"].text


def test_tables_are_accessible(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert page.text.count("<table") == page.text.count("<caption>"), name
        for table, heads in page.heads.items():
            assert sum("aria-sort" in head for head in heads) <= 1, (name, table)
        assert 'class="skip"' in page.text
        for found in re.findall(r"<svg[^>]*role=\"img\"[^>]*>.{0,40}", page.text, flags=re.S):
            assert "<title" in found, name


def test_a_page_says_of_a_line_once_what_it_is_and_a_file_has_its_title(pages: dict[str, Page], built: Path) -> None:
    text = pages["dataset/glyphs.html"].text
    lines = re.findall(r'<g class="line.*?</g>', text, flags=re.S)
    assert len(lines) > 3
    assert not any("<title>" in line for line in lines)
    alone = (built / "figures" / "glyphs-recall-1-curve.svg").read_text()
    for line in re.findall(r'<g class="line.*?</g>', alone, flags=re.S):
        name, values = re.findall(r'data-method="([^"]*)".*? data-y="([^"]*)"', line)[0]
        title = re.findall(r"<title>(.*): (.*)</title>", line)[0]
        assert title[0] == name
        assert [float(value) for value in title[1].split(", ")] == pytest.approx(
            [float(value) for value in values.split()], abs=0.006)
    assert not re.search(r"\n[ \t]", re.sub(r"<pre.*?</pre>", "", text, flags=re.S))  # indents of templates


def test_figures_are_xml_and_follow_the_theme(pages: dict[str, Page], built: Path) -> None:
    drawings = list((built / "figures").glob("*.svg"))
    assert drawings
    for path in drawings:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
    inline = re.search(r"<svg[^>]*role=\"img\".*?</svg>", pages["dataset/cars.html"].text, flags=re.S)
    assert inline
    assert re.search(r"var\(--hue-[0-7]\)", inline[0])
    assert not any(hue.lower() in inline[0].lower() for hue in (*drawing.HUES, drawing.INK, drawing.GREY))
    assert "<style" not in inline[0]


def test_pages_no_longer_made_are_removed_and_others_kept(tmp_path: Path) -> None:
    for method in ("margin", "arcface"):
        records.write(tmp_path / "runs" / method, make_record("glyphs", 1, method, 0, 0.5))
    frame, lost = records.scan(tmp_path / "runs")
    out = site.build(Results(frame), lost, tmp_path / "site").parent
    (out / "mine.txt").write_text("kept")
    assert (out / "method" / "arcface.html").exists()
    site.build(Results(frame[frame["method"] == "margin"]), lost, out)
    assert not (out / "method" / "arcface.html").exists()
    assert (out / "mine.txt").read_text() == "kept"


def test_no_runs_no_site(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="`oodml run` makes some"):
        build(tmp_path, tmp_path / "site")


def test_the_command_prints_the_ranking_and_the_page(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6, "frozen": 0.2}, ("glyphs",), seeds=1, union=False)
    result = CliRunner().invoke(command, ["--work", str(tmp_path)])
    assert re.search(r"–\s+margin", result.output), "the first of one says nothing"
    write_sample(tmp_path / "runs", {"triplet": 0.5}, ("glyphs",), seeds=1, union=False)
    result = CliRunner().invoke(command, ["--work", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert re.search(r"1\s+margin", result.output)
    index = Path(result.output.strip().splitlines()[-1].partition(": ")[2])
    assert index == (tmp_path / "leaderboard" / "index.html").resolve()
    assert index.is_file()


def test_scores_without_a_ladder_still_make_pages(tmp_path: Path) -> None:
    record = make_record("plain", 1, "margin", 0, 0.5)
    record["split"] = record["split"] | {"ladder": [], "frd": None}
    records.write(tmp_path / "runs" / "a", record)
    index = build(tmp_path / "runs", tmp_path / "site")
    assert "50.0" in (index.parent / "dataset" / "plain.html").read_text()


def test_parts_of_a_union_alone_stand_on_its_page_and_not_among_the_ladders(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6, "arcface": 0.5, "triplet": 0.4}, ("glyphs",), seeds=1)
    part = next(iter(DOMAINS))
    record = make_record("glyphs", 1, "margin", 0, 0.7)
    record |= {"dataset": part, "split": record["split"] | {"ladder": [[1, 75.5]]}}
    records.write(tmp_path / "runs" / part / "1" / "margin" / "s0-00000000", record)
    frame, lost = records.scan(tmp_path / "runs")
    results = Results(frame)
    assert (results.members, results.datasets) == ([part], sorted(["glyphs", part]))
    assert set(results.all_cells["dataset"]) == {"glyphs"}
    site.build(results, lost, tmp_path / "out")
    link = f'dataset/{part}.html"'
    assert link in (tmp_path / "out" / "union" / "glyphs-union.html").read_text()
    assert link not in (tmp_path / "out" / "about.html").read_text()


def test_a_network_trained_on_one_split_alone_has_no_figure_of_a_ladder() -> None:
    """Its frozen features, along the whole ladder, are drawn beside the methods that follow it."""
    rows = pd.DataFrame([("margin", "large", 1, False), ("margin", "large", 2, False), ("frozen", "small", 1, True),
                         ("frozen", "small", 2, True), ("s2sd", "small", 1, False)],
                        columns=["label", "backbone", "split", "baseline"])
    assert [name for name, _ in dataset_pages.by_backbone(rows)] == ["large"]
    alone = rows[rows["split"] == 1]
    assert [name for name, _ in dataset_pages.by_backbone(alone)] == ["large", "small"]


def test_what_was_submitted_is_called_so_on_every_page(tmp_path: Path) -> None:
    """Beside runs, on a ladder and on a union; what it does not say of itself is left out."""
    runs = write_sample(tmp_path / "runs", {"margin": 0.66, "arcface": 0.6}, ("glyphs",), seeds=1, queries=True)
    sent = {"name": "elsewhere", "family": "submitted", "papers": [], "tags": [], "cite": None, "trains": None,
            "summary": "embeddings of 64 dimensions, submitted", "settings": {}, "trainable_parameters": None,
            "total_parameters": None}
    facts: dict[str, Any] = {"source": "submitted", "protocol": {"name": "submitted"}, "curve": [],
             "backbone": {"name": "unknown", "weights": None}}
    for split in range(1, 6):
        one = make_record("glyphs", split, "elsewhere", 0, 0.5, **facts) | {"method": sent}
        records.write(runs / f"sent-{split}", one)
    whole = make_record("glyphs-union", 1, "elsewhere", 0, 0.5, dict.fromkeys(DOMAINS, 0.5), **facts) | {"method": sent}
    whole["split"]["parts"] = DOMAINS
    records.write(runs / "sent-union", whole)
    out = build(runs, tmp_path / "site").parent
    pages = {str(path.relative_to(out)): Page(path) for path in out.rglob("*.html")}
    for name in ("index.html", "dataset/glyphs.html", "union/glyphs-union.html"):
        assert '>elsewhere</a> <span class="badge">re-embedded</span>' in pages[name].text, name
    assert "elsewhere · submitted" in pages["compare.html"].text
    for name in ("statistics.html", "compare.html"):  # it has another backbone, and is tested with nobody
        assert "elsewhere<" not in pages[name].text, name
    card = pages["method/elsewhere-submitted.html"].text
    assert "embeddings of 64 dimensions, submitted" in card
    times = {row[1].split()[0]: row[-1] for row in pages["index.html"].rows["table-ags-demo-recall-1"] if len(row) > 2}
    assert times["elsewhere"] == "–", "what its training took is not known, only what scoring took"
    assert times["margin"] != "–"
    assert "14 s" not in card
    assert not re.search(r"\bnan\b|\bNone\b|<dt>Trains|Cite<", card)
    assert set(pd.read_csv(out / "data" / "glyphs-union.csv")["group"]) == {"submitted", "full"}


def test_a_single_run_is_one(tmp_path: Path) -> None:
    records.write(tmp_path / "runs" / "one", make_record("glyphs", 1, "margin", 0, 0.6))
    out = build(tmp_path / "runs", tmp_path / "site").parent
    text = (out / "index.html").read_text()
    assert not re.search(r"\b1 runs\b", text)
    assert '<p class="told">1 run' in text


def test_a_dataset_with_one_split_is_ranked_by_it_and_speaks_of_one(tmp_path: Path) -> None:
    """Without distance and ladder; the run that was looked into says nothing of a distance either."""
    scores = {"frozen": 0.2, "arcface": 0.3, "margin": 0.5, "s2sd": 0.4}
    for method, score in scores.items():
        record = make_record("plain", 1, method, 0, score)
        record["split"] |= {"ladder": [], "frd": None}
        records.write(tmp_path / "runs" / method, record)
    looked = tmp_path / "runs" / "margin" / "inspect"
    looked.mkdir()
    (looked / "inspection.json").write_text(json.dumps({"schema": 1, "lead": "x", "galleries": [], "figures": [],
                                                        "files": [], "side": 64}))
    out = build(tmp_path / "runs", tmp_path / "site").parent
    page = Page(out / "dataset" / "plain.html")
    rows = [row for row in page.rows["table-plain-recall-1"] if len(row) > 1]
    assert [(row[0], row[1]) for row in rows] == [("1", "margin"), ("2", "s2sd"), ("3", "arcface"),
                                                  ("baseline", "frozen")]
    assert 'class="incomplete"' not in page.text
    assert not re.search("further apart|headed by|on every split|The splits<", page.text)
    assert "Recall@1 of each method on the default split of plain" in page.text
    (inspected,) = (out / "inspect").glob("*.html")
    assert "plain, split 1 · seed 0" in inspected.read_text()
