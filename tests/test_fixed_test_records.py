"""The published control on CUB, in which test classes stay: what the page of results says of it, from its records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark.ladders import pinned
from reports import records
from splits.fixed_test import is_control
from splits.manifest import load

ROOT = Path(__file__).parent.parent
PACK = ROOT / "reports" / "data" / "records" / "fixed-test"


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    """Recall@1 in percent after the last epoch, by method and distance."""
    runs = records.collect(PACK)
    return 100 * runs.pivot(index="method", columns="frd", values="recall@1").sort_index(axis=1)


def test_only_the_training_classes_move() -> None:
    ladder = load(PACK / "splits" / "cub.json")
    assert is_control(ladder)
    assert len({split.test for split in ladder.splits}) == 1
    assert {(len(split.train), len(split.test)) for split in ladder.splits} == {(74, 52)}
    images = [split.train_images for split in ladder.splits]
    assert images == [4392, 4366, 4348, 4325, 4313]
    steps = records.collect(PACK).query("method != 'frozen'")["cost:steps"]
    assert steps.max() / steps.min() < 1.03 > max(images) / min(images)
    assert ladder.parameters["fixed_split"] == pinned.get("cub@v1").ladder.splits[-1].hash


def test_distance_alone_costs_eleven_to_thirteen_points(scores: pd.DataFrame) -> None:
    trained = scores.loc[["proxyanchor", "margin", "multisimilarity"]].to_numpy()
    assert (np.diff(trained, axis=1) < 0).all()
    assert (np.diff(trained, axis=1).argmin(axis=1) == 0).all()
    assert np.round(trained[:, 0] - trained[:, -1]).tolist() == [11, 13, 11]
    frozen = scores.loc["frozen"].to_numpy()
    np.testing.assert_allclose(frozen, frozen[0])
    gain = trained - frozen
    assert gain[:, 0].round(1).tolist() == [29.6, 27.2, 25.3]
    assert (100 * gain[:, -1] / gain[:, 0]).round().tolist() == [61, 51, 56]


def test_the_page_has_its_scores(scores: pd.DataFrame) -> None:
    page = (ROOT / "docs" / "pages" / "results.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| CUB, same test classes, distance |")
    lines = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in table.splitlines()[:8]}
    for method, label in (("proxyanchor", "ProxyAnchor"), ("margin", "margin"), ("multisimilarity", "multi-similarity"),
                          ("frozen", "frozen")):
        assert lines[label][:5] == [f"{score:.1f}" for score in scores.loc[method]]
