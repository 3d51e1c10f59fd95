"""The drift of a threshold along a ladder, from records to the page and the export, against all pairs."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmark.metrics import operating_points
from reports import ReportError, exports, packing, records
from reports.analysis import thresholds as drifting
from reports.analysis.results import Results
from reports.html.rendering import Site
from reports.html.threshold_pages import drift
from tests import exact_thresholds as exact
from tests.sample_records import make_record
from tests.test_operating_points import clouds

SPREADS = {1: 0.8, 2: 1.0, 3: 1.3}
FAILURES = pd.DataFrame(columns=list(records.FAILURE_FACTS))


def embedded(split: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return clouds(10 * seed + split, SPREADS[split])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds on three rungs; of another method one record of an earlier version and one without a positive pair."""
    made = tmp_path_factory.mktemp("runs")
    for split in SPREADS:
        for seed in (0, 1):
            fixed = operating_points.fixed_thresholds(operating_points.of_run(*map(np.asarray, embedded(1, seed + 5))))
            kept: dict[str, Any] = operating_points.survey(*embedded(split, seed), fixed=fixed)
            records.write(made / f"margin-{split}-{seed}", make_record(
                "glyphs", split, "margin", seed, 0.7 - 0.1 * split, thresholds=kept))
    note = operating_points.of_run(np.eye(5), np.arange(5))
    assert note == {"note": note["note"]}
    assert "no two of the 5 images" in note["note"]
    records.write(made / "frozen-1", make_record("glyphs", 1, "frozen", 0, 0.2, thresholds=note))
    records.write(made / "frozen-2", make_record("glyphs", 2, "frozen", 0, 0.2))
    return made


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return Results(records.collect(folder), with_published=False)


def test_false_accepts_and_rejects_are_those_of_all_pairs(results: Results) -> None:
    found = results.thresholds
    assert len(found) == 3 * 2 * 2 * 2
    assert set(found["method"]) == {"margin"}
    for row in found.to_dict("records"):
        seed = row["seed"]
        where = embedded(1, seed if row["fixed_on"] == "nearest split" else seed + 5)
        (threshold,) = exact.thresholds_at(*where, [row["rate"]])
        ((accepts, rejects),) = exact.error_rates(*embedded(row["split"], seed), [threshold])
        assert row["threshold"] == pytest.approx(threshold, abs=4e-5)
        assert row["false_accepts"] == pytest.approx(accepts, rel=0.05, abs=1e-4)
        assert row["false_rejects"] == pytest.approx(rejects, abs=5e-3)


def test_the_page_has_curves_and_tables(results: Results) -> None:
    made = Site(results, FAILURES)
    drift(made)
    made.finish()
    page = str(made.files["thresholds.html"])
    assert "glyphs: 1 % false accepts on the nearest split" in page
    assert "glyphs: 0.1 % false accepts on the nearest split" in page
    assert page.count("<svg") >= 4
    table = pd.read_csv(io.StringIO(str(made.files["data/thresholds-glyphs-0.01.csv"])))
    far = results.thresholds.query("split == 3 and rate == 0.01 and fixed_on == 'nearest split'")
    assert table["false_accepts"].tolist() == pytest.approx([100 * far["false_accepts"].mean()], rel=1e-4)
    assert "figures/glyphs-accepts-0.01.svg" in made.files


def test_lines_stand_in_the_order_of_the_boards(results: Results) -> None:
    """The first eight are in colour: the best rows, not the first by the alphabet."""
    own = results.runs[results.runs["method"] == "margin"]
    runs = pd.concat([results.runs, own.assign(method="zeta", base_method="zeta")], ignore_index=True)
    drawn = []
    for best_last in (False, True):
        made = Site(Results(runs, with_published=False), FAILURES)
        made.look = dict(reversed(made.look.items())) if best_last else made.look
        drift(made)
        figure = str(made.files["figures/glyphs-accepts-0.01.svg"])
        drawn.append(re.findall(r'<g class="line" data-method="(\w+)', figure))
    assert sorted(drawn[0]) == ["margin", "zeta"]
    assert drawn[0] == drawn[1][::-1]


def test_a_row_with_one_split_is_not_drawn(results: Results) -> None:
    """Its threshold would be fixed where it is used."""
    some = results.runs[results.runs["split"] == 2].assign(method="other")
    runs = pd.concat([results.runs, some], ignore_index=True)
    found = drifting.collect(runs)
    assert drifting.laddered(found, runs) == ["glyphs"]
    assert set(drifting.cells(found, runs, "glyphs", 0.01, "false_accepts")["method"]) == {"margin"}
    alone = found[found["method"] == "other"]
    assert drifting.laddered(alone, runs) == []


