"""`oodml.run`, and the command in a script of one's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmark import datasets
from benchmark.data import ladders
from benchmark.posthoc import finished
from benchmark.runs import evaluation, locks, single
from benchmark.runs.matrix import gather
from benchmark.runs.scoring import score
from benchmark.training import optimising
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import MethodError
from tests import layouts, tiny_sweep

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


def test_what_the_command_line_takes_is_told_as_python_takes_it(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=r"setting 'margin.beta' \(write beta=0.6, without the method\)"):
        single.run("margin", "glyphs-mini", 1, work=tmp_path / "work", **{"margin.beta": 0.6})
    with pytest.raises(UserError, match=r"'cub' is not in .*--data DIR \(in Python data=DIR\)"):
        single.run("margin", "cub", work=tmp_path / "work")


def test_a_setting_of_the_objective_that_a_method_builds_on_goes_to_it(tiny: Workspace) -> None:
    record = single.run("s2sd:margin", "glyphs-mini", 1, work=tiny.root, protocol="demo", device="cpu",
                        **{**SETTINGS, "beta": 0.6})
    assert record["method"]["settings"]["beta"] == 0.6


def own_images(folder: Path, salt: str = "") -> str:
    for name in "abcd":
        for i in range(2):
            layouts.picture(folder / name / f"{i}.png", f"{salt}{name}{i}")
    return f"folder:{folder}"


def test_a_run_that_resizes_to_more_than_256_sees_larger_images_and_so_do_the_steps_after_it(tmp_path: Path) -> None:
    for number in range(8):
        layouts.picture(tmp_path / "large" / "abcd"[number % 4] / f"{number}.png", number, size=(330, 300))
    made = Workspace.at(tmp_path / "work")
    settings = {**SETTINGS, "size": 256, "resize": 288}
    record = single.run("margin", f"folder:{tmp_path / 'large'}", work=made.root, protocol="demo", device="cpu",
                        **settings)
    (store,) = (json.loads(path.read_text()) for path in made.cache.glob("images-*/store.json"))
    assert (store["shorter_side"], store["nbytes"]) == (288, 8 * 288 * 316 * 3)
    (run,) = finished.find(made, "large")
    index = datasets.load(f"folder:{tmp_path / 'large'}", made.data)
    side = run.task(index, ladders.load(made, "large", index)).test
    embeddings = run.embed(side, index, made, "cpu")
    assert score(side, embeddings).scores["recall@1"] == record["scores"]["last"]["recall@1"]
    assert len(list(made.cache.glob("images-*/store.json"))) == 1


def test_in_one_process_changed_images_and_a_rebuilt_ladder_are_met_as_they_are(tmp_path: Path) -> None:
    birds, made = own_images(tmp_path / "birds"), Workspace.at(tmp_path / "work")

    def run(**changes: object) -> dict[str, object]:
        return single.run("margin", birds, work=made.root, protocol="demo", device="cpu", **SETTINGS, **changes)

    first = run()
    own_images(tmp_path / "birds", "other")
    second = run()
    assert second["contents"] != first["contents"]
    layouts.picture(tmp_path / "birds" / "e" / "0.png", "new")
    layouts.picture(tmp_path / "birds" / "e" / "1.png", "newer")
    ladders.save(ladders.build(birds, made, default_only=True), made)
    third = run()
    assert third["dataset_hash"] != second["dataset_hash"]
    assert third["split"]["hash"] != second["split"]["hash"]
    ladder = ladders.load(made, birds)
    other = replace(ladder.default, train=ladder.default.train[1:])
    ladders.save(replace(ladder, splits=(other,)), made)
    assert run()["split"]["train_classes"] == third["split"]["train_classes"] - 1
    shutil.rmtree(tmp_path / "birds" / "e")
    ladders.save(ladders.build(birds, made, default_only=True), made)
    own_images(tmp_path / "birds")
    assert run(redo=True)["scores"] == first["scores"], "as they were at first"


def test_what_is_to_know_of_a_ladder_is_a_warning_and_what_cannot_run_an_error(tmp_path: Path) -> None:
    birds, made = own_images(tmp_path / "birds"), Workspace.at(tmp_path / "work")
    ladder = ladders.build(birds, made, default_only=True)
    ladders.save(replace(ladder, features={"contents": "0" * 64}), made)
    with pytest.warns(UserWarning, match="of other images than its files contain now"):
        assert single.run("margin", birds, work=made.root, protocol="demo", device="cpu", **SETTINGS)["scores"]
    with pytest.raises(UserError, match="left out on birds: vpt: "):
        single.run("vpt", birds, work=made.root, protocol="demo", device="cpu", **SETTINGS)


def test_one_seed_is_planned_and_not_those_before_it(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    monkeypatch.setattr(single, "gather", lambda *given, **named: planned.append(gather(*given, **named)) or planned[0])
    record = single.run("margin", "glyphs-mini", 1, work=tiny.root, protocol="demo", device="cpu", seed=20_000,
                        **SETTINGS)
    assert record["seed"] == 20_000
    assert len(planned[0].jobs) == 1
    with pytest.raises(UserError, match="seed=-1: give a number from 0 on"):
        single.run("margin", "glyphs-mini", 1, work=tiny.root, seed=-1)


@pytest.mark.parametrize("split", ["1-2", "all", "1,3", "fixed-test", "", -1, 1.5])
def test_several_splits_are_refused_before_anything_is_looked_for(tmp_path: Path, split: Any) -> None:
    with pytest.raises(UserError, match=rf"oodml.run: split={split!r}: it does one run, so give one rung, such as "
                                        "split=1, or split='default'"):
        single.run("margin", "glyphs-mini", split, work=tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("how", ["removed", "taken over"])
@pytest.mark.parametrize("when", ["in the first step", "after the last epoch"])
def test_a_run_that_is_lost_ends_the_call_and_not_the_process(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                              how: str, when: str) -> None:
    monkeypatch.setattr(locks, "BEAT", 0.01)
    place, name = (optimising, "clip") if when == "in the first step" else (evaluation.Evaluation, "structure")
    do = getattr(place, name)

    def lose(*given: Any) -> Any:
        result = do(*given)
        (lock,) = tiny.runs.glob("glyphs-mini/1/margin/s0-*/lock.1")
        if how == "removed":
            shutil.rmtree(lock.parent)
        else:
            assert locks.Lock.take(lock.parent, 1) is not None
        (heartbeat,) = (thread for thread in threading.enumerate() if isinstance(thread, locks.Heartbeat))
        heartbeat.join(10)  # it has seen it
        return result

    monkeypatch.setattr(place, name, lose)
    with pytest.raises(UserError, match="has no result: the run was taken over by another process, or its folder was "
                                        "removed; see "):
        single.run("margin", "glyphs-mini", 1, work=tiny.root, protocol="demo", device="cpu", **SETTINGS)
    left = {path.name.partition("-")[0] for path in tiny.runs.glob("glyphs-mini/1/margin/s0-*/*")}
    written = {"log.jsonl", "spec.json", "env.json", "lock.1", "lock.2"}
    if when == "after the last epoch":
        written |= {"checkpoint", "weights.safetensors"}
    assert left == (set() if how == "removed" else written)


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
