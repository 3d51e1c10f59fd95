"""What a study computes from its finished runs: real runs on two small datasets and their union."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

import methods
from benchmark import ladders
from benchmark.commands.inspect import command as inspect_command
from benchmark.posthoc import fewshot, steps, transfer
from benchmark.runs import sweep, worker
from benchmark.runs.job import Resources, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.workspace import Workspace
from reports import records
from reports.analysis import galleries
from tests import layouts, tiny_sweep

MEMBERS = ("glyphs-georgian", "glyphs-arrows")
UNION = f"union:{','.join(MEMBERS)}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images and ladders of the members and their union, drawn once."""
    return tiny_sweep.workspace(tmp_path_factory.mktemp("base"), (*MEMBERS, UNION)).root


@pytest.fixture
def made(base: Path, tmp_path: Path) -> Workspace:
    return Workspace.at(shutil.copytree(base, tmp_path / "work"))


def test_transfer_and_ensemble_follow_from_finished_runs(made: Workspace) -> None:
    study = tiny_sweep.study("margin,frozen", datasets=MEMBERS, seeds=1, splits="default", set={"epochs": 1},
                             after=({"step": "cross"}, {"step": "ensemble", "union": UNION}))
    lines: list[str] = []
    options = SweepOptions(made, resources=Resources(jobs=2))
    outcome = sweep.run(study, options, lines.append)
    steps.follow_all(study, outcome, made, lines.append)
    assert len(outcome.done) == 4
    transfers = {path.parts[-5]: json.loads(path.read_text()) for path in made.runs.rglob(transfer.NAME)}
    assert set(transfers) == set(MEMBERS)
    for source, entries in transfers.items():
        assert set(entries["targets"]) == set(MEMBERS) - {source}
        for target, entry in entries["targets"].items():
            floor = records.read(next((made.runs / target).glob("*/frozen/*/record.json")))
            assert entry["floor"] == {"backbone": "conv4", "scores": floor["scores"]["last"]}
            assert entry["images"] == floor["split"]["test_images"]
            assert 0 <= entry["scores"]["recall@1"] <= 1
    (record,) = made.runs.glob("union-*/*/*/*/record.json")
    united = records.read(record)
    assert united["method"]["name"] == "ensemble:margin"
    assert set(united["domains"]) == set(MEMBERS)
    assert united["queries"]["count"] == ladders.load(made, UNION).default.test_images
    before = record.stat().st_mtime_ns
    steps.follow_all(study, sweep.run(study, options, lines.append), made)
    assert record.stat().st_mtime_ns == before


def test_galleries_of_the_best_and_the_median_run_follow_once(made: Workspace) -> None:
    study = tiny_sweep.study("margin,triplet,frozen", datasets=MEMBERS, seeds=1, splits="all", set={"epochs": 1},
                             after=({"step": "inspect", "datasets": [MEMBERS[0]]},))
    lines: list[str] = []
    options = SweepOptions(made, resources=Resources(jobs=2))
    steps.follow_all(study, sweep.run(study, options, lines.append), made, lines.append)
    found = sorted(path.parts[-4:-1] for path in made.runs.rglob(galleries.NAME))
    ends = {part[0] for part in found}
    assert len(ends) == 2
    assert len(found) == len([line for line in lines if line.startswith("looked into")]) == 4
    assert {part[1] for part in found} == {"margin", "triplet"}  # a frozen network without pretraining is not kept
    assert not list((made.runs / MEMBERS[1]).rglob(galleries.NAME))
    before = {path: path.stat().st_mtime_ns for path in made.runs.rglob(galleries.NAME)}
    steps.follow_all(study, sweep.run(study, options, lines.append), made, lines.append)
    assert before == {path: path.stat().st_mtime_ns for path in made.runs.rglob(galleries.NAME)}


PLUGIN = """
import methods
from methods.method import Objective

@methods.register("my-loss", family="pair", trains="embedding")
class MyLoss(Objective):
    def forward(self, embeddings, labels):
        return embeddings.square().mean()
"""


