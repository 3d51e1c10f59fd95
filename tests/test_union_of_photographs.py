"""The published union of photographs: dataset-specific models beside the networks that they are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy.stats import kendalltau

from benchmark.board import leaderboard
from benchmark.config import overrides
from benchmark.utils.workspace import Workspace
from reports import records, site
from reports.analysis.results import Results
from reports.html import dataset_pages, home_page
from tests.sample_records import some_pages

PHOTOS = Path(__file__).parent.parent / "reports" / "data" / "records" / "photos"
UNION = "union-cub-cars-dogs-flowers"
MEMBERS = {"cub", "cars", "dogs", "flowers"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records.collect(PHOTOS)


@pytest.fixture(scope="module")
def results(frame: pd.DataFrame) -> Results:
    return Results(frame, derive=overrides.of_run)


def board(results: Results, backbone: str) -> pd.DataFrame:
    """The rows of one network on the board of the union, by method."""
    rows = results.universal(UNION, "uml[epochs=12]").wide()
    return rows[rows["backbone"] == backbone].set_index("method")


@pytest.mark.parametrize("backbone", ["resnet50_v1", "efficientnet_lite0"])
def test_models_of_single_datasets_stand_beside_the_network_of_equal_steps(results: Results, backbone: str) -> None:
    runs = results.runs[(results.runs["dataset"] == UNION) & (results.runs["backbone"] == backbone)].set_index("method")
    joined = runs.loc["ensemble:margin"]
    assert joined["protocol_settings"]["epochs"] * joined["protocol_settings"]["steps_per_epoch"] == 456
    assert set(runs.loc[~runs["baseline"], "cost:steps"].dropna()) == {456}
    assert joined["protocol"] == runs.loc["margin", "protocol"] == "uml[epochs=12]"
    rows = board(results, backbone)
    assert rows["rank"].notna().sum() == 12
    for method in ("margin", "proxyanchor", "curricularface"):
        own = rows.loc[f"ensemble:{method}"]
        assert own["harmonic"] == pytest.approx(4 / sum(1 / own[f"recall:{name}"] for name in MEMBERS))


def test_models_of_other_steps_have_a_board_of_their_own(frame: pd.DataFrame) -> None:
    longer = frame["protocol_settings"].where(~frame["method"].eq("ensemble:margin"),
                                              frame["protocol_settings"].map(lambda own: {**own, "epochs": 58}))
    runs = Results(frame.assign(protocol_settings=longer), derive=overrides.of_run).runs
    here = runs[(runs["dataset"] == UNION) & (runs["backbone"] == "resnet50_v1")].set_index("method")
    assert here.at["ensemble:margin", "protocol"] == "uml[epochs=58,steps_per_epoch=8]"
    assert here.at["margin", "protocol"] == "uml[epochs=12]"


def test_a_dataset_with_several_splits_is_more_than_a_part_of_a_union(results: Results) -> None:
    assert set(results.members) == {"dogs", "flowers"}
    assert results.laddered == ["cars", "cub"]


def test_the_union_is_called_by_its_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def two_pages(results: Results, lost: Any, out: Any, figures: Any, fills: Any, searches: Any, url: Any,
                  titles: Any) -> dict[str, Any]:
        return some_pages(results, lambda site: dataset_pages.union(site, UNION), home_page.write,
                          titles=titles)

    monkeypatch.setattr(site, "build", two_pages)
    pages: Any = leaderboard.collect(Workspace.at(tmp_path), [PHOTOS]).build(tmp_path / "site")
    page = pages[f"union/{UNION}.html"]
    assert "<title>Union of cars, cub, dogs, flowers" in page
    assert "dogs: Stanford Dogs was built from ImageNet&#39;s images" in page
    for name in MEMBERS:
        assert f'href="../dataset/{name}.html"' in page
    home = pages["index.html"]
    assert home.index("Cars-196, photographs of cars") < home.index("Union of cars, cub, dogs, flowers</a>")


def test_what_the_page_of_results_says_of_one_network_for_all(results: Results) -> None:
    """Its words are counted here again; ImageNet has the images of Dogs."""
    printed = pd.read_csv(PHOTOS.parents[1] / "published" / "uml_results.csv")
    printed = printed[printed["setting"].eq("universal-full") & printed["dataset"].eq("harmonic")
                      & printed["metric"].eq("recall@1")].set_index("method")["value"]
    losses = list(printed.index)
    assert len(losses) == 9
    large, small = board(results, "resnet50_v1"), board(results, "efficientnet_lite0")
    ahead: dict[str, list[float]] = {"harmonic": [], "unified": []}
    for rows in (large, small):
        assert rows["recall:dogs"].idxmax() == "frozen"
        for method in ("margin", "proxyanchor", "curricularface"):
            one, four = rows.loc[method], rows.loc[f"ensemble:{method}"]
            assert all(one[f"recall:{name}"] > four[f"recall:{name}"] for name in ("cub", "dogs", "flowers"))
            for key, told in ahead.items():
                told.append(round(100 * (one[key] - four[key]), 1))
    assert (min(ahead["harmonic"][:3]), max(ahead["harmonic"][:3])) == (0.9, 2.5)
    assert (min(ahead["harmonic"][3:]), max(ahead["harmonic"][3:])) == (-1.5, 0.7)
    assert (min(ahead["unified"]), max(ahead["unified"])) == (2.0, 7.3)
    taus = [kendalltau(first[losses], second[losses]).statistic
            for first, second in ((large["harmonic"], small["harmonic"]), (large["harmonic"], printed),
                                  (small["harmonic"], printed))]
    assert taus == pytest.approx([0.89, 0.61, 0.72], abs=0.005)
    behind = 100 * (large["harmonic"] - small["harmonic"])[losses].drop("triplet")
    assert (round(behind.min(), 1), round(behind.max(), 1)) == (1.0, 5.1)
    assert round(100 * (small.at["frozen", "harmonic"] - large.at["frozen", "harmonic"]), 1) == 6.2
