"""Rows of which less is known than of others: seeds, epochs, splits or queries that only some of their runs have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from reports import exports, records, sharing
from reports.analysis import board_columns, fewshot, study_progress, transfer
from reports.analysis.ladder_tables import heat_table
from reports.analysis.resampling import Resamples
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board
from reports.analysis.submission import UNTESTED, standing
from reports.html import dataset_pages
from reports.html.extras import Extras
from reports.selection import ROW
from reports.storage.queries import PartResults, QueryResults
from reports.terminal import summary
from reports.tidy import tidy_table
from tests.sample_records import LADDERS, identity, make_record, some_pages, write_queries

METHODS = {"margin": 0.70, "arcface": 0.69, "s2sd": 0.68, "proxyanchor": 0.50}


def board_of(folder: Path, made: Iterable[dict[str, Any]]) -> Results:
    for number, record in enumerate(made):
        records.write(folder / str(number), record)
    return Results(records.collect(folder), with_published=False)


def whole_ladders(seeds: dict[str, Iterable[int]]) -> list[dict[str, Any]]:
    """Every method on the ladders of some datasets with these seeds, whose scores vary by three points."""
    rng = np.random.default_rng(0)
    return [make_record(dataset, split, method, seed, score + float(rng.normal(0, 0.03)))
            for method, score in METHODS.items() for dataset, own in seeds.items() for split, _ in LADDERS[dataset]
            for seed in own]


@pytest.mark.parametrize("rule", ["best-test", "validation"])
def test_the_selection_gap_is_of_seeds_with_both_epochs(tmp_path: Path, rule: str) -> None:
    """The seed without a chosen epoch has scores 20 points higher, which are no matter of the gap."""
    made = []
    for record in whole_ladders({"glyphs": (0, 1), "cars": (0, 1)}):
        last, second = record["scores"]["last"], record["seed"] == 1
        last = {metric: value + 0.2 * second for metric, value in last.items() if metric == "recall@1"}
        chosen = {} if second else {rule: {metric: value + 0.01 for metric, value in last.items()}}
        made.append(record | {"scores": {"last": last} | chosen})
    board = board_of(tmp_path, made).ags("recall@1", "demo")
    name = "gap" if rule == "best-test" else "gap:validation"
    assert board.rows[name].tolist() == pytest.approx([0.01] * len(METHODS))


def test_there_is_no_selection_gap_where_a_dataset_has_no_chosen_epoch(tmp_path: Path) -> None:
    """On Cars scores are 20 points lower and no classes were held out."""
    made = []
    for record in whole_ladders({"glyphs": (0,), "cars": (0,)}):
        cars = record["dataset"] == "cars"
        last = {"recall@1": record["scores"]["last"]["recall@1"] - 0.2 * cars}
        held_out = {} if cars else {"validation": {"recall@1": last["recall@1"] + 0.01}}
        made.append(record | {"scores": {"last": last, "best-test": last} | held_out})
    board = board_of(tmp_path, made).ags("recall@1", "demo")
    assert board.rows["gap:validation"].isna().all()
    assert board.rows["gap"].tolist() == [0.0] * len(METHODS)


@pytest.mark.parametrize("cars", [(3, 4, 5), (2, 3, 4), (0, 1, 2)])
def test_datasets_with_other_seeds_leave_the_chance_of_training_in_their_mean(
        tmp_path: Path, cars: tuple[int, ...]) -> None:
    """Methods a point apart are not told apart by three seeds that vary by three, whichever seeds these are."""
    results = board_of(tmp_path, whole_ladders({"glyphs": (0, 1, 2), "cars": cars}))
    board = results.ags("recall@1", "demo")
    error = np.sqrt(results.errors(board, ("mean", ""), "recall@1").seeds)
    gaps = [np.diff([frd for _, frd in ladder]) / (ladder[-1][1] - ladder[0][1]) for ladder in LADDERS.values()]
    weights = [np.append(gap, 0) / 2 + np.insert(gap, 0, 0) / 2 for gap in gaps]
    expected = 0.03 * np.sqrt(sum((weight**2).sum() for weight in weights)) / 2 / np.sqrt(3)
    assert error == pytest.approx(np.full(len(METHODS), expected), rel=0.5)
    rows = board.rows.set_index("method")
    assert rows.loc["margin", "rank:high"] > rows.loc["margin", "rank:low"]
    assert bool(rows["rank:tested"].all())
    mean = board.column("mean")
    assert mean["n"].eq(3).all()
    assert mean["std"].notna().all() == (cars == (0, 1, 2)), "a deviation takes seeds that both datasets have"


def test_a_row_with_one_seed_on_each_dataset_takes_the_deviation_of_the_others(tmp_path: Path) -> None:
    """Also where it is another seed on each."""
    made = whole_ladders({"glyphs": (0, 1, 2), "cars": (0, 1, 2)})
    single = [record for record in made if record["method"]["name"] != "s2sd"
              or record["seed"] == (record["dataset"] == "cars")]
    results = board_of(tmp_path, single)
    board = results.ags("recall@1", "demo")
    seeds = dict(zip(board.rows["method"], results.errors(board, ("mean", ""), "recall@1").seeds))
    others = [variance for method, variance in seeds.items() if method != "s2sd"]
    assert seeds["s2sd"] == pytest.approx(3 * np.mean(others), rel=0.5)


def test_the_table_of_ags_has_ranks_by_ags_alone(tmp_path: Path) -> None:
    """By the other protocol methods were trained on the default split alone, on which its board ranks them."""
    other = [make_record("glyphs", 1, method, 0, score + 0.1, protocol={"name": "other", "epochs": 3},
                         identity=identity(f"other {method}")) for method, score in METHODS.items()]
    results = board_of(tmp_path, [*whole_ladders({"glyphs": (0,)}), *other])
    table = pd.read_csv(StringIO(exports.export(results, "ags", "csv"))).set_index("protocol")
    assert sorted(table.loc["demo", "rank"]) == [1, 2, 3, 4]
    assert table.loc["demo", "rank:of"].eq(4).all()
    assert table.loc["other", ["rank", "rank:low", "rank:high", "ags"]].isna().all(axis=None)
    assert table.loc["other", "coverage"].eq("1/5").all()
    badges = dict(sharing.badges(tidy_table(results, "ags"), results.labels))
    assert len(badges) == len(METHODS)


@pytest.mark.parametrize("odd", [{"epoch": 2, "recall@1": None}, {"epoch": None, "recall@1": 0.9}, {"recall@1": 0.9},
                                 {"epoch": 2, "loss": 1.0}])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_points_of_a_curve_without_epoch_or_score_tell_no_late_gain(odd: dict[str, Any], place: int) -> None:
    curve: list[dict[str, Any]] = [{"epoch": 10, "recall@1": 0.4}, {"epoch": 20, "recall@1": 0.5}]
    assert board_columns.late_gain([*curve[:place], odd, *curve[place:]]) == pytest.approx(0.1)


def test_a_run_that_was_tested_otherwise_costs_no_other_row_its_errors(tmp_path: Path) -> None:
    """ArcFace, the first of the rows, has queries from before they named their classes."""
    labels, hits = np.repeat(np.arange(12), 5), np.random.default_rng(0).random(60) < 0.6
    for method in METHODS:
        made = records.write(tmp_path / method, make_record("glyphs", 1, method, 0, float(hits.mean())))
        write_queries(made.parent, labels, hits, None if method == "arcface" else [f"class {i}" for i in range(12)])
    results = Results(records.collect(tmp_path), with_published=False)
    cells, errors = results.rung_errors("glyphs", 1, "recall@1")
    known = dict(zip(cells["method"], np.isfinite(errors.own)))
    assert known == {method: method != "arcface" for method in METHODS}


def test_a_union_has_errors_of_its_parts_where_some_file_tells_them(tmp_path: Path) -> None:
    labels, hits = np.repeat(np.arange(8), 5), np.random.default_rng(0).integers(1, 3, 40)
    told = PartResults((labels >= 4).astype(int), np.array(["latin", "greek"]), hits)
    for method in ("arcface", "margin"):
        made = records.write(tmp_path / method, make_record("glyphs-union", 1, method, 0, 0.5,
                                                            {"latin": 0.5, "greek": 0.5}))
        QueryResults(hits, np.ones(40, bool), labels, np.array([f"class {i}" for i in range(8)]),
                     parts=None if method == "arcface" else told).save(made.parent / "queries.npz")
    runs = Results(records.collect(tmp_path), with_published=False).runs
    drawn = Resamples.of(runs, ["recall@1"])["recall@1"]
    row = ("margin", "demo", "conv4", "run")
    assert np.isfinite(drawn.union("glyphs-union", 1, ["latin", "greek"], [row])["harmonic", ""]).all()


def test_evaluation_files_say_what_is_known_of_a_score(tmp_path: Path) -> None:
    """Without results of queries one seed has no interval, and two have one."""
    second = [make_record("glyphs", split, "margin", 1, 0.6) for split in range(1, 6)]
    results = board_of(tmp_path, [*whole_ladders({"glyphs": (0,)}), *second])
    files = dict(sharing.huggingface(tidy_table(results, "ags"), results.labels, "oodml"))
    notes = {name: yaml.safe_load(files[f"{name}/.eval_results/oodml.yaml"])[0]["notes"] for name in METHODS}
    assert notes["arcface"] == "demo protocol, conv4, 1 seed, rungs 5/5"
    assert re.fullmatch(r"demo protocol, conv4, 2 seeds, 95 % interval [\d.]+ to [\d.]+, rungs 5/5", notes["margin"])


def of_union(method: str, epochs: int = 3, **changes: Any) -> dict[str, Any]:
    record = make_record("glyphs-union", 1, method, 0, 0.5, {"latin": 0.6, "greek": 0.4},
                         protocol={"name": "demo", "epochs": epochs}, identity=identity(f"{epochs} {method}"),
                         **changes)
    record["split"]["parts"] = {"latin": 20, "greek": 10}
    record["provenance"]["overrides"] = {} if epochs == 3 else {"epochs": [3, epochs]}
    return record


def test_a_row_on_the_boards_of_two_protocols_is_one_row_of_a_file(tmp_path: Path) -> None:
    """What was submitted and the frozen network stand among the rows of 3 and among those of 5 epochs."""
    results = board_of(tmp_path, [*(of_union(method, epochs) for method in METHODS for epochs in (3, 5)),
                                  of_union("frozen"), of_union("sent", source="submitted")])
    assert results.protocols == ["demo", "demo[epochs=5]"]
    assert all({"frozen", "sent"} <= set(results.universal("glyphs-union", name).rows["method"])
               for name in results.protocols)
    scores = pd.read_csv(StringIO(exports.export(results, "uml", "csv")))
    rows = 2 * len(METHODS) + 2
    assert len(scores) == rows * len(("latin", "greek", "unified", "harmonic", "arithmetic"))
    assert not scores.duplicated(["method", "protocol", "dataset"]).any()
    assert exports.export(results, "uml", "macros").count("\n") == len(scores)
    sizes = some_pages(results, lambda site: dataset_pages.union(site, "glyphs-union"))["data/glyphs-union-bias.csv"]
    assert len(pd.read_csv(StringIO(str(sizes)))) == rows


def test_macros_of_names_with_the_same_letters_mean_the_same_whoever_leads(tmp_path: Path) -> None:
    """Prose that has the command of one of them goes on saying its score."""
    found = []
    for number, scores in enumerate(({"loss-1.2": 0.5, "loss-12": 0.7}, {"loss-1.2": 0.5, "loss-12": 0.3})):
        results = board_of(tmp_path / str(number), [make_record("glyphs", split, method, 0, score)
                                                    for method, score in scores.items() for split in range(1, 6)])
        text = exports.export(results, "ags", "macros")
        found.append({name: re.findall(rf"\\newcommand{{\\(\w+)}}{{[\d.]+}} % glyphs {re.escape(name)} ags", text)
                      for name in scores})
    assert found[0] == found[1] == {"loss-1.2": ["oodmlGlyphsLossOneTwoAgs"],
                                    "loss-12": ["oodmlGlyphsLossOneTwoAgsTwo"]}


def asking(runs: int, splits: Iterable[int]) -> study_progress.StudyProgress:
    """A study of one method that asks for so many runs on these splits of a ladder."""
    hashes = " ".join((f"{split:x}" * 64)[:study_progress.DIGITS] for split in splits)
    row = {"dataset": "glyphs", "method": "margin", "protocol": "demo", "backbone": "conv4", "runs": runs,
           "splits": hashes}
    return study_progress.StudyProgress("try", "", "", pd.DataFrame([row]))


@pytest.mark.parametrize(("there", "done"), [
    ({1: (0,), 2: (0,), 3: (0,)}, 3), ({1: (0, 1, 2)}, 1), ({1: (0, 1), 2: (5,)}, 2), ({}, 0),
    ({1: (0, 1), 2: (5,), 3: (0,)}, 3)])
def test_further_seeds_on_one_split_are_not_the_runs_of_another(
        tmp_path: Path, there: dict[int, tuple[int, ...]], done: int) -> None:
    """A study asks for one run on each of three splits."""
    made = [make_record("glyphs", split, "margin", seed, 0.5) for split, seeds in there.items() for seed in seeds]
    runs = board_of(tmp_path, [*made, make_record("glyphs", 1, "s2sd", 0, 0.5)]).runs
    study = asking(3, (1, 2, 3))
    assert study.held_against(runs)["done"].tolist() == [done]
    assert sorted(study.done(runs)["split"]) == [*there]


@pytest.mark.parametrize(("asked", "there", "done"), [
    (6, {1: (0, 1, 2, 3, 4), 2: (0,)}, 3), (6, {1: (7, 9), 2: (3, 0), 3: (5, 6)}, 6),
    (6, {1: (7, 8, 9), 2: (3, 0, 1), 3: (4, 5, 6)}, 6), (3, {1: (4,), 2: (2, 9), 3: (0, 1, 2)}, 3),
    (9, {1: (0, 1, 2, 3), 2: (5,), 3: (8, 9)}, 6)])
def test_as_many_seeds_count_on_each_split_as_are_asked_for_whichever_they_are(
        tmp_path: Path, asked: int, there: dict[int, tuple[int, ...]], done: int) -> None:
    """A study asks for equally many seeds on each of three splits; a fourth on one does not make up for another."""
    made = [make_record("glyphs", split, "margin", seed, 0.5) for split, seeds in there.items() for seed in seeds]
    runs = board_of(tmp_path, made).runs
    study = asking(asked, (1, 2, 3))
    assert study.held_against(runs)["done"].tolist() == [done]
    assert len(study.done(runs)) == done
    shown = study_progress.shown(study, runs)
    assert shown is not None
    assert (shown["done"], shown["runs"], shown["complete"]) == (done, asked, done == asked)
    assert [part["done"] for part in shown["parts"]] == [done]


def test_a_study_of_before_that_asks_for_more_seeds_on_some_splits_can_be_done(tmp_path: Path) -> None:
    """Its file does not say on which: five runs on two splits."""
    runs = board_of(tmp_path, [make_record("glyphs", split, "margin", seed, 0.5)
                               for split, seed in ((1, 0), (1, 1), (1, 2), (1, 3), (2, 0))]).runs
    assert asking(5, (1, 2)).held_against(runs)["done"].tolist() == [5]


def test_what_is_lost_along_a_ladder_is_of_the_seeds_that_have_both_ends(tmp_path: Path) -> None:
    """A second seed of margin on the nearest split alone is 20 points worse; arcface has none on both ends."""
    made = [make_record("glyphs", split, "margin", 0, 0.8 - 0.05 * split) for split in range(1, 6)]
    made += [make_record("glyphs", 1, "margin", 1, 0.55)]
    made += [make_record("glyphs", split, "arcface", seed, 0.5) for split, seed in ((1, 0), (5, 1))]
    made += [make_record("glyphs", split, "s2sd", 0, 0.6) for split in range(1, 6)]
    results = board_of(tmp_path, made)
    for board in (results.ags("recall@1", "demo"), rung_board(results, "glyphs", "recall@1")):
        rows = board.rows.set_index("method")
        assert rows.loc["margin", ["nearest", "farthest"]].tolist() == pytest.approx([0.75, 0.55])
        assert rows.loc["margin", "kept"] == pytest.approx(0.55 / 0.75)
    assert rows.loc["arcface", ["nearest", "farthest"]].tolist() == pytest.approx([0.5, 0.5])
    assert rows["rungs:n"].dropna().to_dict() == {"margin": 2}
    note = heat_table(results, "glyphs", "recall@1").note
    assert "AGS is of the seeds with every split. Single splits are of up to 2 seeds." in note


@pytest.mark.parametrize(("there", "done"), [
    ({1: (0, 1, 2), 2: (0,), 3: (0,)}, 5), ({1: (0,), 2: (0, 1, 2), 3: (0,)}, 3),
    ({1: (0, 1), 2: (0, 1), 3: (0, 1)}, 4)])
def test_further_seeds_count_on_the_splits_alone_for_which_they_are_asked(
        tmp_path: Path, there: dict[int, tuple[int, ...]], done: int) -> None:
    """A study asks for three seeds on the first of three splits and for one on the others."""
    runs = board_of(tmp_path, [make_record("glyphs", split, "margin", seed, 0.5)
                               for split, seeds in there.items() for seed in seeds]).runs
    study = asking(5, (1, 2, 3))
    study = dataclasses.replace(study, rows=study.rows.assign(seeds="3 1 1"))
    assert study.held_against(runs)["done"].tolist() == [done]
    assert len(study.done(runs)) == done


def test_the_mean_over_methods_of_a_transfer_counts_each_once(tmp_path: Path) -> None:
    """One seed of margin and three of s2sd."""
    scores = {"margin": [0.2], "s2sd": [0.7, 0.8, 0.9]}
    made = [make_record("glyphs", 1, method, seed, score) for method, own in scores.items()
            for seed, score in enumerate(own)]
    runs = board_of(tmp_path, made).runs
    evaluated = runs[[*ROW, "label", "seed"]].assign(trained=runs["dataset"], evaluated="cars", metric="recall@1",
                                                     score=runs["recall@1"] / 2, frozen=None, frozen_backbone=None)
    row = transfer.matrix(evaluated, runs, "recall@1").frame.iloc[0]
    assert (row["target:glyphs"], row["target:cars"]) == pytest.approx((0.5, 0.25))


def test_the_few_shot_gain_of_a_row_counts_each_split_once(tmp_path: Path) -> None:
    """Two seeds were adapted on the first split, which gain 10 points, and one on the second, which gains 40."""
    results = board_of(tmp_path, whole_ladders({"glyphs": (0, 1)}))
    row = dict(zip(ROW, ("margin", "demo", "conv4", "run"))) | {"dataset": "glyphs", "metric": "recall@1", "shots": 2,
                                                                        "episodes": 10, "iterations": 1000, "lr": 1e-4}
    adapted = pd.DataFrame([row | {"split": split, "seed": seed, "zero": 0.5, "few": 0.5 + gain}
                            for split, seed, gain in ((1, 0, 0.1), (1, 1, 0.1), (2, 0, 0.4))])
    board = fewshot.with_gain(results.ags("recall@1", "demo"), adapted, "recall@1")
    assert board.rows.set_index("method").at["margin", "fewshot"] == pytest.approx(0.25)


def test_a_submission_is_not_said_to_tie_with_what_it_was_not_tested_against(tmp_path: Path) -> None:
    """Of one seed each, without results of queries, nothing is known of the error."""
    sent = [make_record("glyphs", split, "sent", 0, 0.9, source="submitted", identity=identity(f"sent {split}"))
            for split in range(1, 6)]
    text = standing(board_of(tmp_path / "one", [*whole_ladders({"glyphs": (0,)}), *sent]), "sent")
    told = dict(line[2:].split(": ", 1) for line in text.splitlines() if line.startswith("- "))
    untested = told.pop(UNTESTED)
    assert all(method in untested for method in METHODS)
    assert told == dict.fromkeys(("beats", "does not differ from", "is beaten by"), "none")
    tested = standing(board_of(tmp_path / "three", [*whole_ladders({"glyphs": (0, 1, 2)}), *sent]), "sent")
    assert UNTESTED not in tested


def test_a_ladder_whose_rungs_are_all_at_one_distance_stops_no_board(tmp_path: Path) -> None:
    """It has no AGS, and a board by one of its splits."""
    flat = [make_record("glyphs", split, method, 0, score, identity=identity(f"{method} {split}")) | {"dataset": "flat"}
            for method, score in METHODS.items() for split in (1, 2)]
    for record in flat:
        record["split"] |= {"ladder": [[1, 50.0], [2, 50.0]], "frd": 50.0}
    results = board_of(tmp_path, [*whole_ladders({"glyphs": (0,)}), *flat])
    assert results.laddered == ["glyphs"]
    assert results.ags("recall@1", "demo").parts("ags") == ["glyphs"]
    assert sorted(rung_board(results, "flat", "recall@1").rows["rank"]) == [1, 2, 3, 4]
    assert "flat" in summary(results, pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    pages = some_pages(results, lambda site: dataset_pages.ladder(site, "flat", Extras()))
    assert "dataset/flat.html" in pages
