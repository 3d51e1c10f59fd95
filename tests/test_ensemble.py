"""Dataset-specific models of a union as one: two real runs, one score."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark import cli, datasets, ladders
from benchmark.config.spec import RunSpec
from benchmark.data.loader import Loader
from benchmark.data.store import open_store
from benchmark.data.task import Side
from benchmark.posthoc import ensemble, finished
from benchmark.runs import worker
from benchmark.runs.ready import transform_of
from benchmark.runs.scoring import score
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from reports.aggregate import union_board
from reports.selection import select, typed
from tests import tiny_sweep

MEMBERS = ("glyphs-mini", "glyphs-arrows")
UNION = "union:" + ",".join(MEMBERS)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = tiny_sweep.workspace(tmp_path_factory.mktemp("work"), (*MEMBERS, UNION))
    for job in tiny_sweep.jobs(workspace, "proxyanchor", datasets=MEMBERS, splits="default", seeds=1):
        worker.run(job.spec, job.context)
    return workspace


def made(workspace: Workspace, method: str = "proxyanchor", tell: Callable[[str], None] = print) -> list[Path]:
    return ensemble.run(workspace, UNION, ensemble.find(workspace, UNION, method), device="cpu", tell=tell)


def test_the_mean_of_both_models_is_scored_over_the_union(workspace: Workspace) -> None:
    (path,) = made(workspace)
    record = json.loads(path.read_text())
    assert record["method"]["name"] == "ensemble:proxyanchor"
    assert record["method"]["trains"].startswith("2 models")
    assert "ensemble" in record["method"]["tags"]
    assert set(record["domains"]) == set(MEMBERS)
    index = datasets.load(UNION, workspace.data)
    test = np.flatnonzero(np.isin(np.array(index.classes)[index.labels], index.test_classes))
    store = open_store(index, workspace.cache)
    total, parameters = 0, 0
    for name in MEMBERS:
        (one,) = finished.find(workspace, name, "proxyanchor")
        method = one.rebuild(len(ladders.load(workspace, name).default.train))
        loader = Loader(store, transform_of(one.protocol, method), "cpu")
        with torch.no_grad():
            total = total + method.embed(loader.evaluate(torch.from_numpy(test))).numpy()
        parameters += json.loads((one.folder / "record.json").read_text())["method"]["total_parameters"]
    cosines = (total / np.linalg.norm(total, axis=1, keepdims=True)) @ (
        total / np.linalg.norm(total, axis=1, keepdims=True)).T
    np.fill_diagonal(cosines, -2)
    hits = index.labels[test][cosines.argmax(1)] == index.labels[test]
    assert record["scores"]["last"]["recall@1"] == pytest.approx(hits.mean(), abs=2 / len(hits))
    assert record["method"]["total_parameters"] == parameters


def test_each_dataset_is_scored_by_its_own_model_and_so_is_the_harmonic_mean(workspace: Workspace) -> None:
    """By another road: the records of the members' own runs, and one search in loops; UML, section 5.1."""
    (path,) = made(workspace)
    record = records.read(path)
    own = {}
    for name in MEMBERS:
        (one,) = finished.find(workspace, name, "proxyanchor")
        own[name] = records.read(one.folder)["scores"]["last"]
        for metric in ("recall@1", "recall@8", "map@1000", "map@r"):
            assert record["domains"][name][metric] == pytest.approx(own[name][metric], abs=0.02), (name, metric)
    assert record["provenance"]["domains"] == "own model"
    board = union_board(typed(records.collect(workspace.runs)), "recall@1")
    (harmonic,) = board.scores.loc[board.scores["statistic"] == "harmonic", "score"]
    assert harmonic == pytest.approx(2 / sum(1 / own[name]["recall@1"] for name in MEMBERS), abs=0.02)


