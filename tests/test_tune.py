"""`oodml tune`: equal budgets, the same trials after a kill, a choice that no test score can move."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import save_file

from benchmark import cli, ladders
from benchmark.board import leaderboard
from benchmark.config import search
from benchmark.config.spec import RunSpec
from benchmark.data.weights import file_hash
from benchmark.runs import sweep, tune
from benchmark.runs.attempt import score_text
from benchmark.runs.job import Resources, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.runs.trials import TuneOptions
from benchmark.utils.errors import UserError
from benchmark.utils.files import write_json
from benchmark.utils.workspace import Workspace
from methods.backbones import create
from reports import ReportError, records
from reports.analysis import tuning
from tests import tiny_sweep
from tests.test_contents import photos
from tests.tiny_search import SMALL, WORDS, study, tuned


@pytest.fixture(scope="module")
def finished(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with two methods tuned and tested, the default too."""
    made = Workspace.at(shutil.copytree(tiny_base, tmp_path_factory.mktemp("tuned") / "work"))
    tuned(made, compare=True)
    return made.root


@pytest.fixture
def made(finished: Path, tmp_path: Path) -> Workspace:
    return Workspace.at(shutil.copytree(finished, tmp_path / "work", symlinks=True))


def test_each_method_has_as_many_trials_and_the_best_on_validation_is_chosen(made: Workspace) -> None:
    searches = tuning.load(made.root / "tune" / "tiny.json")
    assert [one["method"] for one in searches] == ["margin", "supcon"]
    assert {key for key in searches[0]["space"]} == {"lr", "margin.margin", "margin.beta"}
    assert {key for key in searches[1]["space"]} == {"lr"}
    ladder = ladders.load(made, "glyphs-mini")
    inner = tune.trial_workspace(made)
    for one in searches:
        assert len(one["trials"]) == one["budget"] == 3
        assert one["trials"][0]["set"] == {}
        scores = [trial["score"] for trial in one["trials"]]
        assert one["score"] == max(scores)
        assert one["choice"] == scores.index(max(scores))
        assert one["default_score"] == scores[0]
        assert one["held_out"] == len(ladder.default.validation)
        for trial in one["trials"]:
            (folder,) = inner.runs.glob(f"*/*/*/s0-{trial['run'][:8]}")
            record = records.read(folder)
            assert record["protocol"]["validation"] is True
            lr = trial["set"].get("lr", 0.003)
            assert record["protocol"]["lr"] == pytest.approx(lr)
        (row,) = one["test"]
        assert one["test_gain"] == pytest.approx(row["tuned"] - row["default"])
    assert not list(inner.root.glob("*/glyphs-mini/*/*/*/failure.json"))
    assert all(not records.read(path.parent)["protocol"]["validation"] for path in made.runs.rglob("record.json"))


def test_no_test_score_enters_the_choice(made: Workspace) -> None:
    """Test scores of all trials turned upside down, in records and logs: the choice and its scores stay."""
    before = tuning.load(made.root / "tune" / "tiny.json")
    inner = tune.trial_workspace(made)

    def poisoned(value: Any) -> Any:
        return {key: 1 - each if isinstance(each, float) else each for key, each in value.items()}

    changed = 0
    for path in inner.runs.rglob("record.json"):
        record = records.read(path.parent)
        record["scores"] = {rule: poisoned(scores) for rule, scores in record["scores"].items()}
        record["curve"] = [poisoned(point) for point in record["curve"]]
        records.write(path.parent, record)
        log = path.parent / "log.jsonl"
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        for entry in entries:
            if "test" in entry:
                entry["test"] = poisoned(entry["test"])
                changed += 1
        log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert changed >= 12
    assert tuned(made, compare=True) == before


def test_a_finished_trial_is_told_by_its_validation_score(made: Workspace) -> None:
    """Not by that on test classes, which `oodml run` prints: who watches a search must not choose by it."""
    inner = tune.trial_workspace(made)
    for one in tuning.load(made.root / "tune" / "tiny.json"):
        for trial in one["trials"]:
            (path,) = inner.runs.glob(f"*/*/*/s0-{trial['run'][:8]}/record.json")
            assert score_text(path) == f"validation recall@1 {100 * trial['score']:.1f} %"
    (path.parent / "log.jsonl").unlink()
    assert score_text(path) == "", "nothing rather than the test score"
    for path in made.runs.rglob("record.json"):
        assert score_text(path) == f"recall@1 {100 * records.read(path)['scores']['last']['recall@1']:.1f} %"


