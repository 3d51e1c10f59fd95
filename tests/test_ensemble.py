"""Dataset-specific models of a union as one: two real runs, one score."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from benchmark import cli, datasets, ensemble, finished, images, ladders
from benchmark.errors import UserError
from benchmark.loader import Loader
from benchmark.plan import Overrides, plan
from benchmark.worker import Context, transform_of
from benchmark.worker import run as work
from benchmark.workspace import Workspace
from splits.ladder import build_ladder

MEMBERS = ("glyphs-mini", "glyphs-arrows")
UNION = "union:" + ",".join(MEMBERS)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace.at(tmp_path_factory.mktemp("work"))
    for name in MEMBERS:
        index = datasets.load(name, workspace.data)
        features = np.random.default_rng(0).normal(size=(len(index), 6)) + index.labels[:, None] % 5
        ladder = build_ladder(features, index.labels, index.train_classes, index.test_classes, classes=index.classes,
                              dataset=index.name, dataset_hash=index.hash)
        ladders.save(ladder, workspace)
        changes = ["backbone=conv4", "epochs=1", "steps_per_epoch=2", "dim=8", "size=16", "resize=16", "batch_size=16"]
        (spec,) = plan(ladder, index.hash, ["proxyanchor"], protocol="demo", seeds=[0], splits=[ladder.default.id],
                       overrides=Overrides.parse(changes))
        work(spec, Context(name, workspace.root, workspace.data))
    ladders.save(ladders.build(UNION, workspace), workspace)
    return workspace


def test_the_mean_of_both_models_is_scored_over_the_union(workspace: Workspace) -> None:
    path = ensemble.run(workspace, dataset=UNION, method="proxyanchor", device="cpu")
    record = json.loads(path.read_text())
    assert record["method"]["name"] == "specific-proxyanchor"
    assert set(record["domains"]) == set(MEMBERS)
    index = datasets.load(UNION, workspace.data)
    test = np.flatnonzero(np.isin(np.array(index.classes)[index.labels], index.test_classes))
    store = images.prepare(index, workspace.cache)
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


def test_it_is_made_once_and_the_command_tells(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    path = ensemble.run(workspace, dataset=UNION, method="proxyanchor", device="cpu")
    stamp = path.stat().st_mtime_ns
    cli.main(["ensemble", "--dataset", UNION, "--methods", "proxyanchor", "--work", str(workspace.root)])
    assert path.stat().st_mtime_ns == stamp
    assert "specific-proxyanchor seed 0: unified recall@1" in capsys.readouterr().out


def test_mistakes_are_named(workspace: Workspace) -> None:
    with pytest.raises(UserError, match="not a union"):
        ensemble.run(workspace, dataset="glyphs-mini", method="proxyanchor")
    with pytest.raises(UserError, match="no finished run of margin, seed 0, on the default split of glyphs-mini"):
        ensemble.run(workspace, dataset=UNION, method="margin")
