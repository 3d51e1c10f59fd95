"""Aggregates against the published tables, against numpy and by hand; what is incomplete is never aggregated."""

from __future__ import annotations

import math
import statistics as stdlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

import reports
from reports import ReportError, aggregate, records, selection
from reports.analysis import baselines, board_columns, statistics
from tests.sample_records import LADDERS, make_record, write_sample

PUBLISHED = Path(reports.__file__).parent / "data" / "published"


def test_published_ags_values_are_reproduced() -> None:
    """44 of the 46 that have all their rungs, to the printed decimal; the other two are the paper's own slips."""
    ladder = pd.read_csv(PUBLISHED / "oodml_ladder.csv")
    rungs = ladder.groupby("dataset")["split"].nunique()
    good, bad = 0, {}
    for row in pd.read_csv(PUBLISHED / "oodml_ags.csv").itertuples():
        cells = ladder[(ladder.dataset == row.dataset) & (ladder.metric == row.metric) & (ladder.method == row.method)]
        cells = cells.dropna(subset=["value"])
        if len(cells) < rungs[row.dataset]:
            continue
        value = aggregate.ags(cells["fid"].tolist(), cells["value"].tolist())
        if abs(value - row.ags) <= 0.0501 + 0.02:
            good += 1
        else:
            bad[row.dataset, row.metric, row.method] = round(value, 2)
    assert good == 44
    assert bad == {("cars", "recall@1", "diva"): 78.68, ("cars", "map@1000", "diva"): 28.18}


scores = st.lists(st.tuples(st.floats(0, 500), st.floats(0, 1)), min_size=2, max_size=9, unique_by=lambda pair: pair[0])


@given(scores, st.randoms())
def test_ags_is_scipys_trapezoid_in_any_order(points: list[tuple[float, float]], random: object) -> None:
    x, y = np.array(sorted(points)).T
    if x[-1] - x[0] < 1e-3:
        return
    expected = float(integrate.trapezoid(y, (x - x[0]) / (x[-1] - x[0])))
    random.shuffle(points)  # type: ignore[attr-defined]
    value = aggregate.ags(*map(list, zip(*points)))  # type: ignore[arg-type]
    assert value == pytest.approx(expected, abs=1e-9)
    assert min(y) - 1e-9 <= value <= max(y) + 1e-9


@pytest.mark.parametrize(("fids", "values"), [
    ([1], [1]), ([1, 2], [1]), ([1, 1], [1, 2]), ([1, 2], [1, math.nan]), ([], [])])
def test_ags_is_not_defined_there(fids: list[float], values: list[float]) -> None:
    with pytest.raises(ReportError):
        aggregate.ags(fids, values)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=9))
def test_harmonic_mean_is_that_of_the_standard_library(values: list[float]) -> None:
    assert aggregate.harmonic_mean(values) == pytest.approx(stdlib.harmonic_mean(values))


def test_harmonic_mean_at_its_edges() -> None:
    assert aggregate.harmonic_mean([0.5, 0.0]) == 0.0
    for wrong in ([], [0.5, -0.1], [0.5, math.nan]):
        with pytest.raises(ReportError):
            aggregate.harmonic_mean(wrong)


def write_ladder(folder: Path, name: str, values: dict[int, dict[int, float]], **changes: object) -> None:
    for seed, by_split in values.items():
        for split, score in by_split.items():
            record = make_record("glyphs", split, name, seed, score) | changes
            records.write(folder / name / str(split) / f"s{seed}-{len(list(folder.rglob('record.json')))}", record)


def hand_ags(by_split: dict[int, float]) -> float:
    points = [(frd, by_split[split]) for split, frd in LADDERS["glyphs"]]
    area = sum((b - a) * (s + t) / 2 for (a, s), (b, t) in pairwise(points))
    return area / (points[-1][0] - points[0][0])


@pytest.fixture
def board(tmp_path: Path) -> pd.DataFrame:
    flat = {split: 0.5 for split, _ in LADDERS["glyphs"]}
    write_ladder(tmp_path, "margin", {0: flat | {1: 0.9}, 1: flat | {1: 0.7}})
    write_ladder(tmp_path, "arcface", {0: flat | {1: 0.6}})
    write_ladder(tmp_path, "diva", {0: {split: 0.99 for split in (1, 2, 3)}})
    write_ladder(tmp_path, "frozen", {0: {split: 0.95 for split in flat}})
    return aggregate.ags_board(selection.select(records.collect(tmp_path))[0]).wide()


