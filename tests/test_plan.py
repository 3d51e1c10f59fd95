"""The identity of a run, the order of cells, and what is left out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmark import cost, ladders, matrix, status
from benchmark.commands.run import hours
from benchmark.cost import Measured, Rates
from benchmark.errors import UserError
from benchmark.matrix import Places, gather
from benchmark.plan import Overrides, RunSpec, differences
from benchmark.workspace import Workspace
from reports import records
from tests import tiny_sweep
from tests.sample_records import make_record


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return tiny_sweep.workspace(tmp_path_factory.mktemp("work"))


def specs(made: Workspace, methods: str = "margin", **given: object) -> list[RunSpec]:
    return [job.spec for job in tiny_sweep.jobs(made, methods, **given)]


def test_identity_is_what_a_run_depends_on(made: Workspace) -> None:
    (one,) = specs(made, seeds=1)
    assert specs(made, seeds=1)[0].identity == one.identity
    others = [specs(made, seeds=2)[1], specs(made, "arcface", seeds=1)[0], specs(made, splits="2", seeds=1)[0],
              specs(made, seeds=1, set={"lr": 0.5})[0], specs(made, seeds=1, set={"margin.beta": 0.5})[0],
              dataclasses.replace(one, weights="other"), dataclasses.replace(one, dataset_hash="other")]
    assert len({one.identity, *(other.identity for other in others)}) == 1 + len(others)


def test_identity_survives_json_and_the_rungs_number(made: Workspace) -> None:
    (one,) = specs(made, seeds=1, set={"scale": "0.5,1.0", "milestones": "1,2"})
    again = RunSpec(**json.loads(json.dumps(dataclasses.asdict(one))))
    assert again.identity == one.identity
    assert dataclasses.replace(one, split=7).identity == one.identity


def test_what_changed_is_named(made: Workspace) -> None:
    (one,) = specs(made, seeds=1)
    (two,) = specs(made, seeds=1, set={"lr": 0.5, "margin.beta": 0.9})
    assert differences(one, two) == ["lr 0.002 -> 0.5", "beta 1.2 -> 0.9"]
    assert differences(one, RunSpec(**json.loads(json.dumps(dataclasses.asdict(one))))) == []


def test_one_seed_of_everything_comes_first(made: Workspace) -> None:
    found = specs(made, "margin,arcface", splits="all", seeds=3)
    rungs = len(ladders.load(made, "glyphs-mini").splits)
    assert len(found) == 2 * rungs * 3
    assert [spec.seed for spec in found] == sorted(spec.seed for spec in found)
    assert {(spec.method, spec.split) for spec in found[:2 * rungs]} == {(m, s + 1) for m in ("margin", "arcface")
                                                                         for s in range(rungs)}


def test_breadth_goes_over_datasets(tmp_path: Path) -> None:
    made = tiny_sweep.workspace(tmp_path, ("glyphs-mini", "glyphs-armenian"))
    study = tiny_sweep.study("margin", datasets=("glyphs-mini", "glyphs-armenian"))
    deep = [(job.spec.dataset, job.spec.seed) for job in gather(study, Places(made)).jobs]
    wide = [(job.spec.dataset, job.spec.seed) for job in gather(study, Places(made), breadth=True).jobs]
    assert deep == [("glyphs-mini", 0), ("glyphs-mini", 1), ("glyphs-armenian", 0), ("glyphs-armenian", 1)]
    assert wide == [("glyphs-mini", 0), ("glyphs-armenian", 0), ("glyphs-mini", 1), ("glyphs-armenian", 1)]


def test_default_split_by_name(made: Workspace) -> None:
    (one,) = specs(made, splits="default", seeds=1)
    assert one.split_hash == ladders.load(made, "glyphs-mini").default.hash


def test_seeds_are_the_protocols_unless_said(made: Workspace) -> None:
    assert len(specs(made, seeds=None)) == 1
    assert len(specs(made, seeds=None, protocol="revisiting")) == 5


def test_methods_that_do_not_fit_the_backbone_are_listed(made: Workspace) -> None:
    found = gather(tiny_sweep.study("margin,vpt", seeds=1), Places(made))
    assert [job.spec.method for job in found.jobs] == ["margin"]
    assert len(found.skipped) == 1
    assert "vpt" in found.skipped[0]


def test_variations_and_backbones_are_cells_of_their_own(made: Workspace) -> None:
    found = specs(made, seeds=1, vary={"dim": (8, 16), "batch_size": (12,)})
    assert [(spec.protocol["dim"], spec.protocol["batch_size"]) for spec in found] == [(16, 24), (8, 24), (16, 12)]
    found = specs(made, seeds=1, backbones="conv4,efficientnet_lite0")
    assert [spec.protocol["backbone"] for spec in found] == ["conv4", "efficientnet_lite0"]


def test_one_weights_file_is_not_for_two_backbones(made: Workspace) -> None:
    with pytest.raises(UserError, match="OODML_WEIGHTS"):
        gather(tiny_sweep.study(backbones="conv4,resnet18"), Places(made, weights_file="some.pth"))


@pytest.mark.parametrize(("text", "match"), [("lr", "KEY=VALUE"), ("epoch=3", "did you mean 'epochs'"),
                                             ("=3", "KEY=VALUE")])
def test_wrong_changes_are_refused(text: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        Overrides.parse([text])


def test_all_missing_datasets_are_named_at_once(made: Workspace) -> None:
    with pytest.raises(UserError) as caught:
        gather(tiny_sweep.study(datasets=("cub", "cars")), Places(made))
    assert len(str(caught.value).splitlines()) >= 2


@pytest.mark.parametrize("text", ["", "12", "h", "3w", "1h 30"])
def test_odd_budgets_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="12h"):
        hours(text)


def test_cost_by_hand(made: Workspace) -> None:
    (one,) = specs(made, seeds=1, set={"epochs": 10, "steps_per_epoch": 0, "evaluate_every": 5})
    kind = ("conv4", 16, one.protocol["precision"], one.protocol["compile"])
    runs = [Measured(kind, "margin", "gpu", speed, 0.01, 5e9, 3e6) for speed in (50.0, 100.0, 400.0)]
    found = Rates(runs, "gpu").estimate(one, 240, 100)
    assert found.seconds == pytest.approx(10 * 10 * 24 / 100 + 0.01 * (2 * 100 + 240))
    assert (found.memory, found.disk) == (5e9, 3e6)
    slower = [Measured(kind, "triplet", "gpu", 10.0, 0.0, 0, 0)]
    assert Rates(slower, "gpu").estimate(one, 240, 100).seconds == pytest.approx(240.0)
    assert Rates(runs, "another").device == "gpu"
    assert Rates([dataclasses.replace(runs[0], kind=("resnet50", 224, "auto", "auto"))], "gpu").estimate(
        one, 240, 100).seconds is None
    assert "unknown" in cost.summary([found.__class__()], Rates([], "gpu"), 1)[0]


def test_a_calibration_is_measured_by_its_last_epoch(tmp_path: Path) -> None:
    record = make_record("glyphs")
    record["protocol"] |= {"backbone": "conv4", "size": 16, "epochs": 2, "evaluate_every": 2}
    folder = records.write(tmp_path / "run", record).parent
    lines = [{"event": "start", "epoch": 0}, {"event": "epoch", "epoch": 1, "images_per_second": 10.0},
             {"event": "epoch", "epoch": 2, "images_per_second": 500.0}, {"event": "end"}]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (slow,), (fast,) = cost.measured(tmp_path), cost.measured(tmp_path / "none", tmp_path)
    assert (slow.speed, fast.speed) == (record["cost"]["images_per_second"], 500.0)


def test_the_newest_plan_counts_for_a_place(made: Workspace) -> None:
    first = tiny_sweep.jobs(made, seeds=1)
    status.save_plan(made, first, "first")
    second = tiny_sweep.jobs(made, "margin", seeds=1, set={"lr": 0.5})
    status.save_plan(made, second, "second")
    cells, _ = status.survey(made)
    assert {(cell.spec.method, cell.command) for cell in cells} == {("margin", "second"), ("arcface", "first")}
    status.save_plan(made, first, "third")
    assert {cell.command for cell in status.survey(made)[0]} == {"third"}


def test_a_plan_of_another_version_is_refused_and_a_cut_one_passed_over(tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "000001-aa.json").write_text('{"schema": 1, "command": "x", "cel')
    assert status.survey(workspace) == ([], [])
    (tmp_path / "plans" / "000002-bb.json").write_text('{"schema": 99, "command": "x", "cells": []}')
    with pytest.raises(UserError, match="another version"):
        status.survey(workspace)


def test_texts_of_toml_values() -> None:
    assert [matrix._text(value) for value in (True, 1e-4, [1, 2], "x")] == ["true", "0.0001", "1,2", "x"]