def test_runs_of_a_plug_in_that_is_not_loaded_are_not_looked_into(tmp_path: Path) -> None:
    """Neither by a study that has no such method nor by `oodml inspect`, which tells of them in one line."""
    made, plugin = tiny_sweep.workspace(tmp_path / "work"), tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    with tiny_sweep.registry_as_before():
        methods.load_plugin(plugin)
        for job in tiny_sweep.jobs(made, "my-loss", seeds=1, splits="all", set={"epochs": 1}):
            worker.run(job.spec, job.context)
    jobs = tiny_sweep.jobs(made, "margin", seeds=1, splits="all", set={"epochs": 1})
    for job in jobs:
        worker.run(job.spec, job.context)
    lines: list[str] = []
    steps.follow({"step": "inspect", "datasets": ["glyphs-mini"]}, jobs, made, lines.append)
    assert [line.rpartition(" (")[2] for line in lines] == ["1 of 2)", "2 of 2)"]
    assert all("/margin/" in line for line in lines)
    words = ["--no-umap", "--queries", "1", "--device", "cpu", "--work", str(made.root)]
    result = CliRunner().invoke(inspect_command, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if "my-loss" in line]
    assert line.startswith("left out: the runs of my-loss, not known here; --plugin FILE")
    assert result.output.count("looked into") == 2
    with tiny_sweep.registry_as_before():
        result = CliRunner().invoke(inspect_command, [*words, "--plugin", str(plugin)], catch_exceptions=False)
    assert "left out" not in result.output
    assert "/my-loss/" in result.output


def test_a_union_may_be_among_the_datasets_of_a_transfer(made: Workspace) -> None:
    jobs = [tiny_sweep.jobs(made, "margin", datasets=(name,), seeds=1, splits="default", set={"epochs": 1})[0]
            for name in (MEMBERS[1], UNION)]
    for job in jobs:
        worker.run(job.spec, job.context)
    transfer.run(made, jobs, device="cpu")
    for job, other in zip(jobs, jobs[::-1]):
        (target,) = json.loads((job.folder / transfer.NAME).read_text())["targets"].items()
        assert target[0] == other.spec.dataset
        assert 0 <= target[1]["scores"]["recall@1"] <= 1


def test_a_step_finds_a_dataset_of_ones_own_by_any_of_its_names(tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    quick = fewshot.Adaptation(iterations=1, episodes=1)
    monkeypatch.setattr(fewshot, "Adaptation", lambda: quick)
    monkeypatch.chdir(tmp_path)
    for name in "abcd":
        for i in range(4):
            layouts.picture(tmp_path / "birds" / name / f"{i}.png", f"{name}{i}")
    made = Workspace.at("work")
    (job,) = tiny_sweep.jobs(made, "margin", datasets=("folder:birds",), seeds=1, splits="default", set={"epochs": 1})
    worker.run(job.spec, job.context)
    inspected: list[list[str]] = []
    monkeypatch.setattr(steps.leaderboard, "collect", lambda workspace, datasets: inspected.append(datasets) or Mock())
    monkeypatch.setattr(steps.inspect, "typical", lambda results, of: [])
    for name in ("folder:birds", f"folder:{tmp_path / 'birds'}", "birds"):
        for step in ({"step": "fewshot", "datasets": [name], "shots": [2]}, {"step": "inspect", "datasets": [name]}):
            study = tiny_sweep.study("margin", datasets=("folder:birds",), splits="default", after=(step,))
            assert gather(study, SweepOptions(made)).jobs
            steps.follow(step, [job], made)
        (job.folder / "fewshot.json").unlink()
    assert inspected == [["birds"]] * 3


def test_few_shots_follow_on_the_rungs_of_the_study_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = fewshot.Adaptation(iterations=1, episodes=1)
    monkeypatch.setattr(fewshot, "Adaptation", lambda: quick)
    made = tiny_sweep.workspace(tmp_path)
    jobs = tiny_sweep.jobs(made, "margin", seeds=1, splits="all", set={"epochs": 1})
    for job in jobs:
        worker.run(job.spec, job.context)
    (foreign,) = tiny_sweep.jobs(made, "margin", seeds=1, splits="2", set={"epochs": 1, "lr": 0.1})
    worker.run(foreign.spec, foreign.context)
    lines: list[str] = []
    steps.follow({"step": "fewshot", "datasets": ["glyphs-mini", "glyphs-arrows"], "shots": [2, 3]}, jobs[1:], made,
                 lines.append)
    assert [re.findall(r"run \d+ of \d+", line) for line in lines if "on the CPU" not in line] == [
        [f"run {number} of {len(jobs) - 1}"] for number in range(1, len(jobs)) for _ in (2, 3)]
    entries = {path.parent: json.loads(path.read_text())["shots"] for path in made.runs.rglob("fewshot.json")}
    assert set(entries) == {job.folder for job in jobs[1:]}
    assert all(set(shots) == {"2", "3"} for shots in entries.values())


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": "x", "targets": {}}', '{"schema": 1, "targets": 3}'])
def test_a_damaged_file_of_transfers_is_made_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / transfer.NAME).write_text(content)
    assert transfer._read(tmp_path / transfer.NAME) == {}
