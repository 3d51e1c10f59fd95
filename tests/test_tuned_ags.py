"""AGS of tuned methods, by numbers worked out by hand: with distances 10, 20 and 50, x = 0, 1/4 and 1."""

from __future__ import annotations

import io
import json
from typing import Any

import pandas as pd
import pytest

from reports import exports
from reports.analysis import tuned_ags, tuning
from reports.analysis.tuning import Search
from reports.tables.table import Table

LADDER = [[1, 10.0], [2, 20.0], [3, 50.0]]
# (s1 + s2) / 8 + 3 (s2 + s3) / 8: of 0.8, 0.7, 0.4 it is 0.1875 + 0.4125, of 0.8, 0.4, 0.4 it is 0.15 + 0.3
TUNED: dict[int, list[float | None]] = {0: [0.8, 0.7, 0.4], 1: [0.4, 0.4, 0.4], 2: [0.9, None, 0.9]}
DEFAULT: dict[int, list[float | None]] = {0: [0.8, 0.4, 0.4], 1: [0.9, 0.9, None], 2: [0.2, 0.2, 0.2]}


def search(split: int, rungs: list[int], **changes: Any) -> Search:
    """One that chose on a split for some rungs."""
    test = [{"split": rung, "frd": LADDER[rung - 1][1], "seed": seed, "tuned": TUNED[seed][rung - 1],
             "default": DEFAULT[seed][rung - 1]} for rung in rungs for seed in TUNED]
    return {"dataset": "cub", "method": "margin", "protocol": "oodml", "backbone": "conv4", "weights": "scratch",
            "split": split, "choose_on": "each" if rungs == [split] else "default", "ladder": LADDER,
            "sampler": "random", "seed": 0, "metric": "recall@1", "budget": 4, "fixed": {},
            "tested_held_out": {str(rung): 0 for rung in rungs},
            "trials": [{"number": 0, "set": {}, "state": "done", "score": 0.5, "run": "0" * 12}], "choice": 0,
            "chosen": {}, "default_score": 0.5, "score": 0.5, "test": test, "test_gain": None, **changes}


def each(**changes: Any) -> list[Search]:
    return [search(rung, [rung], **changes) for rung in (1, 2, 3)]


@pytest.mark.parametrize(("searches", "settings"), [
    (each(), "each rung's own"), ([search(2, [1, 2, 3])], "one choice for all rungs")])
def test_ags_is_of_the_seeds_that_have_every_rung(searches: list[Search], settings: str) -> None:
    """Tuned 0.6 and 0.4 in seeds 0 and 1, default 0.45 and 0.2 in seeds 0 and 2, the gain in seed 0 alone."""
    (row,) = tuned_ags.rows(searches)
    assert [row[name] for name in ("method", "settings", "budget", "rungs")] == ["margin", settings, 4, 3]
    assert [row[name] for name in ("tuned_ags", "default_ags", "ags_gain")] == pytest.approx([0.5, 0.325, 0.15])
    assert [row[f"{name}:n"] for name in ("tuned_ags", "default_ags", "ags_gain")] == [2, 2, 1]
    assert row["tuned_ags:std"] == pytest.approx(0.2 / 2**0.5)
    assert tuned_ags.lines(searches[-1:], searches) == [
        f"margin on cub, {settings}, 3 rungs: AGS 50.0 (default 32.5); gain +15.0"], "rungs of earlier commands count"


def test_without_the_default_configuration_there_is_no_gain() -> None:
    bare = each()
    for one in bare:
        one["test"] = [score | {"default": None} for score in one["test"]]
    assert tuned_ags.lines(bare, bare) == ["margin on cub, each rung's own, 3 rungs: AGS 50.0"]


@pytest.mark.parametrize("searches", [
    each()[:2],
    [*each()[:2], search(3, [3], budget=5)],
    [*each()[:2], search(3, [3], fixed={"dim": 8})],
    [*each()[:2], search(3, [3], ladder=[[1, 11.0], *LADDER[1:]])],
    each(ladder=[[rung, 10.0] for rung, _ in LADDER]),
    each(ladder=[]),
    [{name: value for name, value in one.items() if name != "ladder"} for one in each()],
], ids=["two rungs", "another budget", "another network", "another ladder", "all at one distance", "no distances",
        "a file of before"])
def test_there_is_no_ags_of_what_is_not_one_whole_ladder(searches: list[Search]) -> None:
    assert tuned_ags.table(searches) is None
    assert [line for line in tuned_ags.lines(searches, searches) if ": no AGS, since" not in line] == []
    board = tuning.board(searches)
    assert tuned_ags.joined(board, None) is board


def test_unequal_budgets_are_named_where_they_alone_leave_no_ags() -> None:
    searches = [*each()[:2], search(3, [3], budget=5)]
    assert tuned_ags.lines(searches[-1:], searches) == [
        "margin on cub: no AGS, since its rungs were tuned with unequal budgets (4, 5 trials); one --trials for all of "
        "them gives it one"]
    assert not tuned_ags.lines(searches[1:], searches[1:]), "a rung is missing as well"


def test_the_table_says_which_methods_lack_a_rung_and_whose_budgets_differ() -> None:
    whole = [*each(), *each(method="arcface", budget=9), *each(method="triplet")[1:]]
    table = tuned_ags.table(whole)
    assert isinstance(table, Table)
    assert [row["method"] for row in table.rows] == ["margin", "arcface"]
    assert table.note == ("Budgets differ between methods of a dataset: their gains are not comparable. No seed has "
                          "every rung, tested with one budget, of triplet on cub.")
    swapped = search(2, [1, 2, 3], tested_held_out={"1": 5, "2": 0, "3": 4})
    table = tuned_ags.table([*each(), swapped])
    assert isinstance(table, Table)
    assert [row["settings"] for row in table.rows] == ["each rung's own", "one choice for all rungs"]
    assert "up to 5 of its held-out classes" in table.note


def test_exports_have_it_beside_the_searches() -> None:
    """In CSV and JSON as further rows with columns of their own, else as a table before that of the searches."""
    frame = pd.read_csv(io.StringIO(exports.searched(each(), "tuning", "csv")), dtype={"split": str})
    assert frame["split"].tolist()[:3] == ["1", "2", "3"]
    assert frame["tuned_ags"].notna().tolist() == [False, False, False, True]
    last = frame.iloc[-1]
    assert [last["tuned_ags"], last["default_ags"], last["ags_gain"]] == pytest.approx([0.5, 0.325, 0.15])
    assert pd.isna(last["test"])
    rows = json.loads(exports.searched(each(), "tuning", "json"))["rows"]
    assert rows[-1]["tuned_ags"] == pytest.approx(0.5)
    assert rows[0]["split"] == 1
    ags, searches = exports.searched(each(), "tuning", "md").split("\n\n", 1)
    assert ags.splitlines()[-1] == "| margin | cub | each rung's own | 4 | 3 | 50.0 ± 14.1 | 32.5 ± 17.7 | +15.0 |"
    assert searches.startswith("| Method | Dataset | Chosen on split |")
    assert exports.searched(each(), "tuning", "latex").count(r"\toprule") == 2
