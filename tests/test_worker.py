"""One run: what its record says, and by which rules."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import methods
from benchmark import datasets
from benchmark.config import protocol
from benchmark.data import features, weights
from benchmark.data.task import Side, Task
from benchmark.data.transform import Transform
from benchmark.datasets.index import DatasetIndex
from benchmark.metrics.clustering import KMEANS
from benchmark.runs import evaluation, ready, worker
from benchmark.runs.job import Job, RunContext, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.runs.occupancy import Occupancy
from benchmark.runs.spent import Spent
from benchmark.training import checkpoint
from benchmark.training.train import History, Interrupted
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods.backbones import create
from reports import records
from tests import tiny_runs, tiny_sweep


@pytest.fixture(scope="module")
def made(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.at(shutil.copytree(tiny_base, tmp_path_factory.mktemp("runs") / "work"))


def run(made: Workspace, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    spec = tiny_runs.spec(made, *words)
    worker.run(spec, tiny_runs.context(made))
    folder = spec.folder(made)
    return records.read(folder), [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_all_three_rules_in_one_run(made: Workspace) -> None:
    record, log = run(made, "margin", "validation=true", "evaluate_every=1")
    assert set(record["scores"]) == set(record["chosen_epochs"]) == {"last", "best-test", "validation"}
    curve = {entry["epoch"]: entry["recall@1"] for entry in record["curve"]}
    assert record["chosen_epochs"]["last"] == 4
    assert record["scores"]["best-test"]["recall@1"] == max(curve.values())
    for rule, epoch in record["chosen_epochs"].items():
        assert record["scores"][rule]["recall@1"] == curve[epoch]
    held = {line["epoch"]: line["validation"]["recall@1"] for line in log if line["event"] == "epoch"}
    assert held[record["chosen_epochs"]["validation"]] == max(held.values())
    assert log[-1]["chosen_epochs"] == record["chosen_epochs"]


def test_a_warm_process_reads_everything_once_and_says_where_its_seconds_go(made: Workspace,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(name: str, do: Any) -> Any:
        return lambda *given, **named: read.append(name) or do(*given, **named)

    for place, name in ((weights, "read"), (ready, "open_store"), (datasets, "load")):
        monkeypatch.setattr(place, name, counted(name, getattr(place, name)))
    made = Workspace.at(shutil.copytree(made.root, made.root.with_name("warm")))
    tiny_runs.spec(made, "margin")
    read.clear()
    specs = [tiny_runs.spec(made, "margin", "backbone=efficientnet_lite0", "epochs=1", seed=seed) for seed in (5, 6)]
    counts = []
    for spec in specs:
        read.clear()
        worker.run(spec, tiny_runs.context(made))
        counts.append(sorted(read))
    assert counts == [["load", "open_store", "read"], []]
    told = records.read(spec.folder(made))["provenance"]
    assert told["threads"] == torch.get_num_threads()
    took = told["phases"]
    assert {"device", "open dataset", "build network", "place images", "compile", "checkpoint", "save weights",
            "structure", "thresholds", "train", "evaluate", "all"} == set(took)
    assert sum(took.values()) - took["all"] == pytest.approx(took["all"], rel=0.05)


@pytest.mark.parametrize("when", ["last", "every", "no"])
def test_clusters_are_measured_when_the_protocol_says(made: Workspace, when: str) -> None:
    record, log = run(made, "margin", f"clustering={when}", "evaluate_every=1")
    entries = {line["epoch"]: line["test"] for line in log if line["event"] == "epoch"}
    assert [epoch for epoch, scores in entries.items() if "nmi" in scores] == ([1, 2, 3, 4] if when == "every" else [])
    for rule, epoch in record["chosen_epochs"].items():
        assert ("nmi" in record["scores"][rule]) == (when == "every" or (when == "last" and epoch == 4))
        assert ("f1" in record["scores"][rule]) == ("nmi" in record["scores"][rule])
    assert record["provenance"]["kmeans"] == (None if when == "no" else KMEANS)


def test_by_default_all_classes_train_and_nothing_is_chosen_by_validation(made: Workspace) -> None:
    record, log = run(made, "margin")
    assert set(record["scores"]) == {"last", "best-test"}
    assert record["cost"]["precision"] == "fp32"
    assert record["cost"]["steps"] == 12
    assert [line["event"] for line in log] == ["start", *["epoch"] * 4, "end"]


def test_cached_features_of_a_frozen_network_score_as_its_embeddings(tiny: Workspace, tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    state = methods.get("margin").build(create("conv4"), 2, 16).state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, tmp_path / "conv4.safetensors")
    options = SweepOptions(tiny, str(tmp_path / "conv4.safetensors"))
    (job,) = gather(tiny_sweep.study("frozen", seeds=1), options).jobs
    extracted: list[str] = []
    extract = features.extract
    monkeypatch.setattr(features, "extract", lambda *a, **k: extracted.append(k["name"]) or extract(*a, **k))
    cached = records.read(worker.run(job.spec, job.context).parent)
    assert extracted == ["conv4"]
    shutil.rmtree(job.folder)
    monkeypatch.setattr(weights, "SCRATCH", job.spec.weights)  # random weights are not cached
    plain = records.read(worker.run(job.spec, job.context).parent)
    assert extracted == ["conv4"]
    assert cached["scores"]["last"] == pytest.approx(plain["scores"]["last"], abs=1e-6)


def test_weights_that_are_replaced_after_planning_are_refused_and_planned_anew(tiny: Workspace,
                                                                             tmp_path: Path) -> None:
    file = tmp_path / "conv4.safetensors"

    def save(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        state = create("conv4").network.state_dict()
        save_file(state, file)
        return state

    def planned() -> Job:
        study = tiny_sweep.study("margin", seeds=1, set={"epochs": 1, "steps_per_epoch": 1})
        (job,) = gather(study, SweepOptions(tiny, str(file))).jobs
        return job

    save(0)
    first, size = planned(), file.stat().st_size
    worker.run(first.spec, first.context)
    state = save(1)
    assert size == file.stat().st_size
    shutil.rmtree(first.folder)
    with pytest.raises(UserError, match=r"was planned with other weights of conv4 than .*conv4\.safe"):
        worker.run(first.spec, first.context)
    assert not (first.folder / records.RECORD).exists()
    second = planned()
    assert second.spec.weights == hashlib.sha256(file.read_bytes()).hexdigest() != first.spec.weights
    begun = ready.start(second.spec, str(file), 2).backbone.network.state_dict()
    assert all(torch.equal(begun[name], value) for name, value in state.items())
    assert records.read(worker.run(second.spec, second.context).parent)["backbone"]["weights"] == second.spec.weights


def test_a_run_that_is_lost_after_training_writes_neither_weights_nor_a_record(made: Workspace) -> None:
    """Asked twice after the last epoch: before the weights, and before the record."""
    class Lost(Exception):
        pass

    def attempt(seed: int, last: int) -> tuple[int, set[str]]:
        spec, calls = tiny_runs.spec(made, "margin", seed=seed), 0

        def should_stop() -> bool:
            nonlocal calls
            calls += 1
            if calls == last:
                raise Lost
            return False

        with contextlib.suppress(Lost):
            worker.run(spec, tiny_runs.context(made), should_stop=should_stop)
        return calls, {path.name for path in spec.folder(made).iterdir()} & {weights.RUN, records.RECORD}

    whole, files = attempt(20, 0)
    assert files == {weights.RUN, records.RECORD}
    assert whole == 12 + 4 + 2  # steps, epochs
    assert attempt(21, whole - 1) == (whole - 1, set())
    assert attempt(22, whole) == (whole, {weights.RUN})
    assert attempt(22, 0)[1] == files


@pytest.mark.parametrize(("measured", "expected"), [(7.0, 107.0), (0.0, 100.0), (None, None)])
def test_the_energy_of_attempts_before_counts_where_the_last_took_none(measured: float | None,
                                                                       expected: float | None) -> None:
    """As where a run was killed after its last checkpoint: the GPU's counter did not move, which is not unknown."""
    energy = provenance.Energy("cpu")
    energy.joules = measured
    spent = Spent(time.perf_counter(), Occupancy(["cpu"]), energy)
    history = History(earlier={"seconds": 50.0, "part": 25.0, "joules": 100.0})
    found = spent.cost(history, RunContext("glyphs", Path(), Path()))
    assert found["energy_joules"] == expected
    assert found["seconds"] == pytest.approx(50, abs=1)
    assert found["shared"] == pytest.approx(2, abs=0.1)


