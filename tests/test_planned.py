"""Plans that are kept: which counts, what was changed since, and writers at the same moment."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmark.commands.status import command as status_command
from benchmark.runs import planned
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return tiny_sweep.workspace(tmp_path_factory.mktemp("work"))


def test_the_newest_plan_counts_for_a_place(made: Workspace) -> None:
    first = tiny_sweep.jobs(made, seeds=1)
    planned.save_plan(made, first, "first")
    second = tiny_sweep.jobs(made, "margin", seeds=1, set={"lr": 0.5})
    planned.save_plan(made, second, "second")
    runs, _ = planned.survey(made)
    assert {(run.spec.method, run.command) for run in runs} == {("margin", "second"), ("arcface", "first")}
    planned.save_plan(made, first, "third")
    assert {run.command for run in planned.survey(made)[0]} == {"third"}


def test_the_states_of_some_datasets_or_of_one_study(made: Workspace, tmp_path: Path) -> None:
    """Runs that a later command planned too are still those of the study."""
    here, of_study = Workspace.at(tmp_path), tiny_sweep.jobs(made, "margin", seeds=1)
    planned.save_plan(here, of_study, "oodml run --study=no-matter", "mine")
    planned.save_plan(here, tiny_sweep.jobs(made, seeds=2), "oodml run --dataset glyphs-mini --methods margin,arcface")
    for words in ({"study": "mine"}, {"study": "elsewhere/mine.toml", "datasets": ["glyphs-mini"]}):
        runs, _ = planned.survey(here, **words)
        assert {run.spec.identity for run in runs} == {job.spec.identity for job in of_study}
    assert len(planned.survey(here, ["glyphs-mini"])[0]) == 4 * len(of_study)
    newer = tiny_sweep.jobs(made, "margin", seeds=1, set={"epochs": 3})
    planned.save_plan(here, newer, "oodml run --dataset glyphs-mini --methods margin --set epochs=3")
    for words, told in ((["--study", "mine"], "newer sweeps took their place"), ([], "margin")):
        assert told in CliRunner().invoke(status_command, [*words, "--work", str(tmp_path)]).output
    for words, said in (({"study": "mien"}, r"--study mien: .*did you mean 'mine'\?.*runs of: mine$"),
                        ({"datasets": ["cub"]}, "--dataset cub: .*runs of: glyphs-mini$")):
        with pytest.raises(UserError, match=said):
            planned.survey(here, **words)


def test_a_plan_without_the_name_of_its_study_is_of_none(tmp_path: Path, made: Workspace) -> None:
    """As earlier versions wrote it."""
    here = Workspace.at(tmp_path)
    path = planned.save_plan(here, tiny_sweep.jobs(made, "margin", seeds=1), "oodml run --study mine", "mine")
    content = json.loads(path.read_text())
    assert content.pop("study") == "mine"
    path.write_text(json.dumps(content))
    (plan,) = planned.plans(here)
    assert (plan.study, len(plan.jobs)) == ("", 1)
    assert len(planned.survey(here)[0]) == 1


def test_a_plan_of_another_version_is_refused_and_a_cut_one_is_named(tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path)
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "000001-aa.json").write_text('{"schema": 1, "command": "x", "cel')
    runs, (line,) = planned.survey(workspace)
    assert not runs
    assert "000001-aa.json cannot be read" in line
    (tmp_path / "plans" / "000002-bb.json").write_text('{"schema": 99, "command": "x", "cells": []}')
    with pytest.raises(UserError, match="another version"):
        planned.survey(workspace)


def test_two_runners_may_write_the_same_plan_at_the_same_moment(made: Workspace) -> None:
    jobs, errors = tiny_sweep.jobs(made, seeds=1), []
    gate = threading.Barrier(4)

    def save() -> None:
        gate.wait()
        try:
            for _ in range(20):
                planned.save_plan(made, jobs, "oodml run")
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=save) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not errors
    assert {run.command for run in planned.survey(made)[0]} == {"oodml run"}


def test_a_plan_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, made: Workspace,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the command is killed: the sweep is not forgotten. Once it is written, it is the only one."""
    here, jobs = Workspace.at(tmp_path), tiny_sweep.jobs(made, "margin", seeds=1)
    planned.save_plan(here, jobs, "first")
    planned.save_plan(here, tiny_sweep.jobs(made, "arcface", seeds=1), "other")

    def full(*given: Any) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(planned, "write_json", full)
        with pytest.raises(OSError, match="no room"):
            planned.save_plan(here, jobs, "second")
    assert {run.command for run in planned.survey(here)[0]} == {"first", "other"}
    planned.save_plan(here, jobs, "third")
    assert [plan.command for plan in planned.plans(here)] == ["third", "other"]
