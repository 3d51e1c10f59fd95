"""Where rows stand on every board, and what the pages of methods and of comparisons say of it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import html5lib
import numpy as np
import pytest

from reports import records, site
from reports.aggregate import ags, harmonic_mean
from reports.analysis import comparison, standings
from reports.analysis.results import Results
from reports.figures import method_curve
from reports.figures.drawing import styles
from tests.sample_records import LADDERS, make_record, write_sample

METHODS = {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "proxyanchor": 0.70}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods and a baseline on two ladders and a union; and one with another backbone on the union alone."""
    folder = tmp_path_factory.mktemp("runs")
    write_sample(folder, METHODS, ("glyphs", "cars"), seeds=2, queries=True)
    parts = next(record["domains"] for path in folder.rglob("record.json")
                 if (record := json.loads(path.read_text())).get("domains"))
    for name, score in (("puma", 0.9), ("vpt", 0.8)):
        domains = {part: score - 0.01 * i for i, part in enumerate(parts)}
        made = make_record("glyphs-union", 1, name, 0, score, domains, backbone={"name": "vit", "weights": None})
        records.write(folder / name, made)
    return folder


@pytest.fixture(scope="module")
def results(runs: Path) -> Results:
    return Results(records.collect(runs))


@pytest.fixture(scope="module")
def built(results: Results, runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site.build(results, records.scan(runs)[1], tmp_path_factory.mktemp("site")).parent


def test_scores_and_what_is_kept_are_those_of_the_runs(results: Results) -> None:
    known = standings.standings(results)
    runs = results.runs
    for label in ("margin", "s2sd"):
        lines = known[(known["label"] == label) & (known["metric"] == "recall@1")].set_index(["board", "kind"])
        whole = []
        for dataset in ("glyphs", "cars"):
            here = runs[(runs["label"] == label) & (runs["dataset"] == dataset)]
            mean = here.groupby("split").agg(frd=("frd", "first"), score=("recall@1", "mean")).sort_values("frd")
            line = lines.loc[(dataset, "ladder")]
            assert line["score"] == pytest.approx(ags(mean["frd"], mean["score"]))
            assert line["kept"] == pytest.approx(mean["score"].iloc[-1] / mean["score"].iloc[0])
            assert line["rank:of"] == len(METHODS) - 1
            whole.append(line["score"])
        assert lines.loc[("all ladders", "mean"), "score"] == pytest.approx(np.mean(whole))
        here = runs[(runs["label"] == label) & (runs["dataset"] == "glyphs-union")]
        domains = here[[column for column in here if re.fullmatch(r"domain:.*:recall@1", column)]].mean().dropna()
        assert lines.loc[("glyphs-union", "union"), "score"] == pytest.approx(harmonic_mean(domains))


def test_a_protocol_with_one_ladder_has_no_mean_over_ladders(tmp_path: Path) -> None:
    """Another protocol has another ladder: the mean of either is the ladder's own score, which stands there already."""
    write_sample(tmp_path, {"margin": 0.6, "s2sd": 0.7}, ("glyphs", "cars"), seeds=1, union=False)
    frame = records.collect(tmp_path)
    frame["protocol"] = frame["dataset"]
    known = standings.standings(Results(frame))
    assert set(known["kind"]) == {"ladder"}


def test_a_baseline_is_not_called_a_floor(built: Path) -> None:
    for page in built.glob("method/*.html"):
        assert "floor" not in re.findall(r'<p class="eyebrow">(.*?)</p>', page.read_text(encoding="utf-8"))[0], page


def test_rivals_are_of_the_same_backbone_and_next_in_the_ranking(results: Results) -> None:
    known = standings.standings(results)
    (line,) = [one for one in standings.headline(known, "puma") if one["kind"] == "union"]
    assert [other["label"] for other in standings.rivals(known, line)] == ["vpt"]
    (line,) = [one for one in standings.headline(known, "margin") if one["kind"] == "mean"]
    near = standings.rivals(known, line)
    assert [other["label"] for other in near] == ["s2sd", "proxyanchor"]
    assert all(other["difference"] == pytest.approx(other["score"] - line["score"]) for other in near)


def test_rivals_of_what_was_submitted_are_the_methods_it_is_ranked_among(tmp_path: Path) -> None:
    scores = {"margin": 0.6, "angular": 0.5, "arcface": 0.4}
    for split in range(1, 6):
        for method, score in scores.items():
            records.write(tmp_path / method / str(split), make_record("glyphs", split, method, 0, score))
        records.write(tmp_path / "mine" / str(split), make_record(
            "glyphs", split, "mine", 0, 0.55, source="submitted", protocol={"name": "submitted"}))
    known = standings.of(Results(records.collect(tmp_path)))
    (line,) = standings.headline(known, "mine · submitted")
    assert [(near["label"], near["rank"]) for near in standings.rivals(known, line)] == [
        ("margin", 1), ("angular", 3), ("arcface", 4)]


def texts(page: Path, path: str) -> list[str]:
    tree = html5lib.parse(page.read_text(), namespaceHTMLElements=False)
    return [" ".join("".join(each.itertext()).split()) for each in tree.iterfind(path)]


def test_every_page_of_a_method_shows_its_boards_first(results: Results, built: Path) -> None:
    for label in set(results.runs["label"]):
        page = built / "method" / f"{label}.html"
        text = page.read_text()
        curve, table, training = (text.find(part) for part in ('class="own"', "On every board", "<h2>Training"))
        assert 0 < curve < table, label
        assert training < 0 or table < training
        with (built / "data" / f"{label}-boards.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert len(lines) >= (1 if label in ("puma", "vpt") else 4)
        shown = texts(page, f".//table[@id='table-{label}-boards']/tbody/tr")
        for line, row in zip(lines, shown):
            assert f"{100 * float(line['score']):.1f}" in row
    facts = texts(built / "method" / "puma.html", ".//dl[@class='facts']/div")
    assert any(fact.startswith("Harmonic mean") and re.search(r"\d\d\.\d$", fact) for fact in facts)
    assert any(fact.startswith("Rank") and fact.endswith("of 2") for fact in facts)


def test_rows_of_a_union_alone_are_compared(results: Results, built: Path) -> None:
    text = (built / "compare.html").read_text()
    data: dict[str, Any] = json.loads(re.search(r'id="compare-data">(.*?)</script>', text, re.S)[1])  # type: ignore[index]
    assert {"puma", "vpt", "margin"} <= set(data["labels"])
    one, two = data["labels"].index("puma"), data["labels"].index("margin")
    shared = [cell for cell in data["cells"] if cell["scores"][one] is not None and cell["scores"][two] is not None]
    assert {cell["dataset"] for cell in shared} == {"glyphs-union"}
    assert [cell["split"] for cell in shared][-2:] == ["unified", "harmonic"]
    board = results.universal("glyphs-union", "demo").wide().set_index("method")
    assert shared[-1]["scores"][one] == pytest.approx(board.at["puma", "harmonic"], abs=1e-5)
    assert all(option in text for option in ('<option value="puma">', '<option value="margin">'))
    table = comparison.versus(data["cells"], data["labels"])
    for column in table.columns[1:]:
        assert table.frame[column.key].ne("").any()


def test_a_union_counts_once_among_wins(results: Results, built: Path) -> None:
    """Five splits of glyphs, eight of cars and the union by its harmonic mean, which its own board ranks by."""
    tree = html5lib.parse((built / "compare.html").read_text(), namespaceHTMLElements=False)
    heads = ["".join(head.itertext()).strip() for head in tree.iterfind(".//*[@id='table-compare']/thead/tr/th")]
    lines = [["".join(cell.itertext()).strip() for cell in line]
             for line in tree.iterfind(".//*[@id='table-compare']/tbody/tr")]
    counts = [told for line in lines for told in line[1:] if told != "–"]
    assert len(heads) == len(lines) + 1 > 3
    assert {sum(map(int, told.split("/"))) for told in counts} == {len(LADDERS["glyphs"]) + len(LADDERS["cars"]) + 1}
    scores = results.universal("glyphs-union", "demo").wide().set_index("method")["harmonic"]
    parts = [cell for cell in comparison.cells(results, ["s2sd", "margin"], "recall@1") if cell.get("union")]
    (counted,) = [cell for cell in parts if not cell["part"]]
    assert counted["scores"] == pytest.approx([scores["s2sd"], scores["margin"]], abs=1e-5)


def test_submitted_rows_are_compared_once_on_a_union_of_two_protocols(tmp_path: Path) -> None:
    """They stand on the board of either protocol."""
    parts = {"a": 0.5, "b": 0.6}
    for name, protocol, source in (("margin", "demo", "run"), ("arcface", "demo", "run"), ("s2sd", "other", "run"),
                                   ("mine", "submitted", "submitted"), ("theirs", "submitted", "submitted")):
        made = make_record("glyphs-union", 1, name, 0, 0.5, parts, source=source, protocol={"name": protocol})
        records.write(tmp_path / name, made)
    results = Results(records.collect(tmp_path))
    assert {protocol: len(results.universal("glyphs-union", protocol)) for protocol in ("demo", "other")} == {
        "demo": 4, "other": 3}
    found = comparison.cells(results, sorted(results.runs["label"].unique()), "recall@1")
    assert [cell["split"] for cell in found] == ["a", "b", "unified", "harmonic"]
    assert all(None not in cell["scores"] for cell in found)


def test_a_link_to_compare_names_rows_by_their_pages(built: Path) -> None:
    text = (built / "method" / "margin.html").read_text()
    assert 'href="../compare.html#pin=margin|s2sd"' in text


def test_a_drawn_curve_has_the_numbers_of_the_csv(built: Path) -> None:
    with (built / "data" / "glyphs-recall-1.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    for label in METHODS:
        text = (built / "method" / f"{label}.html").read_text()
        said = re.search(rf'<desc id="{label}-glyphs-desc">{label}: (.*?)\. In grey', text)
        assert said, label
        drawn = re.findall(r"([\d.]+) at distance", said[1])
        rungs = [value for key, value in rows[label].items() if re.fullmatch(r"rung\d+", key)]
        assert drawn == [f"{100 * float(value):.1f}" for value in rungs]


def test_what_is_not_drawn_does_not_widen_the_scale() -> None:
    """A row with one split has no line among the grey ones."""
    own, other = [(10.0, 80.0, 0.0), (30.0, 60.0, 0.0)], [(10.0, 70.0, 0.0), (30.0, 62.0, 0.0)]
    drawn = [method_curve.shift_curve(own, others, (), "a", styles(["a"])["a"], "n", "t", "recall@1")
             for others in ([other], [other, [(20.0, 1.0, 0.0)]])]
    assert drawn[0] == drawn[1]


def test_the_curve_stands_at_its_numbers() -> None:
    own = [(10.0, 80.0, 1.0), (30.0, 60.0, 2.0)]
    drawn = method_curve.shift_curve(own, [[(10.0, 20.0, 0.0), (30.0, 100.0, 0.0)]], (), "a", styles(["a"])["a"], "n",
                                     "t", "recall@1")
    points = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)
    (field,) = re.findall(r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)" class="field"', drawn)
    (x, y), (x2, y2) = ((float(a), float(b)) for a, b in points)
    assert (x, x2) == (float(field[0]), float(field[2]))
    # 80 and 60 lie a quarter and a half of the way from 100 down to 20
    height = float(field[1]) - float(field[3])
    assert (y - float(field[3])) / height == pytest.approx(0.25, abs=0.01)
    assert (y2 - float(field[3])) / height == pytest.approx(0.5, abs=0.01)
