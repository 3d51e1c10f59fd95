"""What boards, legends and exports claim of their own numbers: one interval, one meaning of a gain and of bold."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reports import exports, records
from reports.analysis import ladder_tables, standings
from reports.analysis.ladder_tables import heat_table
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board
from reports.html import analysis_pages, comparison_pages, dataset_pages
from reports.html.extras import Extras
from reports.storage.queries import NAME, PRECISION, PartResults, QueryResults
from reports.tables import boards, formats
from reports.tidy import tidy_table
from tests.sample_records import LADDERS, make_record, some_pages, write_queries, write_sample


def test_a_cell_has_one_interval_whichever_table_shows_it(tmp_path: Path) -> None:
    """Split s has 8 s test classes, of cars 4 s: its own count bounds its scores, the fewest of its splits an AGS, and
    the fewest of both datasets the mean.
    """
    rng, each = np.random.default_rng(0), {"glyphs": 8, "cars": 4}
    cells = [(dataset, split) for dataset in each for split, _ in LADDERS[dataset]]
    for method, score in (("margin", 0.6), ("s2sd", 0.7)):
        for dataset, split in cells:
            labels = np.repeat(np.arange(each[dataset] * split), 10)
            hits = rng.random(len(labels)) < score
            made = records.write(tmp_path / dataset / method / str(split), make_record(dataset, split, method, 0,
                                                                                       hits.mean()))
            write_queries(made.parent, labels, hits)
    results = Results(records.collect(tmp_path), with_published=False)
    tidy = tidy_table(results, "ladder").set_index(["dataset", "method", "split"])
    mean = results.ags("recall@1", "demo").wide().set_index("method").sort_index()
    for dataset, fewest in each.items():
        page = pd.read_csv(StringIO(formats.to_csv(heat_table(results, dataset, "recall@1")))).set_index("method")
        for (method, split), cell in tidy.loc[dataset].iterrows():
            shown = page.loc[method, [f"rung{split}:low", f"rung{split}:high"]].tolist()
            assert shown == pytest.approx(cell[["low", "high"]].tolist(), abs=1e-12)
        assert results.classes("recall@1", [dataset]) == fewest
        ladder = rung_board(results, dataset, "recall@1").wide().set_index("method").sort_index()
        ends = [f"ags:{dataset}:low", f"ags:{dataset}:high"]
        np.testing.assert_allclose(ladder[ends], mean[ends], rtol=1e-12)
    assert results.draws(results.ags("recall@1", "demo"), "recall@1")[1] == {
        ("ags", "cars"): 4, ("ags", "glyphs"): 8, ("mean", ""): 4}


@pytest.mark.parametrize("own", [True, False])
def test_a_gain_names_the_frozen_network_it_is_over(tmp_path: Path, own: bool) -> None:
    """The sample's frozen network is of another backbone than its methods."""
    write_sample(tmp_path, {"frozen": 0.2, "margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1, union=False)
    frame = records.collect(tmp_path)
    (trained,) = set(frame.loc[frame["method"] != "frozen", "backbone"])
    results = Results(frame.assign(backbone=trained) if own else frame, with_published=False)
    (label,) = {label for key, label in results.labels.items() if key[0] == "s2sd"}
    tables = [boards.ags_table(results.ags("recall@1", "demo")), heat_table(results, "glyphs", "recall@1"),
              standings.of_row(standings.of(results), label, "x")]
    told = [column.about for table in tables for column in table.columns if column.head == "vs frozen"]
    gains = ladder_tables.gain_table(results, "glyphs", "recall@1")
    assert gains
    assert len(told) == 3
    for words in (*told, gains.caption):
        assert "the frozen network of the row's backbone" in words
        assert (f"or of the protocol's best one where that was not run frozen ({trained})" in words) is not own


def adapt(folder: Path, gain: float, shots: int = 2, episodes: int = 10, iterations: int = 1000) -> None:
    entry = {"episodes": episodes, "iterations": iterations, "zero": {"recall@1": {"mean": 0.5}},
             "few": {"recall@1": {"mean": 0.5 + gain}}}
    (path := folder / "fewshot.json").write_text(json.dumps({
        "schema": 1, "adaptation": {"lr": 1e-4},
        "shots": {**(json.loads(path.read_text())["shots"] if path.exists() else {}), str(shots): entry}}))


def test_few_shot_gains_are_over_what_all_adapted_rows_have_alike(tmp_path: Path) -> None:
    """Margin is adapted on two datasets, on one of them in another way; s2sd on one, proxyanchor not at all."""
    methods = {"margin": 0.6, "s2sd": 0.7, "proxyanchor": 0.65}
    runs = write_sample(tmp_path / "runs", methods, ("glyphs", "cars"), seeds=1, union=False)

    def of(dataset: str, split: int, method: str) -> Path:
        (folder,) = (runs / dataset / str(split) / method).iterdir()
        return folder

    def board() -> tuple[dict[str, float], str]:
        results = Results(records.collect(runs), with_published=False)
        table = boards.ags_table(results.ags("recall@1", "demo"))
        shown = any(column.key == "fewshot" for column in table.columns)
        return dict(zip(table.frame["method"], table.frame["fewshot"])) if shown else {}, table.note

    adapt(of("glyphs", 1, "margin"), 0.10)
    adapt(of("glyphs", 2, "margin"), 0.30)
    adapt(of("cars", 1, "margin"), 0.50, episodes=3, iterations=20)
    adapt(of("glyphs", 1, "s2sd"), 0.20)
    adapt(of("cars", 1, "s2sd"), 0.01)
    gains, note = board()
    assert gains == pytest.approx({"margin": 0.1, "s2sd": 0.2, "proxyanchor": np.nan}, nan_ok=True)
    assert "Few-shot" not in note
    adapt(of("glyphs", 1, "s2sd"), 0.20, iterations=500)
    gains, note = board()
    assert gains == {}
    assert "Few-shot gains are not shown: no split was adapted with the same settings for all adapted rows." in note
    adapt(of("glyphs", 1, "s2sd"), 0.40, shots=5)  # what they share is of more shots than each has
    adapt(of("glyphs", 1, "margin"), 0.25, shots=5)
    assert board()[0] == pytest.approx({"margin": 0.25, "s2sd": 0.4, "proxyanchor": np.nan}, nan_ok=True)
    results = Results(records.collect(runs), with_published=False)
    tidy = pd.read_csv(StringIO(exports.export(results, "fewshot", "csv")))
    page = pd.read_csv(StringIO(some_pages(results, analysis_pages.few_shot)["data/fewshot-2.csv"]))
    for frame in (tidy, page):
        here = frame[(frame["method"] == "margin") & (frame["dataset"] == "cars")]
        assert here[["episodes", "iterations", "lr"]].to_numpy().tolist() == [[3, 20, 1e-4]]


def test_seeds_that_were_adapted_in_other_ways_are_not_averaged(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=2, union=False)
    for folder, iterations in zip(sorted((runs / "glyphs" / "1" / "margin").iterdir()), (20, 1000)):
        adapt(folder, iterations / 10_000, iterations=iterations)
    results = Results(records.collect(runs), with_published=False)
    page = pd.read_csv(StringIO(some_pages(results, analysis_pages.few_shot)["data/fewshot-2.csv"]))
    assert dict(zip(page["iterations"], page["gain"])) == pytest.approx({20: 0.002, 1000: 0.1})


def test_of_several_ways_of_adapting_the_most_thorough_stands_for_the_row(tmp_path: Path) -> None:
    """A look with fewer steps is a line of its own on the page and in exports, and none of the gain on the board."""
    runs = write_sample(tmp_path / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1, union=False)
    for method, gain in (("margin", 0.1), ("s2sd", 0.2)):
        (folder,) = (runs / "glyphs" / "1" / method).iterdir()
        adapt(folder, gain)
        whole = json.loads((path := folder / "fewshot.json").read_text())
        adapt(folder, 0.01, iterations=20)
        look = json.loads(path.read_text())
        path.write_text(json.dumps(look | {"others": [{key: whole[key] for key in ("adaptation", "shots")}]}))
    results = Results(records.collect(runs), with_published=False)
    table = boards.ags_table(results.ags("recall@1", "demo"))
    assert dict(zip(table.frame["method"], table.frame["fewshot"])) == pytest.approx({"margin": 0.1, "s2sd": 0.2})
    for frame in (pd.read_csv(StringIO(exports.export(results, "fewshot", "csv"))),
                  pd.read_csv(StringIO(some_pages(results, analysis_pages.few_shot)["data/fewshot-2.csv"]))):
        assert sorted(frame.loc[frame["method"] == "margin", "iterations"]) == [20, 1000]


@pytest.mark.parametrize("queries", [True, False])
def test_latex_says_once_what_is_bold(tmp_path: Path, queries: bool) -> None:
    """With tests all that tie are bold, as the note says; without them the best alone, as the first line says."""
    write_sample(tmp_path, {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1, union=False, queries=queries)
    results = Results(records.collect(tmp_path), with_published=False)
    table = boards.ags_table(results.ags("recall@1", "demo"))
    first, *_, last = formats.to_latex(table).splitlines()
    assert ("the best ranked row of a column" in first) is not queries
    assert ("underlined: the next best and all that tie with it" in first) is queries
    assert ("all that tie with the best of their backbone are bold" in last) is queries
    plain = exports.export(results, "runs", "latex").splitlines()
    assert plain[0] == r"% needs \usepackage{booktabs}"


def test_rankings_of_a_split_without_a_difference_have_no_tau(tmp_path: Path) -> None:
    for method, fall in (("margin", 0.02), ("s2sd", 0.03)):
        for split, _ in LADDERS["glyphs"]:
            records.write(tmp_path / method / str(split), make_record("glyphs", split, method, 0,
                                                                      0.7 - fall * (split - 1)))
    results = Results(records.collect(tmp_path), with_published=False)
    page = some_pages(results, lambda site: dataset_pages.ladder(site, "glyphs", Extras(None)))["dataset/glyphs.html"]
    assert "nearest and the farthest is not defined, as all scores of one of them are equal: 0 of 1 pairs" in page


def test_an_imported_split_is_of_no_iteration(tmp_path: Path) -> None:
    for split, kind, iteration in ((1, "default", 0), (2, "imported", 0), (3, "removal", 9)):
        record = make_record("glyphs", split, "margin", 0, 0.7)
        record["split"] |= {"kind": kind, "iteration": iteration}
        records.write(tmp_path / str(split), record)
    table = ladder_tables.split_table(Results(records.collect(tmp_path), with_published=False), "glyphs")
    column = next(column for column in table.columns if column.key == "iteration")
    assert [table.text(row, column) for row in table.rows] == ["0", "–", "9"]


def test_the_page_of_statistics_says_of_which_measures_classes_are_resampled(tmp_path: Path) -> None:
    """Those that its own tables give an interval to with a single seed, and no other."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(3), 4)
    for method, score in (("margin", 0.6), ("s2sd", 0.7)):
        for split, _ in LADDERS["glyphs"]:
            made = records.write(tmp_path / method / str(split), make_record("glyphs", split, method, 0, score))
            QueryResults(rng.integers(0, 3, 12), np.ones(12, bool), labels,
                         precision={key: rng.random(12) for key in PRECISION}).save(made.parent / NAME)
    results = Results(records.collect(tmp_path), with_published=False)
    bounded = [metric for metric in (*results.metrics, "r-precision")
               if tidy_table(results, "ladder", metric)["low"].notna().all()]
    page = some_pages(results, comparison_pages.statistical)["statistics.html"]
    assert f"<li>{', '.join(bounded[:-1])} and {bounded[-1]}: what came of the queries is kept" in page


def test_one_test_class_tells_no_error_of_other_classes(tmp_path: Path) -> None:
    """Redrawn it is itself again: an interval of no width, and ranks of no doubt, would be made of that."""
    for method, hits in (("margin", 18), ("s2sd", 12)):
        for split, _ in LADDERS["glyphs"]:
            made = records.write(tmp_path / method / str(split), make_record("glyphs", split, method, 0, hits / 20))
            write_queries(made.parent, np.zeros(20, int), np.arange(20) < hits)
        union = records.write(tmp_path / method / "union", make_record(
            "glyphs-union", 1, method, 0, hits / 20, {"latin": hits / 20, "greek": hits / 20}))
        right = (np.arange(20) % 10 < hits // 2).astype(int)
        QueryResults(right, np.ones(20, bool), np.repeat([0, 1, 2], [10, 5, 5]), parts=PartResults(
            np.repeat([0, 1], 10), np.array(["latin", "greek"]), right)).save(union.parent / NAME)
    results = Results(records.collect(tmp_path), with_published=False)
    assert tidy_table(results, "ags")[["low", "high"]].isna().all(axis=None)
    assert tidy_table(results, "ladder")[["low", "high"]].isna().all(axis=None)
    assert "not tested" in heat_table(results, "glyphs", "recall@1").note
    union = results.universal("glyphs-union", "demo").wide()
    assert union["recall:latin:high"].isna().all()  # of one class; the other part has two, the union three
    assert union[["recall:greek:high", "unified:high"]].notna().all(axis=None)


def test_rows_whose_intervals_lack_the_test_classes_are_named(tmp_path: Path) -> None:
    """One of three keeps no results of queries: its interval is Student's over seeds, the others' are wider."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(6), 10)
    for method in ("diva", "margin", "s2sd"):
        for split, seed in ((split, seed) for split, _ in LADDERS["glyphs"] for seed in range(2)):
            hits = rng.random(60) < np.repeat([0.1, 0.9, 0.3, 0.7, 0.2, 0.8], 10)
            made = records.write(tmp_path / method / f"{split}-{seed}", make_record("glyphs", split, method, seed,
                                                                                    hits.mean()))
            if method != "s2sd":
                write_queries(made.parent, labels, hits)
    note = heat_table(Results(records.collect(tmp_path), with_published=False), "glyphs", "recall@1").note
    assert note.count("the intervals are over seeds alone") == 1
    assert "Of s2sd the intervals are over seeds alone, not over test classes as those of other rows." in note
