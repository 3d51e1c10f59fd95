"""The share of the score on the nearest split that is left on the farthest: where it is told, and where it is not.

The expected shares are computed from the record files one by one, without the tables of `reports`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import defaultdict
from pathlib import Path

import pytest

from reports import records, site
from reports.analysis import ladder_tables, standings
from reports.analysis.board_columns import kept
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board
from reports.html.rendering import Site
from reports.tables import boards, formats
from tests.sample_records import LADDERS, make_record

ENDS = {  # (method, backbone): score on the nearest split, on the farthest
    ("margin", "conv4"): (0.8, 0.6), ("triplet-xbm", "conv4"): (0.008, 0.31), ("anti-collapse", "conv4"): (0.29, 0.6),
    ("normsoftmax", "conv4"): (0.31, 0.62), ("diva", "conv4"): (0.2, 0.1), ("frozen", "conv4"): (0.3, 0.28),
    ("random", "conv4"): (0.06, 0.07), ("arcface", "vit"): (0.7, 0.63), ("contrastive", "vit"): (0.05, 0.2),
    ("frozen", "sup"): (0.1, 0.2),
}
UNDEFINED = {"triplet-xbm", "anti-collapse", "diva", "contrastive"}
"""Below the frozen network of their backbone; and higher on the farthest split in a backbone without a frozen one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole ladder of glyphs, and of cars both ends alone."""
    made = tmp_path_factory.mktemp("runs")
    for (method, backbone), (near, far) in ENDS.items():
        rungs = LADDERS["glyphs"]
        for place, (split, _) in enumerate(rungs):
            score = near + (far - near) * place / (len(rungs) - 1)
            record = make_record("glyphs", split, method, 0, score, backbone={"name": backbone, "weights": None})
            records.write(made / f"{method}-{backbone}-{split}", record)
        for split, score in ((1, near), (8, far)):
            record = make_record("cars", split, method, 0, score, backbone={"name": backbone, "weights": None})
            records.write(made / f"cars-{method}-{backbone}-{split}", record)
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return Results(records.collect(folder))


def by_hand(folder: Path, dataset: str, metric: str) -> dict[tuple[str, str], float]:
    """Shares by method and backbone, read from the files: nan where the rule has none."""
    scores: dict[tuple[str, str], dict[float, float]] = defaultdict(dict)
    for path in folder.glob("*/record.json"):
        record = json.loads(path.read_text())
        if record["dataset"] == dataset:
            key = record["method"]["name"], record["backbone"]["name"]
            scores[key][record["split"]["frd"]] = record["scores"]["last"][metric]
    shares = {}
    for (method, backbone), curve in scores.items():
        near, far = curve[min(curve)], curve[max(curve)]
        frozen = scores.get(("frozen", backbone))
        baseline = method in ("frozen", "random")
        told = baseline or (near >= frozen[min(frozen)] if frozen else far <= near)
        shares[method, backbone] = far / near if told else math.nan
    return shares


@pytest.mark.parametrize("metric", ["recall@1", "map@r"])
def test_a_share_is_told_of_what_did_not_fail_on_the_nearest_split(folder: Path, results: Results, metric: str) -> None:
    for dataset, board in (("glyphs", results.ags(metric, "demo")), ("glyphs", rung_board(results, "glyphs", metric)),
                           ("cars", rung_board(results, "cars", metric))):
        rows = board.rows.set_index(["method", "backbone"])
        expected = by_hand(folder, dataset, metric)
        assert rows["kept"].to_dict() == pytest.approx(expected, nan_ok=True)
        assert {method for (method, _), share in expected.items() if math.isnan(share)} == UNDEFINED
        assert {method for (method, _), why in rows["kept:why"].items() if why} == UNDEFINED
    known = standings.standings(results)
    lines = known[(known["metric"] == metric) & (known["board"] == "glyphs") & (known["kind"] == "ladder")]
    expected = {results.labels[method, "demo", backbone, "run"]: share
                for (method, backbone), share in by_hand(folder, "glyphs", metric).items()}
    assert dict(zip(lines["label"], lines["kept"])) == pytest.approx(expected, nan_ok=True)


def test_every_file_has_a_dash_or_nothing_where_the_share_says_nothing(results: Results) -> None:
    whole = boards.ags_table(results.ags("recall@1", "demo"))
    part = ladder_tables.heat_table(results, "cars", "recall@1", "trained")
    for table in (whole, part):
        place = [column.key for column in table.columns].index("kept")
        rows = list(csv.DictReader(io.StringIO(formats.to_csv(table))))
        assert {row["method"] for row in rows if row["kept"] == ""} == UNDEFINED
        assert max(float(row["kept"]) for row in rows if row["kept"]) == pytest.approx(2.0)  # normsoftmax, and frozen
        for text, dash, between in ((formats.to_markdown(table), "–", "|"), (formats.to_latex(table), "--", "&")):
            lines = [line.strip(" |\\") for line in text.splitlines()]
            cells = [[cell.strip() for cell in line.split(between)] for line in lines]
            found = {re.sub(r"\W*(?:textbf|underline)?\W*$", "", line[1]): line[place] for line in cells
                     if len(line) == len(table.columns)}
            assert {method for method, share in found.items() if share == dash} == UNDEFINED
            assert "Kept is – where a row is below the frozen network on the nearest split." in text
        said = {row["method"]: row["kept:why"] for row in json.loads(formats.to_json(table))["rows"]}
        assert {method for method, why in said.items() if why} == UNDEFINED


def test_pages_say_why_and_define_it(folder: Path, results: Results, tmp_path: Path) -> None:
    built = site.build(results, records.scan(folder)[1], tmp_path).parent
    page = (built / "index.html").read_text()
    assert page.count('title="Not defined: below the frozen network on the nearest split">–<') >= 3
    assert 'title="Not defined: higher on the farthest split than on the nearest, without a frozen' in page
    meanings = re.findall(r"<dt>Kept, %</dt><dd>(.*?)</dd>", page)
    assert meanings
    assert all("Not defined, –, for a method that is below the frozen network" in text for text in meanings)
    told = {}
    for path in (built / "method").glob("*.html"):
        head, shown = re.search(r"<h1>.*?</span>([\w+-]+)", path.read_text()), path.read_text()
        assert head
        told[path.name] = head[1], re.findall(r"<dt>Kept at the farthest split</dt><dd(.*?)</dd>", shown)
    assert len(told) == len(ENDS)
    for name, (method, shares) in told.items():
        assert shares, name
        assert all(("–" in one and "Not defined" in one) == (method in UNDEFINED) for one in shares), name


def test_no_line_is_drawn_of_an_undefined_share(folder: Path, results: Results) -> None:
    drawn = Site(results, records.scan(folder)[1]).sparks("recall@1")
    assert {label.split(" ")[0] for label in results.labels.values() if label not in drawn} == UNDEFINED


def test_a_board_without_such_rows_says_nothing_of_it(tmp_path: Path) -> None:
    for split, _ in LADDERS["glyphs"]:
        for method, score in (("margin", 0.8), ("s2sd", 0.9)):
            records.write(tmp_path / f"{method}-{split}", make_record("glyphs", split, method, 0, score - 0.1 * split))
    table = boards.ags_table(Results(records.collect(tmp_path)).ags("recall@1", "demo"))
    assert "Kept" not in table.note
    assert table.frame["kept"].tolist() == pytest.approx([0.4 / 0.8, 0.3 / 0.7])


def test_scores_that_are_missing_or_zero_have_no_share() -> None:
    assert kept(0.0, 0.0, math.nan, True) == (pytest.approx(math.nan, nan_ok=True), "at zero on the nearest split")
    for near, far in ((math.nan, 0.5), (0.5, math.nan)):
        share, why = kept(near, far, 0.2)
        assert math.isnan(share)
        assert why == ""
    assert kept(0.2, 0.4)[1].endswith("without a frozen network of its backbone to compare with")
    assert kept(0.2, 0.4, 0.2) == (2.0, "")  # as good as the frozen network, which is not below it
