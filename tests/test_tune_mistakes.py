"""What a search answers to trials that fail, and to what cannot be searched."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmark import cli, ladders
from benchmark.config import search
from benchmark.runs import tune
from benchmark.runs.job import SweepOptions
from benchmark.runs.trials import TuneOptions
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.analysis import tuning
from tests.tiny_search import WORDS, study, tuned


def test_a_trial_that_diverges_counts_as_the_worst_and_one_that_fails_holds_the_choice_up(
        tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    real = search.draw
    monkeypatch.setattr(search, "draw", lambda space, seed, method, number: (
        {"lr": 1e30} if number == 1 else real(space, seed, method, number)))
    said: list[str] = []
    tune.run(study("margin"), TuneOptions(2, choose_only=True), SweepOptions(tiny), said.append)
    (one,) = tuning.load(tiny.root / "tune" / "tiny.json")
    assert [trial["state"] for trial in one["trials"]] == ["done", "diverged"]
    assert one["choice"] == 0
    assert one["trials"][1]["cause"]
    assert tuning.board([one]).rows[0]["diverged"] == 1
    failure = next((tiny.root / "tune" / "runs").rglob("failure.json"))
    failure.write_text(json.dumps(json.loads(failure.read_text()) | {"kind": "OSError", "cause": "no room"}))
    tune.run(study("margin"), TuneOptions(2), SweepOptions(tiny), said.append)
    (one,) = tuning.load(tiny.root / "tune" / "tiny.json")
    assert one["choice"] is None
    assert "1 of 2 trials are over, and nothing is chosen before all are; 1 failed, the first: no room" in said[-1]
    assert not tiny.runs.exists()


@pytest.mark.parametrize(("words", "text"), [
    (["--methods", "margn"], "did you mean 'margin'"),
    (["--methods", "margin", "--trials", "0"], "--trials 0: at least 1"),
    (["--methods", "frozen"], "no method is left to tune"),
    (["--methods", "supcon", "--set", "lr=0.1"], "--set fixes all"),
    (["--methods", "margin", "--backbones", "conv4,resnet18"], "one backbone"),
    (["--methods", "margin", "--set", "arcface.scale=8"], "--set names arcface"),
])
def test_mistakes_are_said_in_one_line(words: list[str], text: str, tiny: Workspace,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*WORDS, *words, "--work", str(tiny.root)])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert text in said
    assert len(said.splitlines()) == 1


def test_help_lists_no_option_that_is_always_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """What a search would cost is not measured; of runs `oodml plan` and `oodml run --dry-run` do it."""
    for name, listed in (("tune", False), ("plan", True), ("run", True)):
        with pytest.raises(SystemExit) as caught:
            cli.cli.main([name, "--help"])
        assert caught.value.code == 0
        assert ("--calibrate" in capsys.readouterr().out) is listed, name
    with pytest.raises(SystemExit) as caught:
        cli.main([*WORDS, "--methods", "margin", "--calibrate"])
    assert caught.value.code == 2
    assert "No such option" in capsys.readouterr().err


def test_a_split_without_classes_to_hold_out_is_refused(tiny: Workspace) -> None:
    ladder = ladders.load(tiny, "glyphs-mini")
    bare = [dataclasses.replace(split, validation=()) for split in ladder.splits]
    ladders.save(dataclasses.replace(ladder, splits=tuple(bare)), tiny)
    with pytest.raises(UserError, match="0 are held out") as caught:
        tuned(tiny)
    assert len(str(caught.value).splitlines()) == 1
