"""`oodml.run`, and the command in a script of one's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.runs import single
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import MethodError
from tests import tiny_sweep

SETTINGS = {**tiny_sweep.SMALL, "epochs": 1}
ROOT = Path(__file__).parent.parent


def test_a_run_returns_its_record_and_is_not_done_twice(tiny: Workspace) -> None:
    def run(**changes: object) -> dict[str, object]:
        return single.run("margin", "glyphs-mini", 1, work=tiny.root, protocol="demo", device="cpu",
                          **{**SETTINGS, **changes})

    record = run(seed=1, beta=0.6)
    assert (record["method"]["settings"]["beta"], record["seed"], record["split"]["id"]) == (0.6, 1, 1)
    assert 0 <= record["scores"]["last"]["recall@1"] <= 1
    (path,) = tiny.runs.glob("glyphs-mini/1/margin/s1-*/record.json")
    assert json.loads(path.read_text()) == record
    assert run(seed=1, beta=0.6) == record
    assert not list(path.parent.glob("before-*"))
    again = run(seed=1, beta=0.6, redo=True)
    assert again["scores"] == record["scores"]
    assert (path.parent / "before-1.json").is_file()
    with pytest.raises(UserError, match="has no ladder yet"):
        single.run("margin", "glyphs", 2, work=tiny.root)


@pytest.mark.parametrize(("method", "given", "meant"), [
    ("margin", "betta", "beta"), ("margin", "epoch", "epochs"), ("margin", "divice", "device"),
    ("s2sd", "temperatur", "temperature"), ("s2sd", "btea", "beta")])
def test_an_unknown_setting_is_told_with_the_near_one_before_a_ladder_is_asked_for(
        tmp_path: Path, method: str, given: str, meant: str) -> None:
    with pytest.raises(MethodError, match=rf"neither a protocol nor method {method} has a setting '{given}' "
                                          rf"\(did you mean .*'{meant}'.*; `oodml protocols show oodml` and "):
        single.run(method, "glyphs-mini", 1, work=tmp_path / "work", **{given: 1})
    assert not (tmp_path / "work").exists()
    with pytest.raises(UserError, match=r"unknown protocol 'demmo' \(did you mean 'demo'"):
        single.run(method, "glyphs-mini", 1, work=tmp_path / "work", protocol="demmo")


def test_a_setting_of_the_objective_that_a_method_builds_on_goes_to_it(tiny: Workspace) -> None:
    record = single.run("s2sd:margin", "glyphs-mini", 1, work=tiny.root, protocol="demo", device="cpu",
                        **{**SETTINGS, "beta": 0.6})
    assert record["method"]["settings"]["beta"] == 0.6


def test_a_script_without_a_guard_does_not_begin_again_in_its_workers(tiny: Workspace, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    words = ["run", *tiny_sweep.WORDS, "--set", "epochs=1", "--protocol", "demo", "--methods", "margin,arcface",
             "--splits", "1", "--seeds", "1", "--jobs", "2", "--work", str(tiny.root)]
    script.write_text(f"print('begins')\nimport oodml\noodml.main({words!r})\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begins") == 1
    assert done.stdout.count("done    ") == 2
    assert f"Next: `oodml report --work {tiny.root}`" in done.stdout
