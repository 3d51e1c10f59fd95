"""Rows that differ are kept apart: datasets in exports, backbones in studies, rows with and without cells."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import methods
from benchmark.config import overrides
from benchmark.config import protocol as protocols
from reports import exports, packing, records, selection, site
from reports.analysis import differences
from reports.analysis.results import Results
from reports.html import analysis_pages, comparison_pages
from reports.pinned_ladders import PinnedLadder
from tests.sample_records import identity, make_record, some_pages, write_sample
from tests.test_report_studies import write_fewshot


def put(runs: Path, backbone: str, *facts: Any, **changes: Any) -> Path:
    """Writes the record of a run on a backbone where a sweep would, and returns its folder."""
    record = make_record(*facts, backbone={"name": backbone, "weights": None}, **changes)
    record["identity"] = hashlib.sha256(f"{backbone}{record['identity']}".encode()).hexdigest()
    folder = records.run_folder(runs, record["dataset"], record["split"]["id"], record["method"]["name"],
                                record["seed"], record["identity"])
    records.write(folder, record)
    return folder


def test_who_was_given_the_same_epochs_stands_in_the_same_protocol(tmp_path: Path) -> None:
    """margin was run long on one rung and short on another, s2sd long and arcface short alone; the file has 200."""
    for method, split, epochs in (("margin", 1, 200), ("s2sd", 1, 200), ("margin", 5, 40), ("arcface", 5, 40)):
        made = make_record("glyphs", split, method, 0, 0.5)["provenance"]
        made["overrides"] = {} if epochs == 200 else {"epochs": [200, epochs]}
        put(tmp_path, "small", "glyphs", split, method, 0, 0.5, protocol={"name": "oodml", "epochs": epochs},
            provenance=made)
    runs = Results(records.collect(tmp_path)).runs
    assert runs.set_index(["method", "split"])["protocol"].to_dict() == {
        ("margin", 1): "oodml", ("s2sd", 1): "oodml", ("margin", 5): "oodml[epochs=40]",
        ("arcface", 5): "oodml[epochs=40]"}


@pytest.mark.parametrize("key", ["resize", "image_side"])
def test_who_saw_larger_images_is_ranked_apart(tmp_path: Path, key: str) -> None:
    """Also the frozen network: its features are of what it sees."""
    made = [("margin", {key: 288}, 0.7), ("arcface", {}, 0.69), ("margin", {}, 0.68), ("frozen", {}, 0.4)]
    for number, (method, changes, score) in enumerate(made):
        own = protocols.load("oodml", dataset="cub", method=method, overrides=changes)
        for split in range(1, 6):
            record = make_record("glyphs", split, method, 0, score, identity=identity(f"{number}-{split}"),
                                 protocol=own.identity())
            records.write(tmp_path / f"{number}-{split}", record)
    results = Results(records.collect(tmp_path), derive=overrides.of_run)
    larger, usual = results.ags("recall@1", f"oodml[{key}=288]").wide(), results.ags("recall@1", "oodml").wide()
    assert [set(board["base_method"]) for board in (larger, usual)] == [{"margin"}, {"arcface", "margin", "frozen"}]
    assert larger["mean:gain"].isna().all(), "no frozen network saw such images"
    assert usual.set_index("base_method").loc["margin", "mean:gain"] == pytest.approx(0.28)


def ranked(folder: Path, made: list[tuple[str, dict[str, Any], dict[str, Any], int]]) -> Results:
    """Runs of (method, changes of the protocol, of its own settings, seed) on every split of a ladder."""
    for number, (method, changes, settings, seed) in enumerate(made):
        own = protocols.load("demo", dataset="glyphs-mini", method=method, overrides=changes)
        used = dataclasses.asdict(methods.get(method).settings("glyphs-mini", **settings))
        for split in range(1, 6):
            record = make_record("glyphs", split, method, seed, 0.7 - 0.01 * number, protocol=own.identity(),
                                 identity=identity(f"{number}-{split}"))
            record["method"]["settings"] = used
            records.write(folder / f"{number}-{split}", record)
    return Results(records.collect(folder), derive=overrides.of_run)


def test_a_method_with_runs_of_another_length_stays_on_the_board_of_the_usual_one(tmp_path: Path) -> None:
    """Most runs have three epochs; margin has one seed with those of the file as well, as supcon has."""
    longer = [("margin", {"epochs": 3}, {}, seed) for seed in range(3)]
    results = ranked(tmp_path, [*longer, ("margin", {}, {}, 0), ("supcon", {}, {}, 0)])
    assert results.protocols == ["demo", "demo[epochs=3]"]
    assert set(results.ags("recall@1", "demo").rows["method"]) == {"margin", "supcon"}


def test_the_file_of_a_protocol_is_known_from_any_of_its_runs(tmp_path: Path) -> None:
    """Three runs of arcface, two of them longer, do not tell what they were given; those of margin do."""
    made: list[tuple[str, int, dict[str, Any] | None]] = [("margin", 40, {}), ("margin", 80, {"epochs": [40, 80]})]
    made += [("arcface", epochs, None) for epochs in (40, 80, 80)]
    for number, (method, epochs, changed) in enumerate(made):
        for split in range(1, 6):
            record = make_record("glyphs", split, method, number, 0.7 - 0.01 * number,
                                 identity=identity(f"{number}-{split}"),
                                 protocol={"name": "mine", "epochs": epochs, "lr": 0.1})
            record["provenance"] |= {"command": "oodml run --study x"} | ({} if changed is None else
                                                                          {"overrides": changed})
            records.write(tmp_path / f"{number}-{split}", record)
    results = Results(records.collect(tmp_path))
    assert results.protocols == ["mine", "mine[epochs=80]"]
    seeds = results.runs.groupby(["method", "protocol"])["seed"].nunique()
    assert seeds.unstack().to_numpy().tolist() == [[1, 2], [1, 1]], "of arcface and margin, each length apart"


def test_most_runs_with_a_key_of_later_versions_leave_the_plain_name_to_those_without(tmp_path: Path) -> None:
    longer = [("margin", {"image_side": 512}, {}, seed) for seed in range(2)]
    results = ranked(tmp_path, [*longer, ("margin", {}, {}, 0), ("supcon", {}, {}, 0)])
    assert results.protocols == ["demo", "demo[image_side=512]"]
    assert set(results.ags("recall@1", "demo").rows["method"]) == {"margin", "supcon"}


def test_a_learning_rate_of_its_own_costs_a_row_no_board(tmp_path: Path) -> None:
    """Tuned methods beside themselves as they are by default, which they are ranked among, each row by its name."""
    tuned = [("margin", {"lr": 0.01}, {}, 0), ("supcon", {"lr": 0.006}, {}, 0)]
    results = ranked(tmp_path, [*tuned, ("margin", {}, {}, 0), ("supcon", {}, {}, 0)])
    assert results.protocols == ["demo"]
    rows = results.ags("recall@1", "demo").rows
    assert sorted(rows["rank"]) == [1, 2, 3, 4]
    assert sorted(rows["protocol"]) == ["demo", "demo", "demo[lr=0.006]", "demo[lr=0.01]"]


def test_where_no_setting_is_usual_the_default_has_the_plain_name(tmp_path: Path) -> None:
    results = ranked(tmp_path, [("margin", {}, {"beta": 1.0}, 0), ("margin", {}, {}, 0)])
    assert sorted(results.runs["method"].unique()) == ["margin", "margin[beta=1.0]"]


def test_the_best_of_an_export_is_that_of_its_dataset_and_no_floor(tmp_path: Path) -> None:
    write_sample(tmp_path, {"frozen": 0.9, "margin": 0.4, "s2sd": 0.5, "arcface": 0.3}, seeds=2)
    results = Results(records.collect(tmp_path))
    numbers = pd.read_csv(StringIO(exports.export(results, "recall", "csv")))
    expected = set()
    for dataset in numbers["dataset"].unique():
        for metric in ("recall@1", "map@1000"):
            here = numbers[(numbers["dataset"] == dataset) & (numbers["method"] != "frozen")]
            expected.add((dataset, here.loc[here[metric].idxmax(), "method"], metric))
    bold = set()
    for block in re.split(r"\n(?=\| dataset)", exports.export(results, "recall", "md")):
        head, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]]
                           for line in block.splitlines() if line.startswith("|")]
        for cells in lines:
            row = dict(zip(head, cells))
            bold |= {(row["dataset"], row["method"], metric) for metric in ("recall@1", "map@1000")
                     if row[metric].startswith("**")}
    assert len(expected) == 6
    assert bold == expected


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on two backbones along a ladder, with few-shot results and transfer; one more on a union alone."""
    runs = tmp_path_factory.mktemp("two") / "runs"
    for backbone, base, floor in (("lite0", 0.5, 0.25), ("lite2", 0.7, 0.35)):
        for method, more in (("margin", 0.0), ("s2sd", 0.1)):
            for split in range(1, 6):
                for seed in (0, 1):
                    score = base + more - 0.02 * split + 0.01 * seed
                    folder = put(runs, backbone, "glyphs", split, method, seed, score)
                    write_fewshot(folder, score, score + 0.05)
                    if split == 1:
                        (folder / "cross.json").write_text(json.dumps({"schema": 1, "targets": {"cars": {
                            "scores": {"recall@1": score / 2},
                            "floor": {"backbone": backbone, "scores": {"recall@1": floor}}}}}))
    put(runs, "lite0", "glyphs-union", 1, "universal", 0, 0.8, {"latin": 0.8, "greek": 0.7})
    return runs