def test_a_row_without_the_nearest_split_has_no_errors_and_no_means(results: Results) -> None:
    """It has no threshold to carry along, and a mean over other splits could not be held against the others."""
    far = results.runs[results.runs["split"] == 3].assign(method="other")
    some = results.runs[results.runs["split"].isin((2, 3))].assign(method="third")
    runs = pd.concat([results.runs, far, some], ignore_index=True)
    found = drifting.collect(runs)
    assert found.loc[(found["method"] != "margin") & (found["fixed_on"] == drifting.NEAREST), [
        "threshold", "false_accepts", "false_rejects"]].isna().all(axis=None)
    assert set(drifting.cells(found, runs, "glyphs", 0.01, "false_accepts")["method"]) == {"margin"}
    table = drifting.table(found, runs, "glyphs", 0.01).frame.set_index("method")
    assert table.loc[["other", "third"], ["near", "false_accepts", "open", "r_auroc", "opis"]].isna().all(axis=None)
    assert table.loc["other", "far"] == table.loc["third", "far"] == table.loc["margin", "far"]


def test_a_split_counts_once_in_the_means_over_a_ladder_however_many_seeds_it_has(results: Results) -> None:
    runs = results.runs[(results.runs["split"] == 3) | (results.runs["seed"] == 0)]
    found = drifting.collect(runs)
    row = drifting.table(found, runs, "glyphs", 0.01).frame.iloc[0]
    here = found[(found["rate"] == 0.01) & (found["fixed_on"] == drifting.NEAREST)]
    for name, measure, scale in (("open", "open_recall", 1), ("r_auroc", "r_auroc", 1), ("opis", "opis", 1000)):
        of_splits = [here.loc[here["split"] == split, measure].mean() for split in (1, 2, 3)]
        assert row[name] == pytest.approx(scale * sum(of_splits) / 3)
        assert row[name] != pytest.approx(scale * here[measure].mean())


def test_of_a_ladder_trained_in_part_a_network_that_is_not_trained_is_told_on_the_same_splits(results: Results) -> None:
    baseline = results.runs.assign(method="frozen", base_method="frozen", baseline=True)
    runs = pd.concat([results.runs[results.runs["split"] != 2], baseline], ignore_index=True)
    table = drifting.table(drifting.collect(runs), runs, "glyphs", 0.01).frame.set_index("method")
    assert table.loc["frozen", "r_auroc"] == pytest.approx(table.loc["margin", "r_auroc"])
    kept = results.thresholds.query("split != 2 and rate == 0.01 and fixed_on == 'nearest split'")
    assert table.loc["margin", "r_auroc"] == pytest.approx(kept["r_auroc"].mean())


def test_the_export_and_packed_records_have_the_same(results: Results, folder: Path, tmp_path: Path) -> None:
    exported = pd.read_csv(io.StringIO(exports.export(results, "thresholds", "csv")))
    assert exported["false_accepts"].to_numpy() == pytest.approx(results.thresholds["false_accepts"].to_numpy())
    packing.pack([folder], tmp_path)
    again = Results(records.collect(tmp_path), with_published=False).thresholds
    pd.testing.assert_frame_equal(again, results.thresholds)


@pytest.mark.parametrize("key", ["tar", "open_recall@1", "validation", "positive"])
def test_a_record_with_a_part_of_its_thresholds_is_left_out(key: str, results: Results) -> None:
    runs = results.runs.copy()
    odd = (runs["split"] == 2) & (runs["seed"] == 1)
    runs["thresholds"] = [{**kept, key: None} if out else kept for kept, out in zip(runs["thresholds"], odd)]
    found = drifting.collect(runs)
    whole = results.thresholds
    pd.testing.assert_frame_equal(found, whole[(whole["split"] != 2) | (whole["seed"] != 1)].reset_index(drop=True))


def test_records_without_thresholds_have_no_page(tmp_path: Path) -> None:
    for split in (1, 2):
        records.write(tmp_path / str(split), make_record("glyphs", split, "margin", 0, 0.5))
    results = Results(records.collect(tmp_path), with_published=False)
    made = Site(results, FAILURES)
    drift(made)
    assert not made.sections
    with pytest.raises(ReportError, match="no run has what the table 'thresholds' shows"):
        exports.export(results, "thresholds", "csv")
