"""Studies that are not finished: one seed, rungs missing, two networks; nothing is imputed, nothing is overstated."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.records import command
from benchmark.commands.report import command as report
from benchmark.config import overrides
from reports import ReportError, aggregate, records, site
from reports.analysis import baselines, board_columns, study_progress
from reports.analysis.results import Results
from reports.figures import comparisons, drawing, inline, ladders
from reports.html import dataset_pages, method_pages
from reports.html.extras import Extras
from reports.html.rendering import Site
from reports.overrides import with_overrides
from splits import manifest
from tests.sample_records import LADDERS, make_record, some_pages, write_queries

PUBLISHED = Path(__file__).parent.parent / "reports" / "data" / "records"
SCORES = {"frozen": (0.3, 0.3, 0.3, 0.2, 0.2), "margin": (0.8, 0.7, 0.7, 0.6, 0.5), "npair": (0.7, 0.7, 0.6, 0.6, 0.4),
          "supcon": (None, 0.7, 0.6, 0.6, None), "diva": (0.5, None, 0.2, None, None)}


def record(split: int, method: str, score: float, backbone: str = "small") -> dict:
    made = make_record("glyphs", split, method, 0, score)
    made["identity"] = f"{len(backbone):02d}" + made["identity"][2:]
    return made | {"backbone": {"name": backbone, "weights": None}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    labels = np.repeat(np.arange(30), 10)
    for method, scores in SCORES.items():
        for split, score in enumerate(scores, 1):
            if score is not None:
                to = folder / "glyphs" / str(split) / method / "s0-small"
                records.write(to, record(split, method, score))
                write_queries(to, labels, np.random.default_rng(split).random(300) < score)
    for split, score in ((1, 0.4), (2, 0.4)):
        records.write(folder / "glyphs" / str(split) / "frozen" / "s0-large", record(split, "frozen", score, "large"))
    return folder


def test_the_frozen_network_is_that_of_the_same_network(runs: Path) -> None:
    cells = baselines.gain_over_frozen(aggregate.rung_scores(records.collect(runs), "glyphs"))
    margin = cells[cells["method"] == "margin"].sort_values("split")
    assert margin["gain"].tolist() == pytest.approx([0.5, 0.4, 0.4, 0.4, 0.3])
    board = board_columns.with_costs(aggregate.ags_board(records.collect(runs)), records.collect(runs)).wide()
    ours = board.set_index(["method", "backbone"])["mean"]
    gain = board.set_index(["method", "backbone"])["gain"]
    assert gain["margin", "small"] == pytest.approx(ours["margin", "small"] - ours["frozen", "small"])


def test_without_a_frozen_run_of_its_network_the_best_of_the_protocol_counts() -> None:
    rows = pd.DataFrame([("frozen", "p", "a", 0.2), ("frozen", "p", "b", 0.3), ("margin", "p", "c", 0.9),
                         ("margin", "q", "a", 0.9)], columns=["base_method", "protocol", "backbone", "score"])
    found = baselines.frozen_score(rows, "score", ["protocol"])
    assert found[:3].tolist() == [0.2, 0.3, 0.3]
    assert math.isnan(found[3])


def test_a_frozen_network_is_the_same_under_every_length_of_training() -> None:
    rows = pd.DataFrame([("frozen", "p", "a", 0.2), ("margin", "p[epochs=40]", "a", 0.9),
                         ("margin", "p[epochs=40,resize=288]", "a", 0.9)],
                        columns=["base_method", "protocol", "backbone", "score"])
    found = baselines.frozen_score(rows, "score", ["protocol"])
    assert found[:2].tolist() == [0.2, 0.2]
    assert math.isnan(found[2])  # it sees other pixels


def test_nothing_is_said_of_falling_below_where_a_rung_is_missing(runs: Path) -> None:
    below = baselines.falls_below(aggregate.rung_scores(records.collect(runs), "glyphs")).set_index("method")["below"]
    assert math.isinf(below["margin"])
    assert math.isnan(below["supcon"])
    assert math.isnan(below["diva"])


@pytest.fixture(scope="module")
def built(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    frame, lost = records.scan(runs)
    return site.build(Results(frame, studies=[study(folder)]), lost, folder / "site").parent


def test_one_seed_prints_no_bar_and_says_so(built: Path) -> None:
    texts = {path.name: re.sub(r"<svg.*?</svg>|<script.*?</script>|<[^>]+>", " ", path.read_text(), flags=re.S)
             for path in built.rglob("*.html") if path.name not in ("published.html", "audit.html", "about.html")}
    for name, text in texts.items():
        assert not re.search(r"\bnan\b|\bNone\b(?! of the)|± ?0\.0\b|standard deviation over seeds", text), name
    assert "a single seed says nothing of the chance of training" in texts["index.html"]
    assert "There is one seed" in texts["statistics.html"]
    home = (built / "index.html").read_text()
    table = home[home.index('id="table-ags-demo-recall-1"'):]
    order = re.findall(r'method/([a-z-]+)\.html', table[:table.index("</table>")])
    assert order.index("supcon") > order.index("npair")
    assert "3 of 5" in texts["index.html"]
    assert "diva" not in order, "it has the default split, and a board for that"
    table = home[home.index('id="table-home-glyphs-default-recall-1"'):]
    assert "diva" in re.findall(r'method/([a-z-]+)\.html', table[:table.index("</table>")])


def test_a_small_curve_starts_at_the_nearest_split_and_ends_where_its_runs_do(runs: Path) -> None:
    frame, lost = records.scan(runs)
    sparks = Site(Results(frame), lost).sparks("recall@1")
    assert "supcon" not in sparks
    ends = {label: float(re.findall(r'cx="([\d.]+)"', drawn)[0]) for label, drawn in sparks.items()}
    near, far = LADDERS["glyphs"][0][1], LADDERS["glyphs"][-1][1]
    assert ends["margin"] == pytest.approx(2 + 76)
    assert ends["diva"] == pytest.approx(2 + 76 * (LADDERS["glyphs"][2][1] - near) / (far - near), abs=0.06)
    assert inline.sparkline([1], [1], (0, 1), (0, 1)) == ""


def test_names_stay_inside_the_figure_and_at_the_end_of_their_curve(runs: Path) -> None:
    labels = [f"method-{i}" for i in range(12)]
    cells = pd.DataFrame([(label, split, frd, 0.7 - 0.001 * i, math.nan, "swap", False)
                          for i, label in enumerate(labels) for split, frd in LADDERS["glyphs"]],
                         columns=["label", "split", "frd", "score", "std", "kind", "baseline"])
    short = cells[(cells["label"] != "method-3") | (cells["split"] <= 2)]
    drawn = ladders.ladder_curve(short, drawing.styles(labels), "a", "A", "recall@1")
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
    places = {label: place for label, place in texts(drawn).items() if label in labels}
    assert len(places) == len(labels)
    assert all(0 < y < height for _, y in places.values())
    assert places["method-3"][0] < 0.5 * width < places["method-0"][0]
    heights = sorted(y for label, (_, y) in places.items() if label != "method-3")
    assert min(high - low for low, high in pairwise(heights)) > 11
    points = cells[(cells["label"] == "method-0") | (cells["split"] == 2)]
    drawn = ladders.ladder_curve(points, drawing.styles(labels), "a", "A", "recall@1")
    assert set(texts(drawn)) & set(labels) == {"method-0"}, "eleven points in one place say nothing along a ladder"
    drawn = ladders.ladder_curve(cells[cells["split"] == 2], drawing.styles(labels), "a", "A", "recall@1")
    assert set(texts(drawn)) & set(labels) == set(labels)


def test_a_line_is_thin_over_splits_that_were_not_trained_on() -> None:
    splits = [split for split, _ in LADDERS["glyphs"]]
    has = {"whole": splits, "ends": [splits[0], splits[-1]], "start": splits[:2], "far": [splits[0], *splits[-2:]]}
    cells = pd.DataFrame([(label, split, frd, 0.7 - 0.01 * split, 0.02, "swap", False) for label in has
                          for split, frd in LADDERS["glyphs"] if split in has[label]],
                         columns=["label", "split", "frd", "score", "std", "kind", "baseline"])
    root = ElementTree.fromstring(ladders.ladder_curve(cells, drawing.styles(list(has)), "a", "A", "recall@1"))
    rows = {group.get("data-method"): {part.get("class"): part.get("d", "") for part in group} | dict(group.items())
            for group in root.iter() if group.get("data-method")}
    corners = {label: [stretch.count("L") for stretch in row["stroke"].split("M")[1:]] for label, row in rows.items()}
    assert corners == {"whole": [4], "ends": [0, 0], "start": [1], "far": [0, 1]}
    assert {label: row.get("data-after-gap") for label, row in rows.items()} == {
        "whole": None, "ends": "1", "start": None, "far": "1"}
    assert {label for label, row in rows.items() if "gap" in row} == {"ends", "far"}
    assert rows["far"]["gap"].startswith(rows["far"]["stroke"].split("M")[1].join(("M", "L"))), "from its first point"
    assert [rows[label]["band"].count("z") for label in has] == [1, 2, 1, 2], "and no band lies over a gap"


def study(tmp_path: Path) -> study_progress.StudyProgress:
    rows = [(method, "small", 15) for method in (*SCORES, "uniform-prior")] + [("frozen", "large", 15)]
    frame = pd.DataFrame([{"dataset": "glyphs", "method": method, "protocol": "demo", "backbone": backbone,
                           "runs": count} for method, backbone, count in rows])
    study_progress.write(tmp_path, study_progress.StudyProgress("try", "Every method.", "oodml run --study try", frame))
    (found,) = study_progress.read([tmp_path])
    pd.testing.assert_frame_equal(found.rows, frame)
    return found


def test_a_study_is_held_against_the_runs_that_are_there(runs: Path, built: Path, tmp_path: Path) -> None:
    asked = study(tmp_path)
    frame = records.collect(runs)
    told = study_progress.shown(asked, Results(frame).runs)
    assert told
    assert (told["done"], told["runs"]) == (5 + 5 + 5 + 3 + 2 + 2, 7 * 15)
    assert told["parts"] == [{"dataset": "glyphs", "backbone": "small", "done": 20, "runs": 90},
                             {"dataset": "glyphs", "backbone": "large", "done": 2, "runs": 15}]
    assert told["table"].frame.iloc[0][["method", "done", "missing"]].tolist() == ["uniform-prior", 0, 15]
    home = (built / "index.html").read_text()
    assert "20/90" in home
    assert "oodml run --study try" in home
    assert study_progress.shown(asked, frame.iloc[:0]) is None
    (tmp_path / "studies" / "try.json").write_text("{")
    with pytest.raises(ReportError, match=r"try\.json is damaged"):
        study_progress.read([tmp_path])


def test_a_run_on_another_ladder_is_not_the_studys(tmp_path: Path) -> None:
    for split in (1, 2):
        records.write(tmp_path / str(split), make_record("glyphs", split, "margin", 0, 0.5))
    runs = records.collect(tmp_path)
    row = {"dataset": "glyphs", "method": "margin", "protocol": "demo", "backbone": runs["backbone"].iloc[0], "runs": 2}
    hashes = runs["split_hash"].str[:study_progress.DIGITS].tolist()
    other = "f" * study_progress.DIGITS
    for splits, done in ((" ".join(hashes), 2), (f"{hashes[0]} {other}", 1), (other, 0)):
        rows = pd.DataFrame([row | {"splits": splits}])
        study_progress.write(tmp_path, study_progress.StudyProgress("try", "", "", rows))
        (asked,) = study_progress.read([tmp_path])
        assert asked.held_against(runs)["done"].tolist() == [done]


def test_the_published_records_are_whole() -> None:
    """What is committed can be read to the last line, lies on the ladder beside it, and is part of its study."""
    frame, lost = records.scan(PUBLISHED)
    assert lost.empty
    assert frame["identity"].is_unique
    for (home, dataset), here in frame.assign(home=frame["path"].map(lambda path: Path(path).parents[2])).groupby(
            ["home", "dataset"]):
        ladder = manifest.load(home / "splits" / f"{dataset}.json")
        assert set(here["split_hash"]) <= {split.hash for split in ladder.splits}
    frame = with_overrides(frame, overrides.of_run)
    counts = {asked.name: asked.held_against(frame)[["done", "runs"]].sum().tolist() for asked in
              study_progress.read([PUBLISHED])}
    assert {"glyphs", "photos-cars", "photos-cub", "photos-cub-long", "photos-union"} < set(counts)
    assert {name: told for name, told in counts.items() if told[0] != told[1]} == {}


def test_published_records_travel_with_their_ladder(tmp_path: Path) -> None:
    work, folder = tmp_path / "work", PUBLISHED / "precision"
    result = CliRunner().invoke(command, ["unpack", str(folder), "--work", str(work)])
    assert result.exit_code == 0, result.output
    source = folder / "splits" / "glyphs.json"
    assert (work / "splits" / "glyphs.json").read_bytes() == source.read_bytes()
    (work / "splits" / "glyphs.json").write_text(json.dumps(json.loads(source.read_text()), indent=0))
    result = CliRunner().invoke(command, ["unpack", str(folder), "--work", str(work)])
    assert "is another ladder" not in result.output, "the same one, written otherwise"
    ladder = manifest.load(source)
    manifest.save(replace(ladder, splits=ladder.splits[:-1]), work / "splits" / "glyphs.json")
    result = CliRunner().invoke(command, ["unpack", str(folder), "--work", str(work)])
    assert "is another ladder" in result.output
    (work / "splits" / "glyphs.json").write_bytes(source.read_bytes())
    result = CliRunner().invoke(command, ["pack", str(tmp_path / "again"), "--work", str(work)])
    assert result.exit_code == 0, result.output
    for path in (folder / "glyphs").iterdir():
        assert (tmp_path / "again" / "glyphs" / path.name).read_bytes() == path.read_bytes(), path.name
    assert (tmp_path / "again" / "splits" / "glyphs.json").read_bytes() == source.read_bytes()


def test_a_report_of_published_records_shows_the_ladder_and_how_far_the_study_is(tmp_path: Path) -> None:
    result = CliRunner().invoke(report, ["--records", str(PUBLISHED / "precision"), "--work", str(tmp_path)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "leaderboard" / "dataset" / "glyphs.html").read_text()
    assert "figures/glyphs-progression.svg" in page
    assert (tmp_path / "leaderboard" / "figures" / "glyphs-progression.svg").is_file()
    unfinished = [asked for asked in study_progress.read([PUBLISHED / "precision"]) if asked.command in result.output]
    home = (tmp_path / "leaderboard" / "index.html").read_text()
    assert all(asked.command in home for asked in unfinished)


def test_a_rung_with_floors_alone_is_no_rung_of_the_methods(tmp_path: Path) -> None:
    for method, scores in {"frozen": (0.3, 0.3, 0.3, 0.2, 0.2), "margin": (0.8, 0.7, 0.7, 0.6),
                           "npair": (0.7, 0.8, 0.6, 0.5)}.items():
        for split, score in enumerate(scores, 1):
            records.write(tmp_path / "runs" / f"{method}{split}", record(split, method, score))
    results = Results(records.collect(tmp_path / "runs"))
    page = some_pages(results, lambda site: dataset_pages.ladder(site, "glyphs", Extras()))["dataset/glyphs.html"]
    assert "margin: 1, 2, 1, 1; npair: 2, 1, 2, 2." in page
    assert "the nearest and the farthest is 1.00" in page


def test_names_in_figures_keep_their_digits() -> None:
    label = "margin[margin_lr=0.0005]"
    cells = pd.DataFrame([(label, split, frd, 0.7, math.nan, "swap", False) for split, frd in LADDERS["glyphs"]],
                         columns=["label", "split", "frd", "score", "std", "kind", "baseline"])
    drawn = ladders.ladder_curve(cells, drawing.styles([label]), "a", "A 0.1234", "recall@1")
    root = ElementTree.fromstring(drawn)
    told = [element.text or "" for element in root.iter()]
    assert label in told
    assert "A 0.1234" in told
    assert any(text.endswith(f"{label} ends at 70.0.") for text in told)
    numbers = [number for element in root.iter() for key, value in element.attrib.items() if key != "data-method"
               for number in re.findall(r"\.(\d+)", value)]
    assert len(numbers) > 50
    assert max(map(len, numbers)) == 2


def texts(drawn: str) -> dict[str, tuple[float, float]]:
    """(x, y) of every text of a figure."""
    found = {}
    for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text"):
        place = re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
        x, y = place[0] if place else (element.get("x"), element.get("y"))
        found[element.text or ""] = float(x), float(y)
    return found


def test_the_parts_of_a_union_are_named_apart_and_inside_and_so_are_the_best_rows() -> None:
    sizes = {"glyphs-georgian": 288, "glyphs-greek": 288, "glyphs-armenian": 312, "glyphs-latin": 1440}
    labels = [f"method-{i:02d}" for i in range(30)]
    board = pd.DataFrame([{"label": label, "baseline": False} | {f"recall:{part}": 0.9 - 0.01 * i for part in sizes}
                          for i, label in enumerate(labels)])
    look = drawing.styles(labels, rankings=[labels[20:] + labels[:20], labels])
    drawn = ladders.size_bias(board, sizes, look, "a", "A", "recall@1")
    assert [len({look[label].colour for label in eight}) for eight in (labels[:8], labels[20:28])] == [8, 8]
    hidden = {element.text for element in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
              if element.get("display") == "none"}
    found = texts(drawn)
    assert {label for label in found if label.startswith("method")} - hidden == set(labels[:8])
    names = [f"{part} {size:,}" for part, size in sizes.items()]
    height = float(re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', drawn)[0])
    em = 11 * 0.6  # of a letter of this size; 40 degrees
    for name in names:
        x, y = found[name]
        assert x > math.cos(math.radians(40)) * em * len(name)
        assert y + math.sin(math.radians(40)) * em * len(name) < height
    places = [found[name][0] for name in names]
    assert all(right - left > 11 for left, right in pairwise(places))


def test_legends_show_every_dataset_whole() -> None:
    names = [f"glyphs-armenian-{i}" for i in range(12)]
    curve = [{"epoch": epoch, "loss": 1 / epoch, "recall@1": 0.5} for epoch in (1, 2)]
    trained = inline.training_curves([(name, curve) for name in names], "a", "A", "recall@1")
    points = pd.DataFrame([(name, "default", 0.5, 0.5) for name in names],
                          columns=["dataset", "kind", "recall@1", "rho"])
    scattered = comparisons.scatters(points, ["rho"], "recall@1", "b", "B")
    for drawn, em in ((trained, 8.5 * 0.6), (scattered, 8 * 0.6)):
        width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
        found = texts(drawn)
        for name in names:
            x, y = found[name]
            assert x + em * len(name) < width
            assert y < height


def test_the_card_of_a_method_draws_the_training_on_every_dataset(tmp_path: Path) -> None:
    names = [f"d{i}" for i in range(9)]
    for name in names:
        records.write(tmp_path / "runs" / name, make_record(name, 1, "margin", 0, 0.5))
    results = Results(records.collect(tmp_path / "runs"))
    files = some_pages(results, lambda site: method_pages.write(site, "margin", site.runs, Extras()))
    assert {f"{name}, split 1" for name in names} <= set(texts(files["figures/margin-training.svg"]))
