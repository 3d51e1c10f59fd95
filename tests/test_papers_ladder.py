"""What papers print along a ladder is held against runs on that ladder alone; the default split is everybody's."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from benchmark.config import study
from reports import records
from reports.analysis import paper_tables, papers
from reports.analysis.results import Results
from reports.html import analysis_pages, paper_pages
from tests.sample_records import some_pages
from tests.test_papers import record

PRINTED = paper_tables.read("oodml_split_fid")
LADDERS = {name: list(zip(rungs["split"].tolist(), rungs["fid"].tolist())) for name, rungs in
           PRINTED.groupby("dataset", sort=False)}
OTHER = [(1, 42.7), (2, 128.1), (3, 199.0), (4, 267.0), (5, 331.6), (6, 392.5), (7, 457.4), (8, 529.0), (9, 589.5)]
"""As the default split of CUB, its second, and those around it lie by other features."""


def write(folder: Path, dataset: str, ladder: Sequence[tuple[int, float]], default: int) -> Results:
    """Runs of one method on every split of a ladder, 0.9 on the first, 0.01 less on each after; images are missing."""
    for split, frd in ladder:
        made = record(dataset, 1, "margin", 0, 0.91 - 0.01 * split, "oodml", "resnet50")
        made["split"] |= {"id": split, "kind": "default" if split == default else "swap", "frd": frd,
                          "train_images": paper_tables.IMAGES[dataset][0] - 15, "ladder": [[*rung] for rung in ladder]}
        made["identity"] = f"{split:064x}"
        records.write(folder / str(split), made)
    return Results(records.collect(folder))


def filled(results: Results, name: str) -> papers.Filled:
    return next(one for one in papers.page("oodml", results.runs, study.filled_by()) if one.item.name == name)


def measured(one: papers.Filled, metric: str = "recall@1") -> dict[int, float]:
    """Our numbers of a metric by the split of the paper."""
    return {shown.cell.sought.split: shown.ours.mean for shown in one.shown
            if shown.cell.sought and shown.ours.n and shown.cell.sought.metric == metric}


def test_on_another_ladder_the_default_split_alone_is_held_against_the_paper(tmp_path: Path) -> None:
    results = write(tmp_path, "cub", OTHER, default=2)
    table = filled(results, "Supplement Table 4")
    assert measured(table) == {3: pytest.approx(89.0)}, "the second split here is the third of the paper"
    assert measured(filled(results, "Supplement Table 1"), "frd") == {3: pytest.approx(128.1)}
    assert measured(filled(results, "Figure 3")) == {}, "no AGS"
    why = ("because the ladder of cub has 9 rungs at distances from 42.7 to 589.5 here and 9 from 19.2 to 173.9 in the "
           "papers")
    assert filled(results, "Figure 3").status == f"0 of 24 numbers measured, 8 not compared, {why}"
    # seven other methods lack the default split, on which a run would be compared
    assert {shown.cell.column[1] for shown in table.shown if shown.missing} == {"split 3"}
    assert all(shown.apart for shown in table.shown if shown.cell.column[1] != "split 3")
    page = some_pages(results, analysis_pages.papers, lambda site: paper_pages.write(site, {}))
    assert str(page["paper/oodml.html"]).count(why) == 6
    assert "not compared" not in str(page["paper/revisiting.html"]), "it has default splits alone"
    told = pd.read_csv(io.StringIO(str(page["data/paper-oodml-supplement-table-4.csv"])))
    assert set(told.loc[told["not_compared"].isna(), "column"]) == {"recall@1 split 3", "map@1000 split 3"}
    assert told.loc[told["not_compared"].notna(), "ours"].isna().all()


@pytest.mark.parametrize(("dataset", "default", "table"), [("cub", 3, "Supplement Table 4"),
                                                           ("cars", 1, "Supplement Table 5")])
def test_on_the_papers_ladder_every_split_is(tmp_path: Path, dataset: str, default: int, table: str) -> None:
    assert paper_tables.default_rungs()[dataset] == default
    results = write(tmp_path, dataset, LADDERS[dataset], default)
    assert "images here and" in results.unlike_papers[dataset], "the boards, which rank, ask for the images as well"
    scores = {split: 91.0 - split for split, _ in LADDERS[dataset]}
    assert measured(filled(results, table)) == pytest.approx(scores)
    for distances, count in (("Table 1", 1), ("Supplement Table 1", len(LADDERS[dataset]))):
        assert measured(filled(results, distances), "frd") == {}, "its distances are the printed ones, taken over"
        why = f"because the ladder of {dataset} is the released one, with the paper's own distances"
        assert f", {count} not compared, {why}" in filled(results, distances).status
    assert len(measured(filled(results, "Figure 3"))) == 1
    assert "not compared" not in "".join(papers.summary([filled(results, table)]))


def test_a_misprinted_distance_makes_no_other_ladder() -> None:
    released = [(split, 86.12 if split == 6 else frd) for split, frd in LADDERS["cars"]]
    assert paper_tables.has_papers_ladder(released, "cars")
    assert not paper_tables.ladder_differs(released, "cars")
    for split in (2, 6):
        other = [(one, frd + 0.2 * (one == split)) for one, frd in released]
        assert not paper_tables.has_papers_ladder(other, "cars"), "distances are printed with one digit"
    assert not paper_tables.has_papers_ladder([], "glyphs"), "of which the paper has no ladder"
    assert not paper_tables.ladder_differs([(1, 5.0), (2, 9.0)], "glyphs")


def test_the_published_runs_are_held_against_the_paper_on_cars_and_on_the_default_split_of_cub() -> None:
    data = Path(records.__file__).parent / "data" / "records"
    results = Results(records.collect([data / "photos", data / "frozen"]))
    cub, cars = filled(results, "Supplement Table 4"), filled(results, "Supplement Table 5")
    assert set(measured(cub)) == {3}
    assert set(measured(cars)) == set(range(1, 9))
    assert [agreement is not None for agreement in cub.agreement()[:9]] == [split == 3 for split in range(1, 10)]
    assert not any(shown.apart for shown in cars.shown)
