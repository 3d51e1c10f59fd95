"""A study that trains each method for a length of its own has one board; else lengths are not ranked together."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark import ladders
from benchmark.board import study_progress
from benchmark.commands import report, run
from benchmark.config.study import Study
from benchmark.runs import sweep
from benchmark.runs.job import SweepResult
from benchmark.runs.matrix import gather
from benchmark.utils.workspace import Workspace
from reports import ReportError, records, terminal
from reports.analysis import own_lengths, standings
from reports.analysis.ladder_tables import heat_table
from reports.analysis.results import Results
from reports.analysis.rung_board import beside_ladder, rung_board
from reports.analysis.study_progress import DIGITS, StudyProgress, read, shown, write
from reports.html import dataset_pages, home_page
from reports.html.extras import Extras
from reports.tidy import tidy_table
from tests.sample_records import LADDERS, make_record, some_pages
from tests.tiny_sweep import SMALL

LENGTHS = {"margin": 2, "s2sd": 4, "diva": 1}
SCORES = {"margin": 0.7, "s2sd": 0.8, "diva": 0.6}
BOARD = "demo[study=mine]"


def identity(method: str, split: int, epochs: int, seed: int = 0) -> str:
    return hashlib.sha256(f"{method}-{split}-{epochs}-{seed}".encode()).hexdigest()


def put(folder: Path, method: str, split: int, epochs: int, score: float, seed: int = 0) -> None:
    made = make_record("cars", split, method, seed, score, backbone={"name": "conv4", "weights": None},
                       protocol={"name": "demo", "batch": 112, "lr": 0.001, "epochs": epochs})
    made["provenance"]["overrides"] = {} if epochs == 3 else {"epochs": [3, epochs]}
    made["identity"] = identity(method, split, epochs, seed)
    records.write(folder / f"{method}-{split}-{epochs}-{seed}", made)


def study(folder: Path, lengths: dict[str, int], name: str = "mine") -> list[StudyProgress]:
    """A study that asks for these methods on the whole ladder of cars, as it is read again from its file."""
    rows = [{"dataset": "cars", "method": method, "protocol": "demo", "backbone": "conv4", "runs": len(LADDERS["cars"]),
             "splits": " ".join(f"{split:x}" * DIGITS for split, _ in LADDERS["cars"]),
             "given": "{}" if epochs == 3 else json.dumps({"epochs": epochs})} for method, epochs in lengths.items()]
    write(folder, StudyProgress(name, "Each as long as it gains.", f"oodml run --study {name}", pd.DataFrame(rows)))
    return read([folder])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three methods with a length of their own along the ladder of cars, and on both ends of it with the usual one."""
    for method, epochs in LENGTHS.items():
        for split, _ in LADDERS["cars"]:
            put(tmp_path, method, split, epochs, SCORES[method] - split / 50)
        for split in (1, 8):
            put(tmp_path, method, split, 3, 0.5 - split / 50 + SCORES[method] / 10)
    for split, _ in LADDERS["cars"]:
        put(tmp_path, "frozen", split, 3, 0.3)
    return tmp_path


def results(folder: Path, studies: list[StudyProgress] | None = None) -> Results:
    return Results(records.collect(folder), with_published=False, studies=studies or [])


def test_other_lengths_are_ranked_together_on_the_board_of_their_study_alone(runs: Path) -> None:
    apart = results(runs)
    assert apart.laddering("recall@1") == ["demo[epochs=1]", "demo[epochs=2]", "demo[epochs=4]"]
    one = results(runs, study(runs / "pack", LENGTHS))
    assert one.laddering("recall@1") == [BOARD]
    board = one.ags("recall@1", BOARD).wide().set_index("method")
    assert board["rank"].dropna().to_dict() == {"s2sd": 1, "margin": 2, "diva": 3}
    assert board.loc["margin", "mean:gain"] == pytest.approx(board.loc["margin", "mean"] - 0.3)
    assert board["protocol"].to_dict() == {"s2sd": "demo[epochs=4]", "margin": "demo[epochs=2]",
                                           "diva": "demo[epochs=1]", "frozen": "demo"}
    rows = rung_board(one, "cars", "recall@1").rows
    ranks = rows[rows["rank"].notna()].set_index(["board", "method"])["rank"].to_dict()
    assert ranks == {(BOARD, "s2sd"): 1, (BOARD, "margin"): 2, (BOARD, "diva"): 3,
                     ("demo", "s2sd"): 1, ("demo", "margin"): 2, ("demo", "diva"): 3}
    tidy = tidy_table(one, "ags").dropna(subset=["rank"]).set_index("method")["rank"]
    assert tidy.to_dict() == {"s2sd": 1, "margin": 2, "diva": 3}


