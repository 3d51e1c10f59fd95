"""The frozen board: one embedding pass a network and dataset, weight files, poolings, facts, Pareto marks."""

from __future__ import annotations

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from safetensors.torch import save_file

from benchmark import datasets, ladders
from benchmark.commands.run import summarise
from benchmark.config import study as studies
from benchmark.data import features, weights
from benchmark.data.store import open_store
from benchmark.data.transform import Transform
from benchmark.datasets.union import unite_indexes
from benchmark.metrics import retrieval
from benchmark.posthoc import fewshot, steps
from benchmark.posthoc.adaptation import Adaptation
from benchmark.runs import attempt, ready, worker
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.job import Job, SweepOptions, SweepResult
from benchmark.runs.matrix import gather
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import MethodError
from methods.backbones import TIMM, create, names, select
from methods.backbones import Backbone as BackboneOfMethods
from reports import exports, records
from reports.analysis import frozen, pretraining
from reports.analysis.results import Results
from reports.html.frozen_pages import untrained
from reports.html.rendering import Site
from reports.selection import DEFAULT_KINDS
from tests import tiny_sweep
from tests.pictures import Drawing
from tests.sample_records import identity, make_record
from tests.test_features import Backbone, drawn

NETWORKS = ("test_vit", "test_resnet")
SMALL = {"size": 32, "resize": 32}


class Counted:
    """How many images each extraction embedded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images: list[int] = []
        compute = features._compute
        monkeypatch.setattr(features, "_compute", lambda index, *rest: (self.images.append(len(index)),
                                                                        compute(index, *rest)))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, list[Job], list[int]]:
    """Two networks from files of one's own on all rungs of a ladder; and what was embedded for it."""
    made = tiny_sweep.workspace(tmp_path_factory.mktemp("work"))
    torch.manual_seed(0)
    files = [tmp_path_factory.mktemp("weights") / f"mine-{name}.safetensors" for name in NETWORKS]
    for name, file in zip(NETWORKS, files):
        save_file(create(name).network.state_dict(), file)
    listed = ",".join(f"{name}={file}" for name, file in zip(NETWORKS, files))
    changes = {**SMALL, "precision": "bf16"}  # for training: features are made as the device makes them best
    study = tiny_sweep.study("frozen", backbones=listed, splits="all", seeds=1, set=changes)
    part = replace(study.parts[0], set={k: v for k, v in study.parts[0].set.items() if k != "backbone"})
    jobs = gather(replace(study, parts=(part,)), SweepOptions(made)).jobs
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch)
        for job in jobs:
            worker.run(job.spec, job.context)
    return made, jobs, counted.images


def test_all_rungs_of_a_network_cost_one_embedding_pass(done: tuple[Workspace, list[Job], list[int]]) -> None:
    made, jobs, embedded = done
    index = datasets.load("glyphs-mini", made.data)
    ladder = ladders.load(made, "glyphs-mini", index)
    assert len(jobs) == 2 * len(ladder.splits)
    assert len(ladder.splits) > 1
    assert embedded == [len(index)] * 2
    for job in jobs:
        network = create(names.parse(job.spec.protocol.backbone).network).eval()
        network.load(weights.read(Path(str(job.context.weights_file))), "the file")
        test = index.of_classes(ladder.split(job.spec.split).test)
        store = open_store(index, made.cache)
        loader = features.Loader(store, ready.transform_of(job.spec.protocol, job.spec.build(network, 2)), "cpu")
        with torch.no_grad():
            vectors = network(loader.evaluate(torch.from_numpy(test)))
        record = records.read(job.folder)
        assert record["scores"]["last"]["recall@1"] == pytest.approx(
            retrieval(vectors, np.asarray(index.labels)[test], ks=(1,))["recall@1"], abs=2e-3)
        facts = record["backbone"]["facts"]
        assert facts == {"parameters": sum(p.numel() for p in network.parameters()), "dim": network.dim,
                         "pooling": "token" if "vit" in job.spec.protocol.backbone else "mean", "pretraining": [],
                         "resolution": 32}
        assert record["backbone"]["name"] in ("test_vit:mine-test_vit", "test_resnet:mine-test_resnet")
        assert record["cost"]["embed_images_per_second"] > 0
        assert (job.spec.protocol.precision, record["cost"]["precision"]) == ("bf16", "fp32")


