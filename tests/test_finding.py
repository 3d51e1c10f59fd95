"""What the home page says of a board, against numbers taken from the records by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reports import records
from reports.analysis.finding import finding
from reports.analysis.results import Results
from reports.board import Board
from tests.sample_records import LADDERS, write_sample

METHODS = {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "proxyanchor": 0.70}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = write_sample(tmp_path_factory.mktemp("work") / "runs", METHODS, ("glyphs", "cars"), seeds=2, queries=True)
    return Results(records.collect(folder), with_published=False)


def at(results: Results, method: str, end: int) -> float:
    """The mean over datasets of the mean over seeds on the nearest (0) or the farthest (-1) split, from the runs."""
    means = []
    for dataset in ("glyphs", "cars"):
        split = sorted(LADDERS[dataset], key=lambda rung: rung[1])[end][0]
        runs = results.runs[(results.runs["dataset"] == dataset) & (results.runs["split"] == split)]
        means.append(runs.loc[runs["method"] == method, "recall@1"].mean())
    return float(np.mean(means))


def test_the_finding_is_what_the_records_say(results: Results) -> None:
    board = results.ags("recall@1", results.protocols[0])
    found = finding(board)
    assert found
    trained = [method for method in METHODS if method != "frozen"]
    lost = [at(results, method, 0) - at(results, method, -1) for method in trained]
    assert (found.rows, found.losing) == (3, sum(one > 0 for one in lost))
    assert (found.lost, found.least, found.most) == pytest.approx((np.mean(lost), min(lost), max(lost)))
    assert (found.best[0], found.seeds) == ("s2sd", 2)
    assert (found.nearest, found.farthest) == pytest.approx((at(results, "s2sd", 0), at(results, "s2sd", -1)))
    assert (found.frozen, found.untrained) == (None, None)  # another backbone, and below the best
    above = board.assign(farthest=board.rows["farthest"].mask(board.rows["method"] == "frozen", 0.99))
    name, score = finding(above).untrained  # type: ignore[union-attr,misc]
    assert (name, score) == (board.rows.loc[board.rows["method"] == "frozen", "network"].item(), 0.99)
    alike = finding(board.assign(network="one"))
    assert alike
    assert alike.frozen == pytest.approx((at(results, "frozen", 0), at(results, "frozen", -1)))
    wide = board.wide()
    assert found.tied == int((wide["mean:group"] == 1).sum()) - 1
    kept = dict(zip(wide["method"], wide["kept"]))
    assert kept["margin"] == pytest.approx(at(results, "margin", -1) / at(results, "margin", 0))


def test_what_is_lost_on_average_is_of_the_methods_that_lose(results: Results) -> None:
    board = results.ags("recall@1", results.protocols[0])
    rows = board.rows
    gains = rows["method"] == "margin"
    found = finding(board.assign(farthest=rows["farthest"].mask(gains, rows["nearest"] + 0.2)))
    assert found
    lost = [at(results, method, 0) - at(results, method, -1) for method in ("s2sd", "proxyanchor")]
    assert (found.rows, found.losing) == (3, 2)
    assert (found.lost, found.least) == pytest.approx((np.mean(lost), -0.2))
    rising = finding(board.assign(farthest=rows["nearest"] + 0.1))
    assert rising
    assert (rising.losing, rising.lost) == (0, 0.0)


def test_there_is_no_finding_without_rows_to_compare(results: Results) -> None:
    board = results.ags("recall@1", results.protocols[0])
    assert finding(Board.of([], [])) is None
    assert finding(board.where(board.rows["method"] == "s2sd")) is None
    untested = board.assign(**{"rank:tested": False})
    assert finding(untested).tied is None  # type: ignore[union-attr]
    first = board.rows["method"] == "s2sd"  # the ties of the board are with it, though it was not run at the near end
    partly = board.assign(nearest=board.rows["nearest"].mask(first))
    assert (finding(partly).best[0], finding(partly).tied) == ("proxyanchor", None)  # type: ignore[union-attr]
