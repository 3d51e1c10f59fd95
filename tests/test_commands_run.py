"""`oodml run`, `plan` and `status`: what their options mean and what they print."""

from __future__ import annotations

import re

import pytest

from benchmark import cli
from benchmark.runs import sweep
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep


def test_missing_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words, missing in ((["run", "--dataset", "glyphs"], "--methods"),
                           (["plan", "--methods", "margin"], "--dataset"),
                           (["run", "--study", "oodml-cup"], "oodml-cub"),
                           (["run", "--dataset", "glyphs", "--methods", "margin", "--executor", "rai"], "ray"),
                           (["plan", "--dataset", "glyphs", "--methods", "margin", "--slurm", "partition"],
                            "--slurm partition: write KEY=VALUE")):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == 2
        assert missing in capsys.readouterr().err


@pytest.mark.parametrize(("words", "names"), [
    (["--dataset", "glyphs-mini", "--dataset", "cub,cars"], ("glyphs-mini", "cub", "cars")),
    (["--dataset", "union:cub,cars", "--dataset", "cub", "--dataset", "cub"], ("union:cub,cars", "cub")),
])
def test_datasets_may_be_repeated_and_listed(words: list[str], names: tuple[str, ...],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    studies = []
    monkeypatch.setattr(sweep, "run", lambda study, *_, **__: studies.append(study) or sweep.SweepResult())
    cli.main(["run", *words, "--methods", "margin"])
    assert studies[0].parts[0].datasets == names


def test_plan_and_status_say_what_there_is(tiny: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--work", str(tiny.root)]
    cli.main(["status", "--work", str(tiny.root)])
    assert "no sweep" in capsys.readouterr().out
    cli.main(["plan", *words, "--seeds", "2"])
    out = capsys.readouterr().out
    assert "--calibrate" in out
    assert re.search(r"protocol \w+, backbone conv4 \(random weights\): 2 runs of 4 steps", out)
    assert not tiny.runs.exists()
    cli.main(["plan", *words, "--seeds", "2", "--calibrate"])
    assert "CPU-hours" in capsys.readouterr().out
    assert not tiny.runs.exists()
    cli.main(["run", *words, "--seeds", "1"])
    capsys.readouterr()
    cli.main(["run", *words, "--seeds", "2", "--dry-run", "--budget", "1h"])
    out = capsys.readouterr().out
    assert re.search(r"all\s+1\s+0\s+0\s+1", out)
    assert "enough for about the first 1 of 1 run" in out
    cli.main(["plan", *words, "--seeds", "2", "--budget", "1h", "--executor", "slurm", "--retry-failed"])
    assert capsys.readouterr().out == out, "plan takes what run takes"
    cli.main(["run", *words, "--seeds", "1", "--set", "dim=8"])
    capsys.readouterr()
    cli.main(["status", "--work", str(tiny.root)])
    out = capsys.readouterr().out
    assert "dim 16 -> 8 (1 earlier run is kept)" in out
