"""One run in two processes: the same losses and weights as in one, stopped and resumed as well."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import methods
from benchmark.config.spec import RunSpec
from benchmark.data import weights
from benchmark.runs import worker
from benchmark.runs.executors import gpus
from benchmark.runs.job import Resources
from benchmark.training import distributed, micro_batch
from benchmark.training.distributed import World
from benchmark.training.train import Interrupted
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods.backbones import create
from tests import tiny_runs

CHANGES = ("backbone=efficientnet_lite0", "epochs=2", "steps_per_epoch=2", "evaluate_every=1", "batch_size=8",
           "size=32", "resize=32", "lr=1e-4", "frozen_norm=statistics")


def cell(made: Workspace, *changes: str, method: str = "margin") -> tuple[RunSpec, worker.RunContext]:
    return tiny_runs.spec(made, method, *CHANGES, *changes), tiny_runs.context(made)


def finished(folder: Path) -> tuple[list[float], dict[str, torch.Tensor], dict[str, Any]]:
    """Losses of the epochs, weights at the end, and the record."""
    record = json.loads((folder / "record.json").read_text())
    return [entry["loss"] for entry in record["curve"]], load_file(folder / weights.RUN), record


def test_two_processes_learn_what_one_learns_also_after_a_stop(tiny: Workspace) -> None:
    spec, context = cell(tiny)
    folder = spec.folder(tiny)
    worker.run(spec, context)
    losses, alone, _ = finished(folder)
    shutil.rmtree(folder)
    steps = iter(range(1, 100))
    both = replace(context, devices=("cpu", "cpu"))
    with pytest.raises(Interrupted):
        worker.run(spec, both, should_stop=lambda: next(steps) > 2)
    assert not (folder / "record.json").exists()
    worker.run(spec, both)
    shared, found, record = finished(folder)
    assert shared == pytest.approx(losses, rel=1e-5)
    assert record["cost"]["devices"] == 2
    # Adam divides by the gradient's size: rounding moves a weight whose gradient is nearly zero by up to lr a step
    for name, value in alone.items():
        torch.testing.assert_close(found[name].float(), value.float(), rtol=1e-3, atol=2e-4, msg=name)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [1, 2]


def test_dropout_differs_between_steps_processes_and_networks_and_leaves_other_draws_alone(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed._Gather, "apply", lambda own, world: own)
    images, drop = torch.ones(1, 64), torch.nn.Dropout(0.5)

    def epoch(rank: int, number: int = 0, seed: int = 3) -> tuple[list[torch.Tensor], torch.Tensor]:
        forward = distributed.Gathered(drop, World(rank, 2), number)
        torch.manual_seed(99)
        forward(images)  # a trial before the epoch
        torch.manual_seed(seed)
        masks = [forward(images) for _ in range(3)]
        return masks, torch.rand(4)

    masks, drawn = epoch(0)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4)), "as in one process"
    again, _ = epoch(0)
    assert all(map(torch.equal, masks, again)), "an epoch that is done again is the same"
    every = [*masks, *epoch(1)[0], *epoch(0, number=1)[0], *epoch(0, seed=40)[0]]
    assert len({tuple(mask.flatten().tolist()) for mask in every}) == len(every)


def test_what_cannot_be_shared_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    method = methods.get("margin").build(create("conv4"), 4, 8).train()
    with pytest.raises(UserError, match=r"batch norms of conv4 .* so that --gpus-per-run 2 would change them"):
        micro_batch.check(method, 0, World(0, 2))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 5)
    assert gpus.devices(Resources(gpus_per_run=2)) == ["cuda:0", "cuda:2"]
    assert gpus.group("cuda:2", 2) == ("cuda:2", "cuda:3")
    with pytest.raises(UserError, match="--gpus-per-run 6: this machine has 5 GPUs"):
        gpus.devices(Resources(gpus_per_run=6))
    with pytest.raises(UserError, match="exclude each other"):
        gpus.devices(Resources(gpus_per_run=2, per_gpu=2))
    assert gpus.devices(Resources(per_gpu=0)).count("cuda:4") == gpus.MOST
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="--gpus-per-run 2: this machine has no GPUs"):
        gpus.devices(Resources(gpus_per_run=2))
