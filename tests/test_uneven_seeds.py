"""Rows of which some seeds were run on single splits alone: what their AGS is made of, and that the board says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.integrate import trapezoid

from reports import exports, records
from reports.analysis.results import Results
from tests.sample_records import LADDERS, make_record

SCORES = {"margin": [[0.8, 0.7, 0.6, 0.5, 0.4]], "s2sd": [[0.9, 0.8, 0.7, 0.6, 0.5]]}
"""Of each seed on each of the five splits."""
NAN = float("nan")


def results(folder: Path, more: dict[str, list[list[float]]]) -> Results:
    for method, seeds in (SCORES | more).items():
        for seed, scores in enumerate(seeds):
            for split, score in enumerate(scores, 1):
                if score == score:
                    made = make_record("glyphs", split, method, seed, score)
                    records.write(folder / f"{method}-{seed}-{split}", made)
    return Results(records.collect(folder))


@pytest.mark.parametrize(("more", "ags", "seeds", "nearest", "said"), [
    ({}, 0, 1, 0.8, "One seed each, so no deviations."),
    # two seeds were run on single splits alone, one of them on both ends
    ({"margin": [*SCORES["margin"], [0.5, NAN, NAN, NAN, 0.2], [NAN, NAN, NAN, NAN, 0.3]]}, 0, 1, 0.65,
     "AGS is of the seeds with every split: one each, so no deviations. Nearest and farthest are of up to 2 seeds."),
    ({"margin": [*SCORES["margin"], [0.7, 0.6, 0.5, 0.4, 0.3], [0.6, NAN, NAN, NAN, NAN]]}, -0.05, 2, 0.75,
     "mean ± std over seeds (n = 2, ddof = 1). Scores without ± are of one seed"),
    ({"margin": [*SCORES["margin"], [0.7, 0.6, 0.5, 0.4, 0.3]]}, -0.05, 2, 0.75,
     "mean ± std over seeds (n = 2, ddof = 1). Scores without ± are of one seed"),
])
def test_ags_is_of_seeds_with_every_split_and_the_ends_of_those_that_have_both(
        tmp_path: Path, more: dict[str, list[list[float]]], ags: float, seeds: int, nearest: float, said: str) -> None:
    made = results(tmp_path, more)
    board = made.ags("recall@1", "demo").wide().set_index("method").loc["margin"]
    first = float(trapezoid(SCORES["margin"][0], [frd for _, frd in LADDERS["glyphs"]]))
    first /= LADDERS["glyphs"][-1][1] - LADDERS["glyphs"][0][1]
    assert (board["ags:glyphs"], board["ags:glyphs:n"]) == (pytest.approx(first + ags), seeds)
    assert board["nearest"] == pytest.approx(nearest)
    assert exports.export(made, "ags", "text").splitlines()[-1].startswith(said)