def test_the_members_scores_are_not_the_ensembles() -> None:
    """Two models, each of which tells its own dataset apart and not the other."""
    side = Side(np.arange(8), np.repeat(np.arange(4), 2), tuple("abcd"), domains=np.repeat([0, 1], 4))
    good, bad = torch.eye(4)[[0, 0, 1, 1]], torch.eye(4)[[2, 3, 2, 3]]
    first, second = torch.cat([good, bad]), torch.cat([bad, good])
    own = ensemble._own([first, second], side)
    assert torch.equal(own, torch.cat([good, good]))
    result = score(side, first, ("one", "other"), own=own)
    assert {name: scores["recall@1"] for name, scores in result.domains.items()} == {"one": 1, "other": 1}
    assert score(side, first, ("one", "other")).domains["other"]["recall@1"] == 0
    assert result.scores == score(side, first, ("one", "other")).scores


def test_a_record_of_the_ensemble_on_every_dataset_is_read_marked_and_made_anew(workspace: Workspace,
                                                                              tmp_path: Path) -> None:
    (path,) = made(workspace)
    other = Workspace(shutil.copytree(workspace.root, tmp_path / "work"), workspace.data)
    copy = other.root / path.relative_to(workspace.root)
    record = json.loads(copy.read_text())
    del record["provenance"]["domains"]
    record["domains"] = {name: {"recall@1": 0.125} for name in MEMBERS}
    copy.write_text(json.dumps(record))
    runs, notes = select(records.collect(other.runs))
    assert set(runs.loc[runs["method"] == "ensemble:proxyanchor", "domains_of"]) == {"ensemble"}
    assert any("`oodml ensemble` computes it anew" in note for note in notes)
    (again,) = made(other)
    assert again == copy
    assert records.read(again)["domains"] == records.read(path)["domains"]
    runs, notes = select(records.collect(other.runs))
    assert not any("ensemble" in note for note in notes)