def test_a_study_of_one_length_has_no_board_of_its_own(tmp_path: Path) -> None:
    """Whatever learning rate one of its methods has: they stand among all others of that length."""
    for number, (method, rate) in enumerate((("s2sd", 0.001), ("diva", 0.5), ("diva", 0.001), ("margin", 0.001))):
        for split, _ in LADDERS["cars"]:
            made = make_record("cars", split, method, 0, 0.7 - number / 50, identity=identity(method, split, number),
                               backbone={"name": "conv4", "weights": None},
                               protocol={"name": "demo", "batch": 112, "lr": rate, "epochs": 3})
            made["provenance"]["overrides"] = {"lr": [0.001, rate]} if rate > 0.1 else {}
            records.write(tmp_path / f"{number}-{split}", made)
    (of_study,) = study(tmp_path / "pack", {"s2sd": 3, "diva": 3})
    of_study = replace(of_study, rows=of_study.rows.assign(given=["{}", '{"lr": 0.5}']))
    one = results(tmp_path, [of_study])
    assert of_study.held_against(one.runs)["done"].tolist() == [8, 8]
    assert one.laddering("recall@1") == ["demo"]
    assert one.ags("recall@1", "demo").rows["rank"].tolist() == [1, 2, 3, 4]


def test_pages_have_one_board_of_whole_ladders_and_one_of_the_rest(runs: Path) -> None:
    studies = study(runs / "pack", LENGTHS)
    one = results(runs, studies)
    assert beside_ladder(one, "cars", "recall@1") == "part"
    home = some_pages(one, home_page.write)["index.html"]
    assert home.count('id="ladder-') == 1
    assert "protocol demo, study mine" in home
    assert "Each method has a length of its own" in home
    assert "3 methods, 8 distances, 1 seed" in home, "rows of two splits beside them do not count"
    assert home.count('<li><span><a href="#') == 1, "one line for a dataset"
    assert "Trained on 2 splits of 8 so far; those above have the whole ladder" in home
    told = terminal.summary(one, pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    assert f"protocol {BOARD}" in told
    assert "on 2 of the 8 splits of cars" in told
    lines = standings.of(one)
    margin = lines[(lines["label"] == one.labels["margin", "demo[epochs=2]", "conv4", "run"])
                   & (lines["metric"] == "recall@1") & (lines["kind"] == "ladder")]
    assert margin[["rank", "rank:of"]].to_numpy().tolist() == [[2, 3]], "not first of one"


def test_a_row_with_a_part_of_the_ladder_or_a_method_twice_makes_no_such_board(runs: Path) -> None:
    put(runs, "arcface", 1, 5, 0.9)
    one = results(runs, study(runs / "pack", LENGTHS | {"arcface": 5}))
    assert "arcface" not in set(one.of_protocol(BOARD)["base_method"])
    for split, _ in LADDERS["cars"]:
        put(runs, "margin", split, 6, 0.65 - split / 50)
    rows = [study(runs / "pack", {method: epochs}, "mine")[0].rows for method, epochs in
            (*LENGTHS.items(), ("margin", 6))]
    twice = StudyProgress("mine", "", "", pd.concat(rows, ignore_index=True))
    assert BOARD not in results(runs, [twice]).protocols, "which of the two would be ranked?"


def test_a_further_seed_of_a_row_stands_with_it(runs: Path) -> None:
    put(runs, "margin", 1, 2, 0.72, seed=1)
    one = results(runs, study(runs / "pack", LENGTHS))
    assert set(one.runs.loc[one.runs["base_method"].eq("margin") & one.runs["protocol"].eq("demo[epochs=2]"),
                            "ranked_with"]) == {BOARD}


def test_runs_of_other_settings_are_not_counted_among_those_of_a_study(runs: Path) -> None:
    (of_study,) = study(runs / "pack", {"margin": 2, "s2sd": 3})
    told = shown(of_study, results(runs).runs)
    assert told
    assert (told["done"], told["runs"]) == (8 + 2, 16), "of s2sd those of three epochs alone, on two splits"


def test_a_study_that_was_run_here_has_its_board(tiny: Workspace, tmp_path: Path) -> None:
    """With a file of one's own, a part of it by each command; runs with settings of their own are not the study's."""
    file, usual = tmp_path / "own.toml", ", ".join(f"{key} = {json.dumps(value)}" for key, value in SMALL.items()
                                                   if key != "epochs")
    file.write_text('summary = "Two lengths."\ndatasets = ["glyphs-mini"]\nprotocol = "demo"\nseeds = 1\n' + "".join(
        f'[[part]]\nmethods = "{method}"\nset = {{ epochs = {epochs}, {usual} }}\n'
        for method, epochs in (("margin", 2), ("arcface", 1))))
    for words in (["--methods", "margin"], ["--methods", "arcface"], ["--methods", "margin", "--set", "epochs=3"]):
        done = CliRunner().invoke(run.command, ["--study", str(file), *words, "--work", str(tiny.root)])
        assert done.exit_code == 0, done.output
    (of_study,) = read([tiny.root])
    assert of_study.rows[["method", "runs"]].to_numpy().tolist() == [["margin", 3], ["arcface", 3]]
    odd = of_study.rows.iloc[:1].assign(method="odd", splits="")  # a damaged file: it stops no run, and is written anew
    path = write(tiny.root, replace(of_study, rows=pd.concat([of_study.rows, odd], ignore_index=True)))
    with pytest.raises(ReportError, match="'splits' of a row"):
        read([tiny.root])
    done = CliRunner().invoke(run.command, ["--study", str(file), "--work", str(tiny.root)])
    assert done.exit_code == 0, done.output
    (of_study,) = read([tiny.root])
    assert of_study.rows[["method", "runs"]].to_numpy().tolist() == [["margin", 3], ["arcface", 3]]
    assert of_study.command == f"oodml run --study {file}"
    told = CliRunner().invoke(report.command, ["--work", str(tiny.root)])
    assert told.exit_code == 0, told.output
    assert "protocol demo[study=own]" in told.output
    assert "is not finished" not in told.output
    board = results(tiny.runs, [of_study]).ags("recall@1", "demo[study=own]").rows
    assert board.loc[board["rank"].notna(), "method"].value_counts().to_dict() == {"margin": 1, "arcface": 1}
    file.write_text(file.read_text().replace("epochs = 2", "epochs = 3"))  # those were run above
    done = CliRunner().invoke(run.command, ["--study", str(file), "--methods", "margin", "--work", str(tiny.root)])
    assert done.exit_code == 0, done.output
    (of_study,) = read([tiny.root])
    assert of_study.rows["method"].tolist() == ["arcface", "margin"], "margin as the edited study has it"
    assert '"epochs": 3' in path.read_text()
    assert results(tiny.runs, [of_study]).ags("recall@1", "demo[study=own]").rows["rank"].notna().sum() == 2


def test_further_seeds_on_some_splits_are_asked_for_once_however_often_the_command_is_given(
        tiny: Workspace, tmp_path: Path) -> None:
    file, usual = tmp_path / "own.toml", ", ".join(f"{key} = {json.dumps(value)}" for key, value in SMALL.items())
    file.write_text('summary = "One method."\ndatasets = ["glyphs-mini"]\nmethods = "margin"\nprotocol = "demo"\n'
                    f"seeds = 1\nset = {{ {usual} }}\n")
    more = ["--seeds", "3", "--splits", "1"]
    for words, told in (([], 3), (more, 5), (more, 5), ([], 5)):
        done = CliRunner().invoke(run.command, ["--study", str(file), *words, "--work", str(tiny.root)])
        assert done.exit_code == 0, done.output
        (of_study,) = read([tiny.root])
        asked = of_study.held_against(results(tiny.runs, []).runs)[["done", "runs"]].to_numpy().tolist()
        assert asked == [[told, told]]
    assert of_study.rows["seeds"].tolist() == ["3 1 1"]
    assert write(tmp_path, of_study).read_bytes() == (tiny.root / "studies" / "own.json").read_bytes()


def test_a_frozen_network_that_an_earlier_version_gave_several_seeds_has_one_now(
        tiny: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "run", lambda study, options: SweepResult(jobs=gather(study, options).jobs))
    file = tmp_path / "own.toml"
    file.write_text('datasets = ["glyphs-mini"]\nprotocol = "demo"\nbackbones = "efficientnet_lite0"\nseeds = 3\n'
                    'methods = "margin,frozen"\n')
    command = ["--study", str(file), "--work", str(tiny.root)]
    for words in ([], ["--methods", "frozen"], []):
        done = CliRunner().invoke(run.command, [*command, *words])
        assert done.exit_code == 0, done.output
        (of_study,) = read([tiny.root])
        runs = of_study.rows.set_index("method")["runs"]
        assert runs.to_dict() == {"margin": 9, "frozen": 3}
        write(tiny.root, replace(of_study, rows=of_study.rows.assign(runs=9)))


def test_runs_that_a_study_does_not_ask_for_are_not_counted_as_its(tiny: Workspace, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of methods in the place of its own, or that were taken out of its file since.

    A method in the place of others is in every part with another length, which would leave the study without a board.
    On another backbone it is the study all the same.
    """
    monkeypatch.setattr(sweep, "run", lambda study, options: SweepResult(jobs=gather(study, options).jobs))
    file = tmp_path / "own.toml"

    def asked(parts: dict[str, int], *words: str) -> dict[str, int]:
        file.write_text('datasets = ["glyphs-mini"]\nprotocol = "demo"\nbackbones = "conv4"\nseeds = 1\n' + "".join(
            f'[[part]]\nmethods = "{method}"\nset = {{ epochs = {epochs} }}\n' for method, epochs in parts.items()))
        done = CliRunner().invoke(run.command, ["--study", str(file), *words, "--work", str(tiny.root)])
        assert done.exit_code == 0, done.output
        rows = read([tiny.root])[0].rows
        assert set(rows["dataset"]) == {"glyphs-mini"}
        assert set(rows["backbone"]) <= {"conv4", "resnet18"}
        here = rows[rows["backbone"] == "conv4"]
        others.append(int(rows.loc[rows["backbone"] == "resnet18", "runs"].sum()))
        return dict(zip(here["method"], here["runs"], strict=True))

    others: list[int] = []

    both = {"margin": 2, "arcface": 1}
    assert asked(both) == {"margin": 3, "arcface": 3}
    for words in (["--methods", "supcon"], ["--methods", "margin,supcon"], ["--backbones", "resnet18"]):
        assert asked(both, *words) == {"margin": 3, "arcface": 3}, words
    assert others == [0, 0, 0, 6]
    assert asked(both, "--methods", "margin", "--seeds", "2") == {"margin": 6, "arcface": 3}
    assert asked({"margin": 2, "supcon": 1}, "--methods", "supcon") == {"margin": 6, "arcface": 3, "supcon": 3}
    assert asked({"margin": 2, "supcon": 1}) == {"margin": 6, "supcon": 3}, "arcface is no more in the whole study"
    ladder = ladders.load(tiny, "glyphs-mini")
    ladders.save(replace(ladder, splits=ladder.splits[:2]), tiny)
    assert asked({"margin": 2, "supcon": 1}) == {"margin": 4, "supcon": 2}, "nor is a split in its ladder"
    assert others[-1] == 6, "the study on another backbone was not asked for anew"


def test_a_study_whose_name_no_file_may_have_is_told_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="name the file with letters"):
        study_progress.keep(Study("a|b", ()), [], "a|b.toml", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"given": [1]}, {"given": None}, {"given": "x"}, {"splits": ["a"]}, {"splits": ""},
                                   {"seeds": "1"}, {"seeds": "x y"}, {"seeds": 3}, 3])
def test_a_row_that_no_study_writes_is_told(wrong: Any, runs: Path) -> None:
    (of_study,) = study(runs / "pack", {"margin": 2, "s2sd": 3})
    path = write(runs / "pack", of_study)
    content = json.loads(path.read_text())
    content["rows"][0] = content["rows"][0] | wrong if isinstance(wrong, dict) else wrong
    path.write_text(json.dumps(content))
    damaged: list[ReportError] = []
    assert read([runs / "pack"], damaged) == []
    assert "mine.json is damaged (" in str(damaged)


@pytest.mark.parametrize("name", ["../../evil", "", "a\nfailed: b", "x" * 5000, "\x1b[31m"])
def test_a_name_that_no_file_may_have_is_told(name: str, runs: Path) -> None:
    (of_study,) = study(runs / "pack", {"margin": 2, "s2sd": 3})
    path = write(runs / "pack", of_study)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"study": name}))
    damaged: list[ReportError] = []
    assert read([runs / "pack"], damaged) == []
    assert len(damaged) == 1


def test_a_method_on_other_splits_than_the_default_one_is_named_where_no_board_has_it(tmp_path: Path) -> None:
    ladder = LADDERS["glyphs"]
    for split, _ in ladder:
        records.write(tmp_path / f"margin-{split}", make_record("glyphs", split, "margin", 0, 0.8))
    short = {"name": "demo", "epochs": 1}
    for split in (3, len(ladder)):  # the first is the default one
        made = make_record("glyphs", split, "mine", 0, 0.3, protocol=short)
        made["provenance"]["overrides"] = {"epochs": [2, 1]}
        records.write(tmp_path / f"mine-{split}", made)
    lost = pd.DataFrame(columns=list(records.FAILURE_FACTS))
    told = terminal.summary(Results(records.collect(tmp_path), with_published=False), lost)
    assert "On no board here, but on the page of glyphs: mine, trained neither" in told
    with pytest.raises(ReportError, match="`oodml run --dataset union:NAME,NAME` makes it"):
        tidy_table(Results(records.collect(tmp_path), with_published=False), "uml")
    for split, _ in ladder:
        records.write(tmp_path / f"mine-{split}", make_record("glyphs", split, "mine", 0, 0.3))
    assert "On no board" not in terminal.summary(Results(records.collect(tmp_path), with_published=False), lost)


def test_a_row_of_other_weights_is_told_by_the_first_digits_of_their_hash(tmp_path: Path) -> None:
    for seed, weights in enumerate(("a" * 64, "b" * 64, "b" * 64)):
        records.write(tmp_path / str(seed), make_record("glyphs", 1, "margin", seed, 0.5, backbone={
            "name": "conv4", "weights": weights}))
    assert set(Results(records.collect(tmp_path)).runs["backbone"]) == {"conv4[weights=aaaaaaaa]", "conv4"}


def test_lengths_on_a_part_of_a_ladder_have_a_board_on_the_page_of_the_dataset(runs: Path) -> None:
    """Where rows also stand that a shorter study trained on the whole ladder."""
    part = {"s2sd": 4, "margin": 2, "diva": 9}
    for split in (1, 8):
        put(runs, "diva", split, 9, 0.9 - split / 50)
    whole, = study(runs / "pack", part)
    ends = whole.rows.assign(runs=2, splits=" ".join(f"{split:x}" * DIGITS for split in (1, 8)))
    one = results(runs, [replace(whole, rows=ends)])
    (found, own), = own_lengths.of_part(one, "cars")
    assert found.name == "mine"
    table = heat_table(own, "cars", "recall@1", "trained")
    ranked = table.frame[table.frame["rank"].notna()].set_index("method")
    assert ranked["rank"].to_dict() == {"diva": 1, "s2sd": 2, "margin": 3}
    assert ranked["rung:8"].round(3).to_dict() == {"diva": 0.74, "s2sd": 0.64, "margin": 0.54}
    assert [column.key for column in table.columns if column.key.startswith("rung") and ":gain" not in column.key] == [
        "rung:1", "rung:8"]
    page = str(some_pages(one, lambda site: dataset_pages.ladder(site, "cars", Extras(None)))["dataset/cars.html"])
    assert page.count("Study mine gives each its own") == len(one.metrics)
    protocol, = (column for column in table.columns if column.key == "protocol")
    assert not protocol.spare, "it tells the lengths"
    for other in (ends.assign(given="{}"), ends.iloc[:1], ends.assign(runs=1, splits="1" * DIGITS),
                  pd.concat([ends, ends.assign(given='{"epochs": 1}')[ends["method"] == "diva"]])):
        assert not [*own_lengths.of_part(results(runs, [replace(whole, rows=other)]), "cars")]
    assert not [*own_lengths.of_part(results(runs, study(runs / "pack", LENGTHS)), "cars")], "it has a board by AGS"