def build(runs: Path, out: Path) -> Path:
    frame, lost = records.scan(runs)
    return site.build(Results(frame), lost, out).parent


def test_a_method_on_two_backbones_has_two_names_in_every_table(
        two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_pages, "CELLS_SHOWN", 7)
    out = build(two, tmp_path)
    rows = {"stability-demo": 4, "structure-cells": 20, "fewshot-2": 20, "cross-glyphs-recall-1": 6,
            "cross-recall-1": 4}
    for name, count in rows.items():
        table = pd.read_csv(out / "data" / f"{name}.csv")
        assert len(table) == count, name
        keys = [key for key in ("trained", "dataset", "split", "method", "backbone") if key in table]
        assert not table.duplicated(keys).any(), name
    across = pd.read_csv(out / "data" / "cross-glyphs-recall-1.csv").set_index(["method", "backbone"])
    for backbone, floor in (("lite0", 0.25), ("lite2", 0.35)):
        assert across.at[("frozen", backbone), "cars"] == floor
        assert across.at[("margin", backbone), "cars:gain"] == pytest.approx(
            across.at[("margin", backbone), "cars"] - floor)
    text = (out / "structure.html").read_text()
    assert "The first 7 of 20 rows" in text
    board = text.partition('id="table-structure-cells"')[2].partition("</table>")[0]
    assert board.partition("<tbody>")[2].count("<tr") == 7