def test_the_choice_follows_the_validation_scores(made: Workspace) -> None:
    """The counterpart: with other validation scores another trial is chosen."""
    inner = tune.trial_workspace(made)
    (before, _) = tuning.load(made.root / "tune" / "tiny.json")
    other = (before["choice"] + 1) % 3
    (folder,) = inner.runs.glob(f"*/*/*/s0-{before['trials'][other]['run'][:8]}")
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps({"event": "epoch", "epoch": 2, "validation": {"recall@1": 1.0}}) + "\n{cut")
    (after, _) = tuned(made, choose_only=True)
    assert after["choice"] == other
    assert after["chosen"] == before["trials"][other]["set"]


def test_more_trials_keep_those_there_are(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    real = sweep.run

    def counted(study: Any, options: SweepOptions, echo: Any) -> Any:
        result = real(study, options, echo)
        begun.append(len(result.done))
        return result

    monkeypatch.setattr(sweep, "run", counted)
    before = {trial["run"] for one in tuning.load(made.root / "tune" / "tiny.json") for trial in one["trials"]}
    searches = tuned(made, trials=4, choose_only=True)
    assert begun == [2]
    assert before < {trial["run"] for one in searches for trial in one["trials"]}
    assert [one["budget"] for one in searches] == [4, 4]
    begun.clear()
    monkeypatch.setattr(search, "rounds", lambda trials, sampler: [1, 2, trials])
    tune.run(study("margin"), TuneOptions(3, choose_only=True), SweepOptions(made, redo=True), lambda line: None)
    assert begun == [1, 1, 1], "each trial is done anew once, not once a round"


def test_a_search_that_ends_while_it_is_done_anew_says_what_was_not(made: Workspace) -> None:
    said: list[str] = []
    before = {path: path.read_bytes() for path in made.runs.rglob("record.json")}
    short = SweepOptions(made, redo=True, resources=Resources(1, seconds=1))
    result, _ = tune.run(study("supcon"), TuneOptions(3), short, said.append)
    assert result.ended
    assert "trials are over" in said[-2]
    assert said[-1].startswith("the runs on the test ladder are as they were before --redo")
    assert {path: path.read_bytes() for path in made.runs.rglob("record.json")} == before


def test_a_killed_search_goes_on_with_the_same_trials(finished: Path, tiny: Workspace) -> None:
    words = [*WORDS, "--methods", "margin", "--trials", "3", "--choose-only"]
    process = tiny_sweep.oodml(tiny, *words)
    deadline = time.monotonic() + 120
    while not list((tiny.root / "tune").glob("runs/*/*/*/*/log.jsonl")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tiny.root / "tune" / "glyphs-mini.json").exists()
    cli.main([*words, "--work", str(tiny.root)])
    (whole,) = tuning.load(tiny.root / "tune" / "glyphs-mini.json")
    (straight, _) = tuning.load(finished / "tune" / "tiny.json")
    assert whole["trials"] == straight["trials"]
    assert whole["choice"] == straight["choice"]


def test_runs_of_an_earlier_version_beside_a_search_do_not_hold_it_up(tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """These and further runs of the test do not name what the files contain; the trials, in their own folder, do."""
    made = Workspace.at(tmp_path / "work")
    images = str(photos(tmp_path / "birds", 10, "abcdefghijklmnop"))
    ladders.save(ladders.build(f"folder:{images}", made, default_only=True), made)
    birds = study("supcon", datasets=(f"folder:{images}",), splits="default")
    (job,) = gather(birds, SweepOptions(made)).jobs
    earlier = dataclasses.replace(job.spec, seed=7, contents="")
    earlier.folder(made).mkdir(parents=True)
    write_json(earlier.folder(made) / "spec.json", earlier.facts())
    _, path = tune.run(birds, TuneOptions(2), SweepOptions(made), lambda line: None)
    (one,) = tuning.load(path)
    assert one["choice"] is not None
    (row,) = one["test"]
    (tested,) = (found.parent for found in made.runs.rglob("record.json"))
    assert (spec := RunSpec.read(tested)) is not None
    assert spec.contents == ""
    assert row["tuned"] == records.read(tested)["scores"]["last"]["recall@1"]
    # and where trials are not those that a sweep does, for whatever reason, that is said
    monkeypatch.setattr(tune, "run_contents", lambda index, workspace: "other")
    with pytest.raises(UserError, match=r"2 trials of this search cannot be found among its runs: .*the same command"):
        tune.run(birds, TuneOptions(2), SweepOptions(made), lambda line: None)


def test_weights_of_one_s_own_are_tuned_on_as_they_are_run_on(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    """NETWORK=FILE names the same runs as for `oodml run`, by a path from where the user stands too."""
    monkeypatch.chdir(tiny.root)
    save_file(create("conv4").network.state_dict(), "mine.safetensors")
    own = ["--methods", "supcon", "--backbone", "conv4=mine.safetensors", "--seeds", "1", "--work", str(tiny.root)]
    settings = WORDS[:WORDS.index("--set")] + [word for key, value in SMALL.items() if key != "backbone"
                                               for word in ("--set", f"{key}={value}")]
    cli.main([*settings, *own, "--trials", "1"])
    (one,) = tuning.load(tiny.root / "tune" / "glyphs-mini.json")
    assert (one["backbone"], one["choice"]) == ("conv4:mine", 0)
    (row,) = one["test"]
    (tested,) = (path.parent for path in tiny.runs.rglob("record.json"))
    assert row["tuned"] == records.read(tested)["scores"]["last"]["recall@1"]
    capsys.readouterr()
    cli.main(["run", *settings[1:], *own])
    assert "1 run, 1 done" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main([*settings, *own, "--backbone", "conv4=none.safetensors"])
    assert "--backbones conv4=none.safetensors: there is no file" in capsys.readouterr().err
    # other weights in a file of the same name elsewhere are another search, and the tables tell which is which
    (tiny.root / "other").mkdir()
    save_file(create("conv4").network.state_dict(), "other/mine.safetensors")
    path, elsewhere = tiny.root / "tune" / "glyphs-mini.json", [*own[:3], "conv4=other/mine.safetensors", *own[4:]]
    cli.main([*settings, *elsewhere, "--trials", "1", "--choose-only"])
    both = tuning.load(path)
    assert [file_hash(Path(name)) for name in ("mine.safetensors", "other/mine.safetensors")] == [
        search["weights"] for search in both]
    assert [row["backbone"] for row in tuning.board(both).rows] == [
        f"conv4:mine ({search['weights'][:8]})" for search in both]
    # a file of before does not say which weights: the search that comes takes its place, as it did
    bare = [{name: value for name, value in both[0].items() if name != "weights"}]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"searches": bare}))
    cli.main([*settings, *elsewhere, "--trials", "1", "--choose-only"])
    assert tuning.load(path) == both[1:]