def test_it_is_made_once_and_the_command_tells(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = made(workspace)
    stamp = path.stat().st_mtime_ns
    cli.main(["ensemble", "--dataset", UNION, "--methods", "proxyanchor", "--work", str(workspace.root)])
    assert path.stat().st_mtime_ns == stamp
    assert "ensemble:proxyanchor seed 0: recall@1" in capsys.readouterr().out


def test_it_is_made_anew_where_a_member_was(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(shutil.copytree(workspace.root, tmp_path / "work"), workspace.data)
    (path,) = made(other)
    record = json.loads(path.read_text())
    record["scores"]["last"]["recall@1"] = 0.0
    path.write_text(json.dumps(record))
    assert made(other) == [path]
    assert records.read(path)["scores"]["last"]["recall@1"] == 0
    record["provenance"]["date"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps(record))
    assert made(other) == [path]
    assert records.read(path)["scores"]["last"]["recall@1"] > 0


def test_runs_of_other_settings_are_another_ensemble(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(shutil.copytree(workspace.root, tmp_path / "work"), workspace.data)
    for job in tiny_sweep.jobs(other, "proxyanchor", datasets=MEMBERS, splits="default", seeds=1, set={"epochs": 1}):
        worker.run(job.spec, job.context)
    epochs = []
    for path in made(other):
        record = json.loads(path.read_text())
        found = [RunSpec.read(run.parent) for run in other.runs.rglob("proxyanchor/*/record.json")]
        own = {spec.protocol.epochs for spec in found if spec and spec.identity in
               record["provenance"]["members"].values()}
        assert own == {record["protocol"]["epochs"]}
        epochs += own
    assert sorted(epochs) == [1, 2]


def trained(workspace: Workspace, folder: Path, lengths: dict[str, dict[str, int]]) -> Workspace:
    """A copy of the images and ladders, with a run on each member for so long."""
    other = Workspace(folder, workspace.data)
    for part in ("splits", "cache"):
        shutil.copytree(workspace.root / part, folder / part)
    for name, length in lengths.items():
        for job in tiny_sweep.jobs(other, "proxyanchor", datasets=(name,), splits="default", seeds=1, set=length):
            worker.run(job.spec, job.context)
    return other


def test_models_of_other_epochs_and_equal_steps_are_one_ensemble(workspace: Workspace, tmp_path: Path) -> None:
    """As where a study gives a small dataset more epochs."""
    other = trained(workspace, tmp_path, {
        MEMBERS[0]: {"epochs": 2, "steps_per_epoch": 2, "evaluate_every": 2},
        MEMBERS[1]: {"epochs": 4, "steps_per_epoch": 1, "evaluate_every": 4}})
    lines: list[str] = []
    (path,) = made(other, tell=lines.append)
    record = records.read(path)
    members = [one for name in MEMBERS for one in finished.find(other, name, "proxyanchor")]
    assert {records.read(one.folder)["cost"]["steps"] for one in members} == {4}
    assert record["provenance"]["members"] == {one.spec.dataset: one.spec.identity for one in members}
    assert record["provenance"]["epochs"] == dict(zip(MEMBERS, (2, 4)))
    assert [line.partition(":")[0] for line in lines] == ["ensemble"]


def test_models_of_other_steps_are_told_and_not_joined(workspace: Workspace, tmp_path: Path) -> None:
    other = trained(workspace, tmp_path, {MEMBERS[0]: {"epochs": 2}, MEMBERS[1]: {"epochs": 3}})
    lines: list[str] = []
    assert not made(other, tell=lines.append)
    (line,) = lines
    assert "not joined" in line
    assert f"{MEMBERS[0]} 4 steps, {MEMBERS[1]} 6 steps" in line


@pytest.mark.parametrize("other", [{"warmup": 1}, {"lr": 0.001}])
def test_equal_steps_by_other_settings_are_not_joined(workspace: Workspace, tmp_path: Path,
                                                      other: dict[str, int]) -> None:
    """Of the same steps, but with rates that change at another one or are others."""
    there = trained(workspace, tmp_path, {MEMBERS[0]: {"epochs": 4, "steps_per_epoch": 1, **other},
                                          MEMBERS[1]: {"epochs": 2, "steps_per_epoch": 2}})
    assert not made(there)


def test_a_model_that_is_missing_is_named(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path, workspace.data)
    shutil.copytree(workspace.splits, other.splits)
    shutil.copytree(workspace.runs / MEMBERS[0], other.runs / MEMBERS[0])
    lines: list[str] = []
    assert not made(other, tell=lines.append)
    assert len(lines) == 1
    assert "proxyanchor seed 0: no finished run on the default split of glyphs-arrows" in lines[0]


def test_a_run_of_another_version_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    shutil.copytree(workspace.runs, tmp_path / "runs")
    spec = next(tmp_path.rglob("glyphs-arrows/*/*/*/spec.json"))
    spec.write_text(json.dumps({**json.loads(spec.read_text()), "planet": "mars"}))
    with pytest.raises(UserError, match="another version of oodml") as caught:
        made(Workspace(tmp_path, workspace.data))
    assert str(spec) in str(caught.value)


def test_mistakes_are_named(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="not a union"):
        ensemble.find(workspace, "glyphs-mini", "proxyanchor")
    with pytest.raises(SystemExit) as caught:
        cli.main(["ensemble", "--dataset", UNION, "--methods", "margin", "--work", str(workspace.root)])
    assert caught.value.code == 2
    assert "no method of 'margin'" in capsys.readouterr().err


def test_a_run_on_a_union_chooses_its_epoch_by_held_out_classes_of_every_member(workspace: Workspace) -> None:
    (job,) = tiny_sweep.jobs(workspace, "proxyanchor", datasets=(UNION,), seeds=1, set={"validation": True})
    worker.run(job.spec, job.context)
    record = json.loads((job.folder / "record.json").read_text())
    assert set(record["scores"]) == {"last", "best-test", "validation"}
    held = ladders.load(workspace, UNION, datasets.load(UNION, workspace.data)).default.validation
    assert {name for name in MEMBERS if any(c.startswith(f"{name}/") for c in held)} == set(MEMBERS)
