"""Every study on tiny datasets in the official layouts: all are planned, two are run to their end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark import datasets
from benchmark.config import study as studies
from benchmark.data import ladders
from benchmark.posthoc import steps
from benchmark.runs import sweep
from benchmark.runs.job import Resources, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.workspace import Workspace
from reports import records
from splits.ladder import build_ladder
from splits.union import EIGHT
from tests import layouts
from tests.tiny_sweep import SMALL

CLASSES = (6,) * 8


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Eight classes of six images in the layout of each of the eight datasets, and a ladder of every dataset."""
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
    matrix = gather(study, SweepOptions(tiny))
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


def run(tiny: Workspace, folder: Path, name: str, **changes: Any) -> tuple[Workspace, studies.Study]:
    """A study on a copy of the tiny datasets with a small network, to its end."""
    shutil.copytree(tiny.root, folder / "work")
    made = Workspace.at(folder / "work")
    study = studies.load(name).changed(seeds=1, set={**SMALL, "epochs": 1, "precision": "fp32"}, **changes)
    options = SweepOptions(made, resources=Resources(jobs=1))
    steps.follow_all(study, sweep.run(study, options, lambda line: None), made, lambda line: None)
    return made, study


def test_a_study_of_variations_is_run_to_its_end(tiny: Workspace, tmp_path: Path) -> None:
    made, study = run(tiny, tmp_path, "revisiting-samplers", datasets=("cub",), methods="margin")
    frame = records.collect(made.runs)
    assert sorted(settings["batches"] for settings in frame["protocol_settings"]) == sorted(
        study.parts[0].vary["batches"])
    assert frame["recall@1"].between(0, 1).all()


def test_a_study_with_an_ensemble_is_run_to_its_end(tiny: Workspace, tmp_path: Path) -> None:
    made, study = run(tiny, tmp_path, "uml-4", methods="proxyanchor")
    frame = records.collect(made.runs).set_index(["dataset", "method"])
    members = [(dataset, "proxyanchor") for dataset in (*study.parts[1].datasets, "uml-4")]
    assert sorted(frame.index) == sorted([*members, ("uml-4", "ensemble:proxyanchor")])
    assert frame["recall@1"].between(0, 1).all()