def test_the_board_has_means_over_seeds_ranks_and_coverage(board: pd.DataFrame) -> None:
    assert board["method"].tolist() == ["margin", "arcface", "diva", "frozen"]
    rows = board.set_index("method")
    flat = {split: 0.5 for split, _ in LADDERS["glyphs"]}
    seeds = [hand_ags(flat | {1: first}) for first in (0.9, 0.7)]
    assert rows.at["margin", "ags:glyphs"] == pytest.approx(sum(seeds) / 2)
    assert rows.at["margin", "ags:glyphs:std"] == pytest.approx(abs(seeds[0] - seeds[1]) / math.sqrt(2))
    assert rows.at["margin", "ags:glyphs:n"] == 2
    assert (rows.at["margin", "rank"], rows.at["arcface", "rank"]) == (1, 2)
    assert math.isnan(rows.at["arcface", "ags:glyphs:std"])
    assert rows.at["frozen", "baseline"]
    assert math.isnan(rows.at["frozen", "rank"])


def test_an_incomplete_ladder_has_no_aggregate_and_no_rank(board: pd.DataFrame) -> None:
    row = board.set_index("method").loc["diva"]
    assert math.isnan(row["ags:glyphs"])
    assert math.isnan(row["mean"])
    assert math.isnan(row["rank"])
    assert row["ags:glyphs:coverage"] == "3/5"


def test_a_seed_with_gaps_does_not_count(tmp_path: Path) -> None:
    whole = {split: 0.5 for split, _ in LADDERS["glyphs"]}
    write_ladder(tmp_path, "margin", {0: whole, 1: {1: 0.9, 2: 0.9}})
    row = aggregate.ags_board(records.collect(tmp_path)).wide().iloc[0]
    assert (row["ags:glyphs"], row["ags:glyphs:n"]) == (pytest.approx(0.5), 1)


def test_protocols_are_ranked_apart_and_settings_named(tmp_path: Path) -> None:
    flat = {split: 0.5 for split, _ in LADDERS["glyphs"]}
    write_ladder(tmp_path, "margin", {0: flat})
    write_ladder(tmp_path, "arcface", {0: {split: 0.4 for split in flat}}, protocol={"name": "oodml", "epochs": 200})
    method = make_record(method="margin")["method"]
    write_ladder(tmp_path, "margin", {1: flat}, method=method | {"settings": {"margin": 0.2, "beta": 0.6}})
    runs, notes = selection.select(records.collect(tmp_path))
    board = aggregate.ags_board(runs).wide().set_index("method")
    assert board["rank"].to_dict() == {"margin[beta=0.6]": 1, "margin[beta=1.2]": 1, "arcface": 1}
    assert notes == []
    write_ladder(tmp_path, "margin", {2: flat})  # now one of them is usual
    runs, _ = selection.select(records.collect(tmp_path))
    assert runs.groupby("method")["seed"].unique().map(sorted).to_dict() == {
        "arcface": [0], "margin": [0, 2], "margin[beta=0.6]": [1]}


def test_the_newest_run_of_a_cell_and_the_newest_ladder_count(tmp_path: Path) -> None:
    flat = {split: 0.5 for split, _ in LADDERS["glyphs"]}
    made = make_record()["provenance"]
    write_ladder(tmp_path, "margin", {0: flat}, provenance=made | {"date": "2026-01-02"})
    write_ladder(tmp_path, "margin", {0: {1: 0.9}}, provenance=made | {"date": "2026-01-03"}, identity="e" * 64)
    old = make_record("glyphs", 1, "arcface", provenance=made | {"date": "2026-01-01"}, dataset_hash="e" * 64)
    records.write(tmp_path / "old", old)
    runs, notes = selection.select(records.collect(tmp_path))
    assert runs.loc[runs["split"] == 1, "recall@1"].tolist() == [0.9]
    assert set(runs["method"]) == {"margin"}
    assert notes == ["1 run on another ladder of glyphs is set aside. Give their `oodml run` commands again, and "
                     "those whose classes the ladder of glyphs has now are kept, the others trained on it.",
                     "1 run is set aside because a newer run of the same row, split and seed is there."]