def test_only_rows_with_a_rung_in_common_are_offered_for_comparison(two: Path, tmp_path: Path) -> None:
    put(tmp_path / "runs", "lite0", "cars", 3, "alone", 0, 0.5)
    results = Results(records.collect([two, tmp_path / "runs"]))
    text = some_pages(results, comparison_pages.compare)["compare.html"]
    data = json.loads(text.partition('id="compare-data">')[2].partition("</script>")[0])
    assert sorted(data["labels"]) == [f"{name} · {backbone}" for name in ("margin", "s2sd")
                                      for backbone in ("lite0", "lite2")]
    for i in range(len(data["labels"])):
        assert any(cell["scores"][i] is not None and sum(score is not None for score in cell["scores"]) > 1
                   for cell in data["cells"])
    assert "further rows are not" not in text


def test_runs_that_keep_their_queries_are_counted_loose_and_packed(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), 1, union=False, queries=True)
    for path in sorted(runs.rglob("queries.npz"))[:3]:
        path.unlink()
    packing.pack([runs], tmp_path / "pack")
    assert len(list(runs.rglob("queries.npz"))) == 7
    for folder in (runs, tmp_path / "pack"):
        assert comparison_pages.keeping_queries(records.collect(folder)) == 7


@pytest.mark.parametrize("here", [True, False])
def test_other_distances_are_another_ladder_whatever_name_they_bear(tmp_path: Path, here: bool) -> None:
    """The runs of s2sd, the newest, name the ladder of the others, whose distances were measured anew since."""
    ladder = [[1, 10.0], [2, 20.0], [3, 40.0]]
    pinned = {"name": "glyphs@v9", "hash": "9" * 64}
    for method, factor in (("margin", 1), ("arcface", 1), ("s2sd", 3)):
        for split, _ in ladder:
            record = make_record("glyphs", split, method, 9 * (method == "s2sd"), 0.5 - 0.1 * split)
            record["split"] |= {"ladder": [[i, frd + factor * i] for i, frd in ladder], "pinned": pinned}
            records.write(tmp_path / method / str(split), record)
    frame = records.collect(tmp_path)
    known = PinnedLadder("glyphs@v9", "9" * 64, "glyphs", "", ((1, 11.0), (2, 22.0), (3, 43.0)),
                         dict.fromkeys((1, 2, 3), ""))
    results = Results(frame, pinned=[known] if here else [], ladders=["glyphs@v9"])
    counted, aside = ({"margin", "arcface"}, 3) if here else ({"s2sd"}, 6)
    assert set(results.runs["method"]) == counted
    assert results.runs["ladder"].nunique() == 1
    (note,) = [note for note in results.notes if "set aside" in note]
    assert note.startswith(f"{aside} runs " + ("on another ladder of glyphs are set aside" if here else
                                               "with other distances than glyphs@v9 has in the newest runs are set"))


