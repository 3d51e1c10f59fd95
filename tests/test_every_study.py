"""Every study on tiny datasets in the official layouts: all are planned, and one method of each part is run."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import methods
from benchmark import datasets, ladders
from benchmark.config import narrowing
from benchmark.config import study as studies
from benchmark.posthoc import fewshot, steps
from benchmark.runs import attempt, sweep
from benchmark.runs.job import Resources, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.workspace import Workspace
from reports import records
from splits.ladder import build_ladder
from splits.union import EIGHT
from tests import layouts
from tests.tiny_sweep import SMALL, workspace

TRANSFORMER = {"backbone": "test_vit", "size": 32, "resize": 32, "batch_size": 16}
CLASSES = (7,) * 8  # five shots leave two to be found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Eight classes of seven images in the layout of each of the eight datasets, and a ladder of every dataset."""
    made = Workspace.at(tmp_path_factory.mktemp("studies") / "work")
    for name in EIGHT:
        folder = made.data / name
        if name == "inshop":
            layouts.inshop(folder, CLASSES[:4], CLASSES[4:])
        else:
            getattr(layouts, name)(folder, CLASSES)
    wanted = {dataset for name in studies.names() for part in studies.load(name).parts for dataset in part.datasets}
    for dataset in sorted(wanted, key=lambda name: bool(datasets.get(name).members)):
        index = datasets.load(dataset, made.data)
        if index.domains is not None:
            ladder = ladders.build(dataset, made)
        else:
            features = np.random.default_rng(0).normal(size=(len(index), 8)) + index.labels[:, None] % 7
            ladder = build_ladder(features, index.labels, index.train_classes, index.test_classes, rungs=3,
                                  classes=index.classes, dataset=index.name, dataset_hash=index.hash)
        ladders.save(ladder, made)
    return made


@pytest.mark.parametrize("name", studies.names())
def test_every_study_is_planned(tiny: Workspace, name: str) -> None:
    study = studies.load(name)
    # ladders here have three rungs, whichever of the released ones a study names
    numbered = any(part.splits not in ("all", "default") for part in study.parts)
    changed = narrowing.changed(study, tiny.splits, splits="all" if numbered else None, more_seeds={})
    matrix = gather(changed, SweepOptions(tiny))
    specs = [job.spec for job in matrix.jobs]
    assert {spec.dataset for spec in specs} == {datasets.load(dataset, tiny.data).name for part in study.parts
                                                for dataset in part.datasets}
    assert len({spec.identity for spec in specs}) == len(specs)
    protocols = [spec.protocol.identity() for spec in specs]
    of_methods = [{f"{spec.method}.{key}": value for key, value in spec.settings.items()} for spec in specs]
    for part in study.parts:
        for changes in part.variations():
            for key, value in changes.items():
                assert any(facts.get(key) == value for facts in [*protocols, *of_methods]), (key, value)


@pytest.mark.parametrize("name", ["crt-ablation", "demo", "fewshot", "glyphs-union", "photos-union",
                                  "revisiting-floors", "revisiting-parameters", "uml-8", "uml-backbones"])
def test_a_study_narrowed_to_a_method_or_a_backbone_has_its_own_runs_of_it_and_no_other(tiny: Workspace,
                                                                                        name: str) -> None:
    study, options = studies.load(name), SweepOptions(tiny)
    whole = gather(study, options, seeds=[0]).jobs
    for key, value in (("backbones", lambda spec: spec.protocol.backbone), ("methods", lambda spec: spec.method)):
        for wanted in sorted({value(job.spec) for job in whole})[:4]:
            jobs = gather(narrowing.changed(study, tiny.splits, **{key: wanted}), options, seeds=[0]).jobs
            assert {job.spec.identity for job in jobs} == {
                job.spec.identity for job in whole if value(job.spec) == wanted}, wanted


