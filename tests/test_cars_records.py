"""The published runs on the released Cars ladder: what the page of results says of them, from their records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import kendalltau

from reports import records
from reports.aggregate import ags

ROOT = Path(__file__).parent.parent
DATA = ROOT / "reports" / "data"
METHODS = ("s2sd", "r-margin", "diva", "multisimilarity", "margin", "proxyanchor", "uniform-prior", "arcface")


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """The runs of the papers' protocol, with their length and their best epoch on the test classes in percent."""
    runs = records.collect(DATA / "records" / "photos")
    runs = runs[(runs["dataset"] == "cars") & (runs["protocol"] == "oodml")]
    return runs.assign(epochs=[settings["epochs"] for settings in runs["protocol_settings"]],
                       best=100 * runs["best-test:recall@1"])


@pytest.fixture(scope="module")
def printed() -> pd.DataFrame:
    table = pd.read_csv(DATA / "published" / "oodml_ladder.csv")
    table = table[(table["dataset"] == "cars") & (table["metric"] == "recall@1")]
    return table.pivot(index="method", columns="split", values="value")


def table(head: str) -> list[list[str]]:
    """The lines of the table of the page that begins with this head, without it."""
    page = (ROOT / "docs" / "pages" / "results.md").read_text(encoding="utf-8")
    _, found, rest = page.partition(f"\n| {head} |")
    assert found
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def in_words(scores: object) -> list[str]:
    return [f"{score:.1f}" for score in scores]  # type: ignore[attr-defined]


def test_both_ends_of_the_ladder(runs: pd.DataFrame, printed: pd.DataFrame) -> None:
    best = runs[runs["epochs"] == 200].pivot(index="method", columns="split", values="best")
    near, near_printed, far, far_printed, *_ = [line[1:9] for line in table("| S2SD | r-margin")]
    for split, measured, said in ((1, near, near_printed), (8, far, far_printed)):
        assert measured == in_words(best.loc[list(METHODS), split])
        for cell, value in zip(said, printed.loc[list(METHODS), split]):
            assert float(cell) == pytest.approx(value, abs=0.0501)
    best, printed = best[[1, 8]].reindex(printed.index), printed[[1, 8]]
    short = (printed - best).round(1)
    assert short[short.max(axis=1) > 3].T.to_dict("list") == {"diva": [3.1, 3.9], "arcface": [6.7, 5.4],
                                                              "uniform-prior": [5.9, 5.7]}
    pairs = ((best[1], printed[1]), (best[8], printed[8]), (best[1], best[8]))
    assert [round(kendalltau(*pair).statistic, 2) for pair in pairs] == [0.64, 0.57, 0.93]
    for scores, least, most in ((best, 16, 19), (printed, 15, 19)):
        lost = (scores[1] - scores[8]).round()
        assert (lost.min(), lost.max()) == (least, most)


def test_proxy_anchor_along_the_whole_ladder(runs: pd.DataFrame, printed: pd.DataFrame) -> None:
    own = runs[(runs["method"] == "proxyanchor") & (runs["epochs"] == 50)].sort_values("split")
    best, said = table("ProxyAnchor on Cars, rung")
    assert own["split"].tolist() == list(range(1, 9))
    assert best[1:] == in_words([*own["best"], ags(own["frd"], own["best"])])
    gap = printed.loc["proxyanchor"].to_numpy() - own["best"].to_numpy()
    assert (gap.min().round(1), gap.max().round(1)) == (2.2, 4.3)
    assert all(float(cell) == pytest.approx(value, abs=0.0501)
               for cell, value in zip(said[1:], printed.loc["proxyanchor"]))


def test_trials_of_what_keeps_two_methods_below_print(runs: pd.DataFrame) -> None:
    changed = runs[runs["epochs"].isin([60, 100])]
    assert changed["split"].tolist() == [8, 8]
    best = changed.set_index(changed["method"].str.partition("[")[0])["best"]
    told = [line[2] for line in table("Cars, rung 8: best of the epochs")]
    assert told == in_words(best[["arcface", "uniform-prior"]])