@pytest.mark.parametrize("same", [True, False])
def test_runs_from_before_ones_own_ladder_was_pinned_stand_with_those_after(tmp_path: Path, same: bool) -> None:
    """Margin was run before, s2sd after it; on other classes, though at these distances, it is on another ladder."""
    for method in ("margin", "s2sd"):
        for split in (1, 2, 3):
            record = make_record("glyphs", split, method, 0, 0.5 - 0.1 * split)
            record["split"]["hash"] = f"{split}{'' if same or split > 1 else method}"
            if method == "s2sd":
                record["split"]["pinned"] = {"name": "glyphs@mine", "hash": "9" * 64}
            records.write(tmp_path / method / str(split), record)
    results = Results(records.collect(tmp_path))
    assert results.runs["method"].value_counts().to_dict() == {"margin": 3 if same else 2, "s2sd": 3}
    assert [note for note in results.notes if "set aside" in note] == ([] if same else [
        note for note in results.notes if note.startswith("1 run on another ladder of glyphs is set aside")])


@pytest.mark.parametrize(("score", "told"), [(0.7, ""), (0.70001, ""), (0.9, "(Recall@1 70.0 and 90.0)")])
def test_one_run_with_two_scores_is_told_and_a_copy_is_not(tmp_path: Path, score: float, told: str) -> None:
    """The records of two machines: what was copied from one to the other is one run, whatever the last bits."""
    for folder, recall in (("here", 0.7), ("there", score)):
        records.write(tmp_path / folder / "run", make_record("glyphs", 3, "margin", 1, recall))
    runs, notes = selection.select(records.collect([tmp_path / "here", tmp_path / "there"]))
    assert runs["recall@1"].tolist() == [score]
    assert len(notes) == bool(told)
    assert told in "".join(notes)
    assert not notes or "1 run is in the records more than once" in notes[0]


def test_two_folders_with_the_same_runs_are_compared_run_by_run(tmp_path: Path) -> None:
    frames = []
    for folder in ("here", "there"):
        records.write(tmp_path / folder / "run", make_record("glyphs", 3, "margin", 1, 0.7))
        frames.append(records.collect(tmp_path / folder))
    assert differences.cells(*frames, "recall@1", 0.0).empty
    assert differences.shared(*frames) == 1