def test_each_rung_may_choose_for_itself(tiny: Workspace) -> None:
    ladder = ladders.load(tiny, "glyphs-mini")
    _, path = tune.run(study("triplet", splits="all"), TuneOptions(2, choose_on="each"),
                       SweepOptions(tiny, resources=Resources(jobs=2)), lambda line: None)
    searches = tuning.load(path)
    assert [one["split"] for one in searches] == [split.id for split in ladder.splits]
    for one in searches:
        assert {row["split"] for row in one["test"]} == {one["split"]}
        assert one["tested_held_out"] == {str(one["split"]): 0}
        assert all(row["tuned"] is not None for row in one["test"])


def test_parzen_estimator_asks_and_is_told(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = {"lr": (1e-5, 1e-1), "m.kind": ["a", "b"], "m.count": (1, 9)}

    def score(configuration: dict[str, Any]) -> float:
        return -abs(math.log10(configuration.get("lr", 1e-5)) + 2) - (configuration.get("m.kind") == "a")

    def searched(sampler: str) -> list[dict[str, Any]]:
        known: list[tuple[dict[str, Any], float | None]] = []
        for count in search.rounds(40, sampler):
            known += [(made, score(made)) for made in [search.propose(space, 0, "m", number, known, sampler)
                                                       for number in range(len(known), count)]]
        return [made for made, _ in known]

    tried, drawn = searched("tpe"), searched("random")
    assert tried == searched("tpe")
    assert tried[:search.STARTUP] == drawn[:search.STARTUP]
    late = [sum(map(score, made[20:])) for made in (tried, drawn)]
    assert late[0] > late[1]
    assert all(1e-5 <= made["lr"] <= 1e-1 for made in tried[1:])


def test_one_choice_for_all_rungs_stands_beside_those_of_each_rung(made: Workspace, tmp_path: Path) -> None:
    """A search of one kind neither replaces those of the other nor prints them, and the tables tell which is which."""
    whole = SweepOptions(made, resources=Resources(jobs=2))
    _, path = tune.run(study("supcon", splits="all"), TuneOptions(2), whole, lambda line: None)
    each = [one for one in tuning.load(path) if one["method"] == "supcon"]
    assert [(one["split"], one["choose_on"]) for one in each] == [(1, "each"), (2, "each"), (3, "each")]
    said: list[str] = []
    tune.run(study("supcon", splits="all"), TuneOptions(1, choose_on="default"), whole, said.append)
    assert [line for line in said if line.startswith(("supcon", "margin"))] == said[-2:]
    ladder = ladders.load(made, "glyphs-mini")
    assert said[-2].startswith(f"supcon on glyphs-mini, split {ladder.default.id} for splits 1, 2, 3: default (trial 0")
    searches = tuning.load(path)
    (one,) = [one for one in searches if one["choose_on"] == "default"]
    assert [one for one in searches if one["method"] == "supcon" and one["choose_on"] == "each"] == each
    table = tuning.board(searches)
    assert "For splits" in [column.head for column in table.columns]
    assert [row["for_splits"] for row in table.rows if row["method"] == "supcon"] == ["1", "2", "3", "1, 2, 3"]
    assert table.rows[-1]["test"] == pytest.approx(np.mean([score["tuned"] for score in one["test"]]))
    at = [split.frd for split in ladder.splits]
    area = np.trapezoid([score["tuned"] for score in one["test"]], at) / (at[-1] - at[0])
    assert said[-1] == (f"supcon on glyphs-mini, one choice for all rungs, 3 rungs: AGS {100 * area:.1f} (default "
                        f"{100 * area:.1f}); gain 0.0"), "trial 0 is the default itself"
    out = leaderboard.collect(made).build().parent
    shown = pd.read_csv(out / "data" / "tuning-ags.csv")
    assert shown["settings"].tolist() == ["one choice for all rungs", "each rung's own"]
    assert shown["tuned_ags"][0] == pytest.approx(area)
    assert "AGS of each method, tuned and by default" in (out / "tuning.html").read_text()
    assert f"where one split chooses for others, up to {max(one['tested_held_out'].values())} of its" in table.note
    assert "For splits" in [column.head for column in tuning.trials(searches).columns]
    for table in (tuning.board(each), tuning.trials(each)):
        assert "For splits" not in [column.head for column in table.columns], "the same as on which it was chosen"
        assert "Rungs swap" not in table.note

    content = json.loads(path.read_text())
    before = [{name: value for name, value in one.items() if name != "choose_on"} for one in content["searches"]]
    path.write_text(json.dumps(content | {"searches": before}))
    assert tuning.load(path) == searches, "files of before do not have the key"


def test_the_report_has_a_page_of_it(made: Workspace) -> None:
    out = leaderboard.collect(made).build().parent
    text = (out / "tuning.html").read_text()
    assert "held out of training" in text
    assert "margin.beta" in text
    assert len((out / "data" / "tuning.csv").read_text().splitlines()) == 3
    assert len((out / "data" / "tuning-trials.csv").read_text().splitlines()) == 7
    for one, row in zip(searches := tuning.read([made.root]), tuning.board(searches).rows):
        assert row["gain"] == pytest.approx(one["score"] - one["default_score"])
        assert row["test_gain"] == pytest.approx(one["test_gain"])
    path = made.root / "tune" / "tiny.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ReportError, match=r"tiny\.json is damaged"):
        tuning.read([made.root])


def test_the_tables_are_exported(made: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Budget, choice and gain as CSV, read back and held against the file of the search; LaTeX has them in percent."""
    searches = tuning.read([made.root])
    cli.main(["export", "--table", "tuning", "--work", str(made.root), "--out", str(tmp_path / "t.csv")])
    frame = pd.read_csv(tmp_path / "t.csv")
    assert frame["method"].tolist() == [one["method"] for one in searches]
    assert frame["budget"].tolist() == [3, 3]
    assert frame["gain"].tolist() == pytest.approx([one["score"] - one["default_score"] for one in searches])
    assert frame["choice"].tolist() == [tuning.settings_text(one["chosen"]) for one in searches]
    scores = [[trial["score"] for trial in one["trials"]] for one in searches]
    assert frame["spread"].tolist() == pytest.approx([np.std(each, ddof=1) for each in scores])
    capsys.readouterr()
    cli.main(["export", "--table", "tuning", "--format", "latex", "--work", str(made.root)])
    said = capsys.readouterr().out
    assert f"{100 * searches[0]['score']:.1f}" in said
    assert r"\toprule" in said
    cli.main(["export", "--table", "trials", "--format", "json", "--work", str(made.root)])
    assert [row["score"] for row in json.loads(capsys.readouterr().out)["rows"]] == pytest.approx(
        [score for each in scores for score in each])
    for words, text in ((["--dataset", "cub"], "nothing was tuned"), (["--datasets", "cub"], "nothing was tuned"),
                        (["--format", "macros"], "has the formats csv,")):
        with pytest.raises(SystemExit):
            cli.main(["export", "--table", "tuning", *words, "--work", str(made.root)])
        assert text in capsys.readouterr().err