def test_a_signal_stops_the_embedding_and_what_is_embedded_is_kept(
        done: tuple[Workspace, list[Job], list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, jobs, _ = done
    fresh = tiny_sweep.workspace(tmp_path)
    job = replace(jobs[0], context=replace(jobs[0].context, work=tmp_path))
    forward, seen = BackboneOfMethods.forward, []

    def told_to_stop(self: Any, images: torch.Tensor) -> torch.Tensor:
        if not seen:
            os.kill(os.getpid(), signal.SIGTERM)
        seen.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(BackboneOfMethods, "forward", told_to_stop)
    with StopRequest() as request:
        result = attempt.attempt_alone(job, should_stop=lambda: request.requested)
    assert result.kind == "stopped"
    assert "embedded" in result.text
    assert seen == [256]
    assert not job.done
    (part,) = fresh.cache.glob("features-*/features.part.journal")
    assert sum(json.loads(line)["rows"] for line in part.read_text().splitlines()) == 256
    assert attempt.attempt_alone(job).kind == "done"
    assert seen == [256, len(datasets.load("glyphs-mini", made.data)) - 256]
    assert records.read(job.folder)["scores"] == records.read(jobs[0].folder)["scores"]


def test_few_shot_episodes_are_taught_on_the_kept_features(done: tuple[Workspace, list[Job], list[int]],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    made, jobs, _ = done
    counted = Counted(monkeypatch)
    monkeypatch.setattr(fewshot, "Adaptation", lambda: Adaptation(iterations=2, episodes=2))
    steps.follow({"step": "fewshot", "datasets": ["glyphs-mini"], "shots": [2]}, jobs[:1], made, lambda line: None)
    (found,) = made.runs.glob("*/*/frozen/*/fewshot.json")
    (measured,) = fewshot._read(found.parent)
    assert counted.images == []
    assert measured["shots"]["2"]["few"]["recall@1"]["mean"] > 0


def test_a_union_takes_the_features_of_its_members(tmp_path: Path) -> None:
    members = [replace(drawn(count, Drawing(height=40, width=40)), name=f"m{count}") for count in (20, 30)]
    united = unite_indexes("both", members)
    arguments: dict[str, Any] = {"name": "toy", "weights_hash": "w", "transform": Transform(size=32, resize=36),
                                 "folder": tmp_path, "batch": 8, "progress": False}
    stores = [open_store(index, tmp_path, progress=False) for index in (*members, united)]
    backbone = Backbone()
    alone = [features.extract(index, store, backbone, **arguments) for index, store in zip(members, stores)]
    assert backbone.seen == 50
    np.testing.assert_array_equal(features.extract(united, stores[2], backbone, **arguments), np.concatenate(alone))
    assert backbone.seen == 50, "nothing was embedded again"


@pytest.mark.parametrize("norm", ["", names.LAYER_NORM])
@pytest.mark.parametrize("pooling", names.POOLINGS)
def test_poolings_of_the_last_map(pooling: str, norm: str) -> None:
    torch.manual_seed(0)
    backbone = create(f"test_vit@{pooling}{norm}").eval()
    images = torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        tokens = backbone.network.forward_features(images)  # type: ignore[operator]
        places = tokens[:, 1:]
        across = places.transpose(1, 2)
        mean, most = (layer(1)(across)[..., 0] for layer in (torch.nn.AdaptiveAvgPool1d, torch.nn.AdaptiveMaxPool1d))
        wanted = {"token": tokens[:, 0], "mean": mean, "gem": (places.clamp(min=1e-6) ** 3).mean(1) ** (1 / 3),
                  "max": most, "meanmax": most + mean}[pooling]
        wanted = torch.nn.functional.layer_norm(wanted, wanted.shape[1:]) if norm else wanted
        torch.testing.assert_close(backbone(images), wanted)
        pooled, local = backbone(images, local=True)
    torch.testing.assert_close(pooled, wanted)
    assert local.shape == places.shape
    assert backbone.dim == wanted.shape[1]


def test_names_that_make_no_sense_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=r"'gems' is no pooling \(did you mean 'gem'\?\)"):
        create("resnet18@gems")
    with pytest.raises(MethodError, match="each also with a layer norm: gem-ln"):
        create("resnet18@gem-bn")
    for pooling in ("token", "token-ln"):
        with pytest.raises(MethodError, match="no class token"):
            create(f"test_resnet@{pooling}")
    with pytest.raises(UserError, match="give their file: --backbones resnet18=FILE"):
        weights.identify("resnet18:mine")
    made = Workspace.at(tmp_path)
    with pytest.raises(UserError, match="there is no file none"):
        gather(tiny_sweep.study("frozen", backbones="resnet18=none.pth"), SweepOptions(tiny_sweep.workspace(made.root)))


def test_the_foundation_list_is_of_timm_and_says_what_it_saw() -> None:
    tags = [TIMM.get(name, name) for name in select("foundation") if name != "resnet50_v1"]
    assert len(tags) >= 30
    assert set(tags) <= set(timm.list_models(pretrained=True))
    seen = {tag: names.pretraining(tag) for tag in tags}
    assert [tag for tag, sets in seen.items() if not sets] == []
    assert {name for sets in seen.values() for name in sets} <= set(pretraining.sets())
    assert create("resnet50_v1").facts()["pretraining"] == ["ImageNet-1k"]


def test_missing_weights_are_listed_and_not_fatal(capsys: pytest.CaptureFixture[str]) -> None:
    study = studies.load("frozen")
    summarise(study, SweepResult(lacking=3), Workspace.at())
    assert "3 runs were left out: weights that are missing" in capsys.readouterr().out
    needed = replace(study, parts=(replace(study.parts[0], optional=False),))
    with pytest.raises(SystemExit):
        summarise(needed, SweepResult(lacking=3), Workspace.at())


def test_pareto_by_comparing_all_pairs() -> None:
    rng = np.random.default_rng(0)
    scores, costs = rng.integers(6, size=30) / 6, rng.integers(5, size=30) * 1.0
    for i, front in enumerate(frozen.pareto(scores.tolist(), costs.tolist())):
        beaten = [j for j in range(30) if scores[j] >= scores[i] and costs[j] <= costs[i]
                  and (scores[j] > scores[i] or costs[j] < costs[i])]
        assert front == (not beaten)


def test_speeds_are_compared_on_one_known_device_alone() -> None:
    rows = [{"score": score, "parameters": None, "images_per_second": speed, "device": device}
            for score, speed, device in ((0.5, 90.0, "a"), (0.4, 80.0, "a"), (0.3, 70.0, None), (0.2, 60.0, "b"),
                                         (0.1, None, "b"))]
    assert [row["pareto"] for row in frozen._marked(rows)] == ["speed", "", "", "speed", ""]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Three frozen networks and a trained method on a ladder; the records of one network are of an earlier version."""
    folder = tmp_path_factory.mktemp("runs")
    networks: dict[str, tuple[float, dict[str, Any]]] = {
        "small": (0.3, {"parameters": 5e6, "dim": 64, "pooling": "mean", "pretraining": ["ImageNet-1k"]}),
        "large": (0.5, {"parameters": 9e7, "dim": 96, "pooling": "token", "pretraining": ["LVD-142M"]}),
        "old": (0.2, {})}
    for (name, (score, facts)), split in itertools.product(networks.items(), range(1, 9)):
        record = make_record("cars", split, "frozen", 0, score, backbone={
            "name": name, "weights": None, **({"facts": facts} if facts else {})})
        record["identity"] = identity(f"{name}-{split}")
        record["cost"]["embed_images_per_second"] = 100.0 if name == "large" else 50.0
        records.write(folder / f"{name}-{split}", record)
    for split in range(1, 9):
        records.write(folder / f"margin-{split}", make_record("cars", split, "margin", 0, 0.7, backbone={
            "name": "small", "weights": None}))
    return Results(records.collect(folder), with_published=False)


def test_the_board_of_frozen_networks(results: Results) -> None:
    rows = frozen.collect(results, "recall@1").set_index("backbone")
    assert rows["score"].to_dict() == pytest.approx({"small": 0.3, "large": 0.5, "old": 0.2})
    assert rows.loc["small", "gain"] == pytest.approx(0.4)
    assert rows.loc[["large", "old"], "gain"].isna().all(), "nothing was trained with these networks"
    assert rows["contamination"].to_dict() == {"small": "", "large": "curated", "old": ""}
    assert rows["pareto"].to_dict() == {"small": "parameters", "large": "parameters, speed", "old": "parameters"}
    made = Site(results, pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    untrained(made)
    made.finish()
    page = str(made.files["frozen.html"])
    for text in ("Frozen networks on cars", "LVD-142M", "curated", "90.0M", "<svg"):
        assert text in page
    assert "curated" in exports.export(results, "frozen", "csv")
    assert "+40.0" in exports.export(results, "frozen", "md")


def test_what_training_adds_is_told_on_the_default_split_where_no_ladder_is_trained(results: Results) -> None:
    runs = results.runs[(results.runs["base_method"] == "frozen") | results.runs["kind"].isin(DEFAULT_KINDS)]
    rows = frozen.collect(Results(runs, with_published=False), "recall@1").set_index("backbone")
    assert rows["what"].unique().tolist() == ["AGS of Recall@1"]
    assert rows["gain"].dropna().to_dict() == pytest.approx({"small": 0.4})
    assert rows["best"].dropna().tolist() == ["margin on the default split"]


def test_frozen_networks_are_drawn_against_the_best_and_the_worst_trained_row(tmp_path: Path) -> None:
    strengths = {("frozen", "a"): 0.5, ("frozen", "b"): 0.4, ("margin", "a"): 0.7, ("triplet", "a"): 0.6,
                 ("arcface", "a"): 0.65}
    for (method, network), score in strengths.items():
        for split in range(1, 6):
            made = make_record("glyphs", split, method, 0, score - split / 50,
                               backbone={"name": network, "weights": "w"})
            records.write(tmp_path / f"{method}{network}{split}",
                          {**made, "identity": identity(f"{method}{network}{split}")})
    results = Results(records.collect(tmp_path), with_published=False)
    cells = frozen.with_extremes(results.cells("glyphs", "recall@1"))
    assert {label.partition(" · ")[0] for label in cells["label"]} == {
        "a", "b", "best trained: margin", "worst trained: triplet"}
    assert len(cells) == 4 * 5
    made = Site(results, pd.DataFrame())
    untrained(made)
    made.finish()
    assert "Frozen networks along the ladder of glyphs" in str(made.files["figures/glyphs-frozen-curve.svg"])
    assert "the best and the worst trained row" in str(made.files["frozen.html"])