@pytest.fixture(scope="module")
def own(tiny: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A copy of the tiny datasets for runs of all studies, with the smallest glyphs."""
    return workspace(shutil.copytree(tiny.root, tmp_path_factory.mktemp("runs") / "work"))


def reduced(study: studies.Study) -> studies.Study:
    """One method, a backbone that it fits and one split of each part, two steps; glyphs become the smallest.

    Parts have the same method where they can, which an ensemble of networks of several datasets needs.
    """
    chosen = [methods.select(part.methods) for part in study.parts]
    common = [name for name in chosen[0] if all(name in others for others in chosen)]
    parts = []
    for part, names in zip(study.parts, chosen):
        name = next((one for one in (*common, *names) if methods.get(one).trains != "nothing"), names[0])
        transformer = bool(methods.get(name).misfit("conv4"))
        small = {**SMALL, **(TRANSFORMER if transformer else {}), "epochs": 1, "precision": "fp32", "compile": "no"}
        base = methods.get(name).base
        known = {name, *([base.name] if base else [])}
        own = {key: value for key, value in part.set.items() if "." not in key or key.rpartition(".")[0] in known}
        found = tuple(dict.fromkeys("glyphs-mini" if one.startswith("glyphs") else one for one in part.datasets))
        parts.append(dataclasses.replace(
            part, methods=name, datasets=found if study.after else found[:1], backbones=None, seeds=1, more_seeds={},
            optional=False, splits="default" if part.splits == "default" or study.after else "1",
            vary={key: values[:1] for key, values in part.vary.items() if key != "backbone" and (
                "." not in key or key.rpartition(".")[0] == name)}, set={**own, **small}))
    after = [{**step, **({"datasets": ["glyphs-mini"]} if "glyphs" in str(step.get("datasets")) else {})}
             for step in study.after if "glyphs" not in str(step.get("union", ""))]
    return dataclasses.replace(study, parts=tuple(parts), after=tuple(after))


@pytest.mark.parametrize("name", studies.names())
def test_every_study_is_run_to_its_end(own: Workspace, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of it, then what follows its runs; in this process, with random weights."""
    monkeypatch.setattr(fewshot, "Adaptation", functools.partial(fewshot.Adaptation, episodes=1, iterations=2))
    study = reduced(studies.load(name))
    jobs = gather(study, SweepOptions(own, weights_file="scratch")).jobs
    assert jobs
    for job in jobs:
        ended = attempt.attempt_alone(job).kind
        assert ended in ("done", "exists"), (job.spec.label(), list(job.folder.glob("failure.json")))
        assert 0 <= records.read(job.folder)["scores"]["last"]["recall@1"] <= 1
    for step in study.after:
        steps.follow(step, jobs, own, lambda line: None)


def test_the_few_shot_runs_of_uml_train_with_its_released_settings(own: Workspace) -> None:
    """Figure 6 end to end: PUMA and its rivals on four images a class, embeddings of 384 numbers, along a cosine."""
    part = next(one for one in studies.load("fewshot").parts if one.set.get("train_shots") == 4)
    small = {**TRANSFORMER, "steps_per_epoch": 1, "precision": "fp32", "compile": "no"}
    study = studies.Study("few", (dataclasses.replace(part, seeds=1, set={**part.set, **small}),))
    jobs = gather(study, SweepOptions(own, weights_file="scratch")).jobs
    assert [job.spec.method for job in jobs] == ["proxyanchor", "linear-emb:proxyanchor", "puma:proxyanchor"]
    for job in jobs:
        assert attempt.attempt_alone(job).kind == "done"
        record = records.read(job.folder)
        assert {record["protocol"][key] for key in ("dim", "epochs", "train_shots")} == {384, 9, 4}
        assert record["method"]["settings"]["alpha"] == 64.0
        assert len(record["domains"]) == 8
        with (job.folder / "log.jsonl").open() as log:
            epochs = [entry for entry in map(json.loads, log) if entry.get("event") == "epoch"]
        assert [entry["epoch"] for entry in epochs if "test" in entry] == [8, 9]
        assert len([entry for entry in epochs if "loss" in entry]) == 9
    assert records.read(jobs[2].folder)["method"]["settings"]["length"] == 2


def run(tiny: Workspace, folder: Path, name: str, **changes: Any) -> tuple[Workspace, studies.Study]:
    """A study on a copy of the tiny datasets with a small network, to its end."""
    shutil.copytree(tiny.root, folder / "work")
    made = Workspace.at(folder / "work")
    study = narrowing.changed(studies.load(name), made.splits, seeds=1,
                              set={**SMALL, "epochs": 1, "precision": "fp32"}, **changes)
    options = SweepOptions(made, resources=Resources(jobs=1))
    steps.follow_all(study, sweep.run(study, options, lambda line: None), made, lambda line: None)
    return made, study


def test_a_study_with_an_ensemble_is_run_to_its_end(tiny: Workspace, tmp_path: Path) -> None:
    made, study = run(tiny, tmp_path, "uml-4", methods="proxyanchor")
    frame = records.collect(made.runs).set_index(["dataset", "method"])
    members = [(dataset, "proxyanchor") for dataset in (*study.parts[1].datasets, "uml-4")]
    assert sorted(frame.index) == sorted([*members, ("uml-4", "ensemble:proxyanchor")])
    assert frame["recall@1"].between(0, 1).all()
