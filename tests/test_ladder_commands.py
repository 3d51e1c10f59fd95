"""What the commands make of a ladder, and what the manifest says made it."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark import cli, datasets, ladders
from benchmark.utils.workspace import Workspace
from splits import SplitError, manifest
from splits.ladder import against_rule, default_rung
from splits.manifest import Ladder, load
from splits.rungs import rising
from tests.ladder_data import build, data


def test_too_few_rungs_are_refused_before_features_are_computed(tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.ladders.features.frozen_features", lambda *_: pytest.fail("features were computed"))
    with pytest.raises(SplitError, match="take 3, or 2 with --no-reverse"):
        ladders.build("glyphs-mini", Workspace.at(tmp_path), rungs=2)
    assert rising([5.0], 0) == [0]


def test_the_options_by_which_a_ladder_is_not_the_rules() -> None:
    of = data(30)
    assert against_rule(build(of, iid_draws=3)) == {}
    options = {"removal": False, "rungs": 5, "swaps_per_iteration": 3, "iterations": 2, "rerank": True, "seed": 4}
    assert against_rule(build(of, **options)) == options
    assert against_rule(build(of, patience=3, rung_iterations=[0, 1])) == {"patience": 3, "rung_iterations": [0, 1]}
    far = build(of, iid_draws=3).parameters["reverse"]
    assert against_rule(build(of, iid_draws=3, reverse=not far)) == {"reverse": not far}
    assert against_rule(default_rung(of[1], of[2][:4], of[2][4:], classes=of[2])) == {}


@pytest.mark.parametrize("options", [
    ["--rungs", "4", "--swaps", "3", "--iterations", "2", "--no-removal"], ["--rerank", "--no-reverse", "--seed", "3"],
    ["--rung-iterations", "0,1,R2"], ["--default-only"], ["--reverse", "--backbone", "conv4"], []])
def test_the_command_in_a_manifest_makes_the_same_ladder(options: list[str], tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed again, also where an older manifest has its parameters alone."""
    def frozen(name: str, workspace: Workspace, backbone: str | None = None, *_: object) -> tuple[Any, Any, Any]:
        index = datasets.load(name, workspace.data)
        features = np.random.default_rng(0).normal(size=(len(index), 6)) + index.labels[:, None] % 9
        return index, features, {"backbone": backbone or "efficientnet_lite0"}

    monkeypatch.setattr("benchmark.ladders.features.frozen_features", frozen)

    def made(*words: str) -> Ladder:
        work = tmp_path / str(len(list(tmp_path.iterdir())))
        cli.main([*words, "--work", str(work)])
        return ladders.load(Workspace.at(work), "glyphs-mini")

    first = made("splits", "build", "--dataset", "glyphs-mini", *options)
    assert first.made["version"]
    again = made(*shlex.split(first.made["command"])[1:])
    assert (again.hash, again.made) == (first.hash, first.made)
    older = made(*shlex.split(ladders.made_by(dataclasses.replace(first, made={})))[1:])
    assert older.hash == first.hash


def test_the_published_ladder_of_glyphs_and_the_command_in_the_documentation() -> None:
    root = Path(__file__).resolve().parents[1]
    ladder = load(root / "reports" / "data" / "records" / "glyphs" / "splits" / "glyphs.json")
    assert against_rule(ladder) == {"rungs": 5}
    unnamed = dataclasses.replace(ladder, made={})
    commands = [ladders.made_by(ladder), ladders.made_by(unnamed)]
    assert commands == ["oodml splits use glyphs@v2",
                        "oodml splits build --dataset glyphs --rungs 5 --backbone efficientnet_lite0"]
    page = (root / "docs" / "pages" / "results.md").read_text(encoding="utf-8")
    assert all(command in page for command in commands)


def test_a_ladder_measured_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    def frozen(name: str, workspace: Workspace, *_: object, **__: object) -> tuple[Any, Any, Any]:
        index = datasets.load(name, workspace.data)
        features = np.random.default_rng(0).normal(size=(len(index), 6)) + index.labels[:, None] % 9
        return index, features, {"backbone": "x"}

    monkeypatch.setattr("benchmark.ladders.features.frozen_features", frozen)
    where = ["--dataset", "glyphs-mini", "--work", str(tmp_path)]
    cli.main(["splits", "build", "--rungs", "3", *where])
    built = capsys.readouterr().out
    kept, out = tmp_path / "splits" / "glyphs-mini.json", tmp_path / "measured.json"
    named = {"oodml": "1", "pinned": {"name": "glyphs-mini@v1", "hash": "0" * 64}}
    manifest.save(dataclasses.replace(manifest.load(kept), made=named), kept)
    cli.main(["splits", "measure", *where, "--against", str(kept), "--out", str(out)])
    measured = capsys.readouterr().out
    written, ladder = manifest.load(out), manifest.load(kept)
    assert written.features == {"backbone": "x"}
    assert written.made == {"oodml": "1"}, "it is no more the pinned one, whose distances are others"
    assert [(split.train, split.test, split.frd_equal_n) for split in written.splits] == [
        (split.train, split.test, split.frd_equal_n) for split in ladder.splits]
    assert [split.frd for split in written.splits] == pytest.approx([split.frd for split in ladder.splits])
    with pytest.raises(SystemExit):
        cli.main(["splits", "measure", *where, "--out", str(out)])
    assert f"{out} is there already" in capsys.readouterr().err
    rungs = [line.split() for line in measured.splitlines()[1:4]]
    assert [row[:9] for row in rungs] == [line.split()[:9] for line in built.splitlines() if line.strip()[:2] in
                                          ("1 ", "2 ", "3 ")]
    assert "rank correlation of when classes change sides: 1.00" in measured
