"""The published comparison of lengths on glyphs: what the page of results says of it, from its records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark.config import overrides
from reports import records
from reports.analysis.results import Results

LENGTHS = Path(__file__).parent.parent / "reports" / "data" / "records" / "lengths"


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return records.collect(LENGTHS)


def test_each_length_has_a_board_of_its_own(runs: pd.DataFrame) -> None:
    results = Results(runs, derive=overrides.of_run)
    assert sorted(results.protocols) == ["glyphs", "glyphs[epochs=12]", "glyphs[epochs=243]"]
    assert all(len(results.ags("recall@1", protocol)) == 4 for protocol in results.protocols)


def test_the_length_decides_who_is_first(runs: pd.DataFrame) -> None:
    """AGS by the trapezoidal rule over distances between 0 and 1, in percent."""
    assert set(runs.groupby("cost:steps").size()) == {20}
    area = {}
    for (steps, method), rows in runs.groupby(["cost:steps", "method"]):
        rows = rows.sort_values("frd")
        distance, score = rows["frd"].to_numpy(float), 100 * rows["recall@1"].to_numpy(float)
        widths = np.diff(distance) / (distance[-1] - distance[0])
        area[int(steps), method] = float(widths @ (score[1:] + score[:-1]) / 2)
    gain = {method: round(area[1701, method], 1) - round(area[420, method], 1)
            for method in ("margin", "arcface", "proxyanchor", "multisimilarity")}
    assert gain == pytest.approx({"margin": -0.2, "arcface": 0.5, "proxyanchor": 0.8, "multisimilarity": 6.3})
    assert area[1701, "multisimilarity"] == pytest.approx(82.6, abs=0.05)
    assert area[1701, "margin"] == pytest.approx(80.1, abs=0.05)
    short = [area[84, method] for method in gain]
    assert (round(min(short), 1), round(max(short), 1)) == (43.1, 58.5)
