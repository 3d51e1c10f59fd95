"""The default split beside the papers: numbers recomputed from the published records and the papers' own tables."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark.config import overrides
from benchmark.ladders import pinned
from reports import records
from reports.analysis import paper_tables, reproduction
from reports.analysis.results import Results
from reports.figures.printed import printed_and_ours
from reports.html import dataset_pages
from reports.html.extras import Extras
from reports.html.rendering import Site

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "reports/data/records"


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    frame = pd.concat([records.collect(RECORDS / name) for name in ("photos", "frozen")], ignore_index=True)
    return Results(frame, pinned=pinned.known(frame["dataset"]), derive=overrides.of_run).runs


def test_cub_is_held_against_what_is_printed_of_it_with_a_resnet50(runs: pd.DataFrame) -> None:
    found = {one.paper.key: one for one in reproduction.default_split(runs, "cub")}
    assert set(found) == {"oodml", "revisiting", "released"}
    with (ROOT / "reports/data/published/revisiting_methods.csv").open() as file:
        printed = {row["method"]: float(row["value"]) for row in csv.DictReader(file)
                   if row["dataset"] == "cub" and row["metric"] == "recall@1"}
    rows = found["revisiting"].table.frame.set_index("method")
    names = {"margin": "Margin (D, $\\beta = 1.2$ )", "proxynca": "ProxyNCA", "triplet-semihard": "Triplet (S)"}
    for method, name in names.items():
        assert 100 * rows.loc[method, "printed"] == pytest.approx(printed[name])
        known = runs[(runs["dataset"] == "cub") & (runs["kind"] == "default") & (runs["method"] == method)
                     & (runs["base_protocol"] == "oodml")]
        curves = [{point["epoch"]: point["recall@1"] for point in curve if "recall@1" in point}
                  for curve in known["curve"]]
        assert len(curves) == (3 if method == "margin" else 1)
        best = [max(curve, key=curve.__getitem__) for curve in curves]
        ours = np.mean([curve[epoch] for curve, epoch in zip(curves, best)])
        assert rows.loc[method, "ours"] == pytest.approx(ours, abs=1e-5)  # packed curves are rounded
        assert rows.loc[method, "last"] == pytest.approx(np.mean([curve[40] for curve in curves]), abs=1e-5)
        assert rows.loc[method, "epoch"] == "–".join(map(str, dict.fromkeys([min(best), max(best)]))) + " of 40"
    close = [abs(row.ours - row.printed) < 0.03 for row in rows.itertuples()]
    assert found["revisiting"].close == sum(close)
    assert sum(close) > 0.85 * len(close), "objectives of Revisiting no longer reproduce its table on CUB"


def test_runs_by_the_protocol_of_a_paper_on_another_network_do_not_reproduce_it(runs: pd.DataFrame) -> None:
    assert set(runs.loc[runs["dataset"] == "cub", "base_protocol"]) == {"oodml", "uml", "released"}
    for one in reproduction.default_split(runs, "cub"):
        others = {"oodml": {"oodml", "oodml[epochs=100]", "oodml[epochs=140]"}, "revisiting": {"oodml[epochs=100]"},
                  "released": {"released"}}[one.paper.key]
        assert set(one.table.frame["protocol"]) == {"oodml[epochs=40]", *others}
        assert not one.table.frame.duplicated(["method", "protocol"]).any()
        assert not one.counted.duplicated("method").any()


def test_methods_are_held_against_their_own_papers(runs: pd.DataFrame) -> None:
    """With a ResNet-50: README of Proxy Anchor, tables of HIER and ROADMAP, figure of contextual."""
    own, = (one for one in reproduction.default_split(runs, "cub") if one.paper.key == "released")
    rows = own.table.frame.set_index(["protocol", "method"])
    usual, recipes = rows.loc["oodml[epochs=40]"], rows.loc["released"]
    assert (100 * usual["printed"]).round(1).to_dict() == {
        "contextual": 71.9, "hier": 70.1, "proxyanchor": 69.9, "proxynca++": 69.0, "roadmap": 68.5, "hyp": 65.5,
        "normsoftmax": 61.3}
    assert (100 * usual["difference"]).round(1).to_dict() == {
        "contextual": -7.1, "hier": -4.4, "proxyanchor": -3.9, "proxynca++": -6.0, "roadmap": -3.3, "hyp": -0.6,
        "normsoftmax": 1.2}
    assert (100 * recipes["difference"]).round(1).to_dict() == {
        "contextual": -2.5, "hier": -1.1, "proxyanchor": -2.5, "roadmap": 0.8}
    assert recipes["printed"].to_dict() == usual.loc[recipes.index, "printed"].to_dict()
    assert not rows["rising"].any()
    assert (own.close, own.rising) == (6, 0)
    assert sorted(own.counted["method"]) == sorted(usual.index)
    assert set(recipes["changed"]) == {""}
    assert set(own.counted.loc[own.counted["recipe"], "method"]) == set(recipes.index)


def test_of_runs_of_several_lengths_the_longest_is_held_against_papers(runs: pd.DataFrame) -> None:
    longer = runs[runs["dataset"].eq("cub") & runs["base_protocol"].eq("oodml") & runs["method"].eq("hier")]
    assert longer["protocol"].tolist() == ["oodml[epochs=40]"]
    shorter, wider = (longer.assign(protocol=f"oodml[{key}={value}]", protocol_settings=[
        {**settings, key: value} for settings in longer["protocol_settings"]])
        for key, value in (("epochs", 20), ("dim", 128)))
    both = pd.concat([longer, shorter])
    for given, protocol in ((both, "oodml[epochs=40]"), (shorter, "oodml[epochs=20]")):
        own, = reproduction.default_split(given, "cub")
        assert own.table.frame["protocol"].tolist() == [protocol]
    own, = reproduction.default_split(pd.concat([both, wider]), "cub")
    assert sorted(own.table.frame["protocol"]) == ["oodml[dim=128]", "oodml[epochs=40]"], "other settings too"


def test_a_run_by_a_released_recipe_is_held_against_its_own_paper_alone(runs: pd.DataFrame) -> None:
    of_it = runs["dataset"].eq("cub") & runs["kind"].eq("default") & runs["method"].eq("proxyanchor")
    assert {"oodml", "released"} <= set(runs.loc[of_it, "base_protocol"])
    found = {one.paper.key: one.table.frame for one in reproduction.default_split(runs, "cub")}
    times = {key: int(rows["method"].eq("proxyanchor").sum()) for key, rows in found.items()}
    assert times == {"oodml": 1, "revisiting": 0, "released": 2}
    drawn = printed_and_ours(found["released"], reproduction.CLOSE, "name", "title", "recall@1")
    labels = set(re.findall(">([^<>]+)</text>", drawn))
    assert {"proxyanchor, released", "proxyanchor, oodml, 40 epochs", "hyp"} <= labels


def test_another_pooling_is_another_recipe(runs: pd.DataFrame) -> None:
    """A stand-in for the network leaves a recipe as it is; without its pooling it is another one, and not counted."""
    here = runs[runs["base_protocol"].eq("released") & runs["method"].eq("hier")]
    found, = reproduction.default_split(here, "cub")
    assert found.table.frame["changed"].tolist() == [""]
    assert len(found.counted) == 1
    plain = here.assign(overrides=[{**one, "backbone": ["resnet50@meanmax-ln", "resnet50_v1"]}
                                   for one in here["overrides"]])
    found, = reproduction.default_split(plain, "cub")
    assert found.table.frame["changed"].tolist() == ["backbone=resnet50_v1 (file: resnet50@meanmax-ln)"]
    assert found.counted.empty
    assert found.close == found.rising == 0


def test_a_page_counts_nothing_where_no_recipe_was_trained_as_it_is() -> None:
    frame = records.collect(RECORDS / "photos")
    frame = frame[frame["protocol"].eq("released") & frame["method"].eq("contextual")]
    site = Site(Results(frame, derive=overrides.of_run), frame.iloc[:0])
    dataset_pages.ladder(site, "cub", Extras(None))
    site.finish()
    page = str(site.files["dataset/cub.html"])
    assert "What papers print, and what we got" in page
    assert "0 of 0" not in page
    assert "nan" not in page


def test_the_figure_has_a_ring_and_a_disc_for_each_method(runs: pd.DataFrame) -> None:
    for one in reproduction.default_split(runs, "cub"):
        rows = one.table.frame
        drawn = printed_and_ours(rows, reproduction.CLOSE, "name", "title", "recall@1")
        circles = [(float(x), r) for x, r in re.findall(r'<circle cx="([^"]*)" cy="[^"]*" r="([^"]*)"', drawn)]
        ours, rings = [x for x, r in circles if r == "4"][1:], [x for x, r in circles if r == "4.5"][1:]  # a key first
        assert len(ours) == len(rings) == len(rows)
        scale = np.polyfit(rows["printed"].astype(float), rings, 1)
        assert np.polyval(scale, rows["ours"].astype(float)) == pytest.approx(ours, abs=0.5)


def test_of_ooDML_the_split_at_the_distance_of_the_default_one_counts(runs: pd.DataFrame) -> None:
    said = paper_tables.says("proxyanchor")
    said = said[said["paper"].eq("oodml") & said["what"].eq("default split") & said["metric"].eq("recall@1")]
    assert (100 * said.set_index("dataset")["value"]).round(2).to_dict() == {"cars": 85.27, "cub": 66.64, "sop": 79.73}


def test_a_copy_with_other_counts_is_not_held_against_papers(runs: pd.DataFrame) -> None:
    assert reproduction.default_split(runs, "cars") == []  # 15 photographs are missing
    assert reproduction.default_split(runs.assign(train_images=64), "cub") == []
    assert reproduction.default_split(runs, "nowhere") == []


def test_methods_given_other_epochs_are_not_ranked_together(runs: pd.DataFrame) -> None:
    runs = runs[(runs["base_protocol"] == "oodml") & ~runs["baseline"]]
    for dataset, lengths in (("cub", {40, 100, 140, 200}), ("cars", {20, 50, 60, 90, 100, 140, 200})):
        own = runs[runs["dataset"] == dataset]
        epochs = own["protocol_settings"].map(lambda settings: settings["epochs"]).groupby(own["protocol"]).unique()
        assert all(len(found) == 1 for found in epochs)
        assert {int(found[0]) for found in epochs} == lengths


def test_methods_whose_curves_share_a_figure_have_different_colours() -> None:
    frame = pd.concat([records.collect(RECORDS / name) for name in ("photos", "frozen")], ignore_index=True)
    site = Site(Results(frame, pinned=pinned.known(frame["dataset"])), frame.iloc[:0])
    for dataset in ("cars", "cub"):
        cells = site.cells(dataset, "recall@1")
        curves = cells[~cells["baseline"] & cells.duplicated("label", keep=False)]
        methods = curves.groupby("base_method")["label"].unique()
        assert len(methods) > 5
        colours = [{site.look[label].number for label in labels} for labels in methods]
        assert all(len(numbers) == 1 for numbers in colours), "rows of one method have one colour"
        assert len(set().union(*colours)) == len(methods)


def test_a_dataset_that_comes_or_goes_changes_hardly_any_colour() -> None:
    frame = records.collect(RECORDS / "photos")
    every, fewer = (Site(Results(some), some.iloc[:0]).look for some in (frame, frame[frame["dataset"] != "cub"]))
    known = {label.partition(" · ")[0]: style.number for label, style in every.items()}
    again = {label.partition(" · ")[0]: style.number for label, style in fewer.items()}
    assert len(again) > 10
    assert sum(number != known[method] for method, number in again.items()) <= len(again) // 5


def test_the_page_of_a_dataset_names_the_pinned_ladder_that_its_runs_are_on() -> None:
    """CUB's records are from before ladders had names; of Cars 15 images are missing, so its runs are not on it."""
    frame = pd.concat([records.collect(RECORDS / name) for name in ("photos", "frozen")], ignore_index=True)
    results = Results(frame, pinned=pinned.known(frame["dataset"]))
    assert {name: results.pinned.get(name) for name in ("cub", "cars", "dogs")} == {
        "cub": ("cub@v1", True), "cars": ("cars@ooDML", False), "dogs": None}
    assert Results(frame).pinned == {}, "nothing is known of pinned ladders"
    site = Site(results, frame.iloc[:0])
    for dataset in ("cub", "cars"):
        dataset_pages.ladder(site, dataset, Extras(None))
    assert "<code>oodml splits use cub@v1</code>" in str(site.files["dataset/cub.html"])
    assert "those of the pinned ladder <code>cars@ooDML</code>" in str(site.files["dataset/cars.html"])
    assert "oodml splits use" not in str(site.files["dataset/cars.html"])
    # one run on other classes, and the page names no ladder
    other = frame.assign(split_hash=frame["split_hash"].mask(frame.index == frame.index[frame["dataset"] == "cars"][0],
                                                             "0" * 64))
    assert "cars" not in Results(other, pinned=pinned.known(frame["dataset"])).pinned
