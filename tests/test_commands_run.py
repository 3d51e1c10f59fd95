"""`oodml run`, `plan` and `status`: what their options mean and what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from safetensors.torch import save_file

from benchmark import cli
from benchmark.data import weights
from benchmark.runs import planned, status, sweep
from benchmark.utils.workspace import Workspace
from methods.backbones import create
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
    cli.main(["status", "--dataset", "glyphs-mini", "--work", str(tiny.root)])
    assert capsys.readouterr().out == out
    with pytest.raises(SystemExit):
        cli.main(["status", "--study", "demo", "--work", str(tiny.root)])
    assert "--study demo: no sweep in" in capsys.readouterr().err


@pytest.mark.parametrize("every", ["-5", "0"])
def test_looks_without_a_pause_are_refused(every: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["status", "--watch", "--every", every, "--work", str(tmp_path)])
    assert caught.value.code == 2
    assert "'--every'" in capsys.readouterr().err


def test_a_plan_names_the_steps_that_follow_and_are_not_in_its_estimate(tiny: Workspace, tmp_path: Path,
                                                                       capsys: pytest.CaptureFixture[str]) -> None:
    changes = ", ".join(f'{key} = {value if key != "backbone" else chr(34) + str(value) + chr(34)}'
                        for key, value in tiny_sweep.SMALL.items())
    study = tmp_path / "mine.toml"
    study.write_text(f'datasets = ["glyphs-mini"]\nmethods = "margin"\nsplits = "1"\nseeds = 1\nset = {{ {changes} }}\n'
                     '[[after]]\nstep = "fewshot"\ndatasets = ["glyphs-mini"]\nshots = [2, 5]\n'
                     '[[after]]\nstep = "cross"')
    for words in (["plan"], ["run", "--dry-run"]):
        cli.main([*words, "--study", str(study), "--work", str(tiny.root)])
        assert ('after the runs: fewshot (datasets = ["glyphs-mini"], shots = [2, 5]), cross; not in this estimate'
                in capsys.readouterr().out)


def test_states_are_asked_for_by_the_study_however_it_was_named(tiny: Workspace, tmp_path: Path,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    """And whatever stands in the command besides: `oodml.main` takes another than that of the process."""
    study = tmp_path / "my studies" / "mine.toml"
    study.parent.mkdir()
    study.write_text('datasets = ["glyphs-mini"]\nmethods = "margin"\nsplits = "1"\nseeds = 1\nprotocol = "demo"')
    small = [word for word in tiny_sweep.WORDS if word not in ("--dataset", "glyphs-mini")]
    cli.main(["run", f"--study={study}", *small, "--work", str(tiny.root)])
    capsys.readouterr()
    for name in ("mine", str(study)):
        cli.main(["status", "--study", name, "--work", str(tiny.root)])
        assert re.search(r"all\s+1\s+0\s+0\s+0", capsys.readouterr().out)


@pytest.mark.parametrize("found", [False, True], ids=["given", "in OODML_WEIGHTS"])
def test_weights_of_another_network_are_refused_once_before_the_sweep(
        found: bool, tiny: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / ("conv4.safetensors" if found else "other.safetensors")
    save_file(create("resnet18").network.state_dict(), file)
    words = [*tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--seeds", "2", "--work", str(tiny.root)]
    if found:
        monkeypatch.setenv("OODML_WEIGHTS", str(tmp_path))
    else:
        words += ["--weights", str(file)]
    for command in (["plan"], ["run", "--dry-run"], ["run"]):
        with pytest.raises(SystemExit) as caught:
            cli.main([*command, *words])
        assert caught.value.code == 2
        assert capsys.readouterr().err.count(f"{file.name} does not fit conv4") == 1
    assert not list(tiny.root.rglob("failure.json"))
    cli.main(["status", "--work", str(tiny.root)])
    assert "no sweep was started" in capsys.readouterr().out


def test_weights_that_a_finished_run_has_are_not_loaded_for_a_plan(
        tiny: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes seconds; without such a run they are loaded, to see whether they fit."""
    save_file(create("conv4").network.state_dict(), tmp_path / "own.safetensors")
    words = [*tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--work", str(tiny.root), "--weights",
             str(tmp_path / "own.safetensors")]
    loaded: list[str] = []
    for seeds, told in (("1", ["conv4"]), ("2", [])):
        with monkeypatch.context() as patched:
            patched.setattr(weights, "pretrained", lambda name, file=None: loaded.append(name))
            cli.main(["plan", *words, "--seeds", seeds])
        assert loaded == told
        loaded.clear()
        cli.main(["run", *words, "--seeds", "1"])


def test_states_are_told_by_backbone_where_there_are_several(tiny: Workspace) -> None:
    def table(backbones: str) -> list[str]:
        jobs = tiny_sweep.jobs(tiny, "margin", seeds=1, backbones=backbones)
        return planned.table(planned.PlannedRun(job.spec, job.folder, status.look(job.folder), "")
                            for job in jobs).splitlines()

    assert [line.split()[:3] for line in table("conv4,conv4@gem")] == [
        ["dataset", "method", "backbone"], ["glyphs-mini", "margin", "conv4"], ["glyphs-mini", "margin", "conv4@gem"],
        ["all", "0", "0"]]
    assert "backbone" not in table("conv4")[0]