def test_the_union_board(tmp_path: Path) -> None:
    parts = {0: {"latin": 0.2, "greek": 0.8}, 1: {"latin": 0.4, "greek": 0.6}}
    for seed, domains in parts.items():
        records.write(tmp_path / f"m{seed}", make_record("u", 1, "margin", seed, 0.3, domains))
    records.write(tmp_path / "a", make_record("u", 1, "arcface", 0, 0.9, {"latin": 0.9}))
    records.write(tmp_path / "f", make_record("u", 1, "frozen", 0, 0.1, {"latin": 0.0, "greek": 0.5}))
    board = aggregate.union_board(records.collect(tmp_path)).wide().set_index("method")
    row = board.loc["margin"]
    assert row["harmonic"] == pytest.approx(2 / (1 / 0.3 + 1 / 0.7))
    seeds = [2 / (1 / 0.2 + 1 / 0.8), 2 / (1 / 0.4 + 1 / 0.6)]
    assert row["harmonic:std"] == pytest.approx(abs(seeds[0] - seeds[1]) / math.sqrt(2))
    assert (row["arithmetic"], row["unified"], row["weakest"]) == (pytest.approx(0.5), pytest.approx(0.3), "latin")
    assert row["recall:latin:n"] == 2
    assert board.at["frozen", "harmonic"] == 0
    assert board.at["arcface", "harmonic:coverage"] == "1/2"
    assert math.isnan(board.at["arcface", "harmonic"])
    assert math.isnan(board.at["arcface", "rank"])
    assert list(board.index) == ["margin", "arcface", "frozen"]
    assert board["network"].tolist() == ["conv4", "conv4", "efficientnet_lite0"]


def test_a_part_without_a_score_leaves_no_mean_over_the_parts(tmp_path: Path) -> None:
    """Its one class had a single image: the record names it, and nothing can be said of it."""
    record = make_record("u", 1, "margin", 0, 0.3, {"latin": 0.2, "greek": 0.8})
    record["domains"]["gamma"] = {}
    records.write(tmp_path / "m", record)
    (row,) = aggregate.union_board(records.collect(tmp_path)).wide().to_dict("records")
    assert (row["harmonic:coverage"], row["weakest"]) == ("2/3", "")
    assert math.isnan(row["harmonic"])
    assert math.isnan(row["rank"])
    assert row["recall:latin"] == 0.2


def test_gain_and_selection_gap(tmp_path: Path) -> None:
    write_sample(tmp_path, {"frozen": 0.2, "margin": 0.7}, ("glyphs",), seeds=1, union=False)
    runs = records.collect(tmp_path)
    board = board_columns.with_costs(aggregate.ags_board(runs), runs).wide().set_index("method")
    assert board.at["margin", "gain"] == pytest.approx(board.at["margin", "mean"] - board.at["frozen", "mean"])
    assert board.at["margin", "gap"] == pytest.approx(0.004)
    assert board.at["margin", "seconds"] == pytest.approx(5 * 14.5)
    shared = board_columns.with_costs(aggregate.ags_board(runs), runs.assign(**{"cost:shared": 10}))
    shared = shared.rows.set_index("method")
    assert shared.at["margin", "seconds"] == pytest.approx(5 * 1.45)
    cells = baselines.gain_over_frozen(aggregate.rung_scores(runs, "glyphs"))
    ours = cells[cells["method"] == "margin"]
    base = cells[cells["method"] == "frozen"].set_index("split")["score"]
    assert ours["gain"].tolist() == pytest.approx([s - base[i] for i, s in zip(ours["split"], ours["score"])])


def test_an_unknown_metric_is_named(tmp_path: Path) -> None:
    records.write(tmp_path, make_record())
    with pytest.raises(ReportError, match="recall@1"):
        aggregate.ags_board(records.collect(tmp_path), "recall@3")


def test_t_interval_is_scipys() -> None:
    values = [0.61, 0.64, 0.66, 0.58]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert statistics.t_interval(values) == pytest.approx((np.mean(values), low, high))
    assert math.isnan(statistics.t_interval([0.5])[1])


def test_kendall_tau_by_hand(tmp_path: Path) -> None:
    near = {"margin": 0.9, "arcface": 0.8, "diva": 0.7}
    far = {"margin": 0.5, "arcface": 0.6, "diva": 0.4}
    for method in near:
        ladder = [[1, 10.0], [2, 20.0]]
        for split, score in ((1, near[method]), (2, far[method])):
            record = make_record("glyphs", split, method, 0, score)
            record["split"] = record["split"] | {"ladder": ladder, "frd": 10.0 * split}
            records.write(tmp_path / method / str(split), record)
    runs = records.collect(tmp_path)
    cells = aggregate.rung_scores(runs, "glyphs").assign(label=lambda cells: cells["method"])
    row = statistics.kendall_between_rungs(aggregate.without_gaps(cells)).iloc[0]
    assert (row["tau"], row["flips"], row["methods"]) == (pytest.approx(1 / 3), 1, 3)
