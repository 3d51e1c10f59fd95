"""The published union of photographs: dataset-specific models beside the networks that they are compared with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmark.config import overrides
from benchmark.posthoc import leaderboard
from benchmark.utils.workspace import Workspace
from reports import records
from reports.analysis.results import Results

PHOTOS = Path(__file__).parent.parent / "reports" / "data" / "records" / "photos"
UNION = "union-cub-cars-dogs-flowers"
MEMBERS = {"cub", "cars", "dogs", "flowers"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records.collect(PHOTOS)


@pytest.fixture(scope="module")
def results(frame: pd.DataFrame) -> Results:
    return Results(frame, derive=overrides.of_run)


def test_models_of_single_datasets_stand_beside_the_network_of_equal_steps(results: Results) -> None:
    runs = results.runs[results.runs["dataset"] == UNION].set_index("method")
    joined = runs.loc["ensemble:margin"]
    assert joined["protocol_settings"]["epochs"] * joined["protocol_settings"]["steps_per_epoch"] == 456
    assert set(runs.loc[~runs["baseline"], "cost:steps"].dropna()) == {456}
    assert joined["protocol"] == runs.loc["margin", "protocol"] == "uml[epochs=12]"
    board = results.universal(UNION, "uml[epochs=12]").wide().set_index("method")
    assert board["rank"].notna().sum() == 10
    own = board.loc["ensemble:margin"]
    assert own["harmonic"] == pytest.approx(4 / sum(1 / own[f"recall:{name}"] for name in MEMBERS))


def test_models_of_other_steps_have_a_board_of_their_own(frame: pd.DataFrame) -> None:
    longer = frame["protocol_settings"].where(~frame["method"].eq("ensemble:margin"),
                                              frame["protocol_settings"].map(lambda own: {**own, "epochs": 58}))
    runs = Results(frame.assign(protocol_settings=longer), derive=overrides.of_run).runs
    here = runs[runs["dataset"] == UNION].set_index("method")
    assert here.at["ensemble:margin", "protocol"] == "uml[epochs=58,steps_per_epoch=8]"
    assert here.at["margin", "protocol"] == "uml[epochs=12]"


def test_a_dataset_with_several_splits_is_more_than_a_part_of_a_union(results: Results) -> None:
    assert set(results.members) == {"dogs", "flowers"}
    assert "cars" in results.without_ladder
    assert results.laddered == ["cub"]


def test_the_union_is_called_by_its_members(tmp_path: Path) -> None:
    built = leaderboard.collect(Workspace.at(tmp_path), [PHOTOS]).build(tmp_path / "site")
    page = (built.parent / "union" / f"{UNION}.html").read_text(encoding="utf-8")
    assert "<title>Union of cars, cub, dogs, flowers" in page
    assert "dogs: Stanford Dogs was built from ImageNet&#39;s images" in page
    for name in MEMBERS:
        assert f'href="../dataset/{name}.html"' in page
    home = (built.parent / "index.html").read_text(encoding="utf-8")
    assert home.index("Cars-196, photographs of cars") < home.index("Union of cars, cub, dogs, flowers</a>")


def test_no_loss_beats_the_frozen_network_on_dogs(results: Results) -> None:
    """What the page of results says: ImageNet has these images."""
    board = results.universal(UNION, "uml[epochs=12]").wide().set_index("method")
    assert board["recall:dogs"].idxmax() == "frozen"
    margin, single = board.loc["margin"], board.loc["ensemble:margin"]
    assert 100 * (margin["unified"] - single["unified"]) == pytest.approx(6.5, abs=0.05)
    assert (margin["rank:low"], single["rank:high"]) == (7, 8)  # level in the harmonic mean