def test_the_seconds_of_a_resumed_run_are_those_of_all_its_attempts(made: Workspace,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all of it as well as of each phase: training was that of all attempts, the sum that of the last."""
    spec = tiny_runs.spec(made, "margin", "evaluate_every=1", seed=31)
    pause, build = 1.0, ready._build

    def slow(*given: Any) -> Any:
        time.sleep(pause)
        return build(*given)

    monkeypatch.setattr(ready, "_build", slow)
    questions = itertools.count(1)
    with pytest.raises(Interrupted):  # saved after its first epoch, of three steps and one question
        worker.run(spec, tiny_runs.context(made), should_stop=lambda: next(questions) == 4)
    pause = 0.0
    record = records.read(worker.run(spec, tiny_runs.context(made)).parent)
    cost, took = record["cost"], record["provenance"]["phases"]
    assert took["build network"] >= 1
    assert took["all"] == pytest.approx(cost["seconds"], abs=0.1)
    assert took["train"] == pytest.approx(cost["train_seconds"], abs=1e-3)
    assert 1 <= sum(took.values()) - took["all"] <= took["all"]
    *_, last = (json.loads(line) for line in (spec.folder(made) / "log.jsonl").read_text().splitlines())
    assert last["phases"] == pytest.approx(took, abs=1e-3)


@pytest.mark.parametrize("labels", [(0, 0, 0), (0, 1, 2)], ids=["one class", "one image a class"])
def test_held_out_classes_that_cannot_tell_epochs_apart_choose_none(labels: tuple[int, ...]) -> None:
    """Of one class every neighbour is right, and of single images none: the first epoch would always be the best."""
    test = Side(np.arange(8), np.arange(8) // 4, ("jay", "wren"))
    held_out = Side(np.arange(3), np.array(labels), ("crow", "finch", "kite")[:max(labels) + 1])
    measure = evaluation.Evaluation(Task(test, test, held_out), protocol.load("demo"), 0, lambda ids: torch.eye(8)[ids])
    assert set(measure()) == {"test"}
    assert "note" not in measure.thresholds()


def test_a_run_killed_before_its_record_counts_the_parameters_that_were_trained(
        made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)  # every epoch is saved
    spec = tiny_runs.spec(made, "margin", "backbone=conv4", "epochs=2", "warmup=2", seed=7)
    asked = itertools.count(1)

    def killed_after_the_last_epoch() -> bool:
        if next(asked) > 2 * (3 + 1):  # after three steps an epoch and its end
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        worker.run(spec, tiny_runs.context(made), should_stop=killed_after_the_last_epoch)
    assert (spec.folder(made) / "checkpoint-00002").is_dir()
    worker.run(spec, tiny_runs.context(made))
    counts = records.read(spec.folder(made))["method"]
    assert counts["trainable_parameters"] < counts["total_parameters"], "its backbone never left the warm-up"


def test_equal_scores_choose_the_earlier_epoch() -> None:
    history = History([{"epoch": e, "test": {"recall@1": r}} for e, r in ((1, 0.2), (2, 0.6), (3, 0.6), (4, 0.1))])
    scores, chosen = evaluation.choose(history)
    assert chosen == {"last": 4, "best-test": 2}
    assert scores == {"last": {"recall@1": 0.1}, "best-test": {"recall@1": 0.6}}


def test_few_images_of_every_training_class() -> None:
    index: DatasetIndex = datasets.load(tiny_runs.DATASET, None)
    side = Side.of(index, index.train_classes)
    for shots in (1, 5, 100):
        few = ready.subsample(side, index, shots)
        counts = np.bincount(few.labels, minlength=len(side.classes))
        assert counts.tolist() == np.minimum(np.bincount(side.labels), shots).tolist()
        assert (index.labels[few.ids] == index.labels[side.ids[np.searchsorted(side.ids, few.ids)]]).all()
        assert few.classes == side.classes
    assert set(ready.subsample(side, index, 1).ids) <= set(ready.subsample(side, index, 5).ids)


def test_scale_and_flip_are_the_augmentations_unless_given() -> None:
    method: Any = SimpleNamespace(backbone=SimpleNamespace(mean=(0.5,) * 3, std=(0.5,) * 3))
    base = protocol.load("oodml")
    assert ready.transform_of(base, method).scale == Transform().scale
    assert ready.transform_of(replace(base, augmentation="red"), method).crop == "plain"
    changed = ready.transform_of(replace(base, scale=(0.5, 1.0), flip=0.0, interpolation="bicubic"), method)
    assert (changed.scale, changed.flip, changed.interpolation) == ((0.5, 1.0), 0.0, "bicubic")
    big = ready.transform_of(protocol.load("oodml", overrides={"augmentation": "big"}), method)
    assert (big.size, big.resize) == (256, 256)
