"""Dataset-specific models as one: the mean of their embeddings, searched over the union (UML, table 2 a).

Each member of a union has a finished run of the method on its default split. Every model embeds every test image of
the union; the mean is scored like one model, and its record stands among the union's runs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import methods
from benchmark import datasets, finished, images, ladders, outcomes, provenance, structure, train
from benchmark.errors import UserError
from benchmark.finished import Finished
from benchmark.loader import Loader
from benchmark.scoring import score
from benchmark.task import Task
from benchmark.universal import ensemble
from benchmark.worker import split_facts, transform_of
from benchmark.workspace import Workspace
from reports import records
from splits.manifest import Ladder

NAME = "specific-{}"
"""How an ensemble of a method's dataset-specific models is called."""


def members(workspace: Workspace, union: tuple[str, ...], method: str, seed: int) -> list[Finished]:
    """The finished run of a method on each member's default split, all by one protocol and backbone."""
    found, missing = [], []
    for name in union:
        split = ladders.load(workspace, name).default.id
        runs = list(finished.find(workspace, name, method, [split], seed))
        found += runs[-1:]
        missing += [] if runs else [name]
    if missing:
        raise UserError(f"no finished run of {method}, seed {seed}, on the default split of {', '.join(missing)}: "
                        f"`oodml run --methods {method} --dataset {missing[0]}` and so on")
    kinds = {(run.spec.protocol["name"], run.spec.protocol["backbone"], run.spec.protocol["dim"]) for run in found}
    if len(kinds) > 1:
        raise UserError(f"the runs of {method} differ in protocol, backbone or width, {sorted(kinds)}: run all members "
                        "in one way")
    return found


def run(workspace: Workspace, *, dataset: str, method: str, seed: int = 0, device: str | None = None,
        tell: Callable[[str], None] = lambda line: None) -> Path:
    """The record of the ensemble of a method's dataset-specific models on a union; made once."""
    index = datasets.load(dataset, workspace.data)
    if index.domains is None:
        raise UserError(f"{dataset} is not a union of datasets: an ensemble of dataset-specific models needs one")
    runs = members(workspace, index.domain_names, method, seed)
    ladder = ladders.load(workspace, dataset, index)
    parts = [ladder.default.hash, *(one.spec.identity for one in runs)]
    identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    name = NAME.format(method)
    folder = (workspace.runs / index.name / str(ladder.default.id) / name.replace(":", "@") / f"s{seed}-{identity[:8]}")
    if (folder / records.RECORD).exists():
        return folder / records.RECORD
    began = time.perf_counter()
    device = device or ladders.best_device(torch)
    task = Task.of(index, ladder.default)
    store = images.prepare(index, workspace.cache, progress=False)
    found, sizes = [], []
    for one in runs:
        embedded, size = _embed(one, workspace, task, store, device)
        found.append(embedded)
        sizes.append(size)
        tell(f"{one.spec.label()}: embedded {len(embedded):,} test images of {index.name}")
    mean = ensemble(found)
    result = score(task.test, mean, task.domain_names)
    folder.mkdir(parents=True, exist_ok=True)
    outcomes.save(folder / "queries.npz", result.outcomes)
    return records.write(folder, {
        "schema": records.SCHEMA, "source": "run", "identity": identity, "dataset": index.name,
        "dataset_hash": index.hash, "split": split_facts(ladder.default, ladder),
        "method": _method_facts(name, method, runs, sizes), "protocol": runs[0].spec.protocol,
        "backbone": {"name": runs[0].spec.protocol["backbone"], "weights": runs[0].spec.weights}, "seed": seed,
        "scores": {"last": result.scores}, "chosen_epochs": {}, "domains": result.domains,
        "structure": {"test": structure.structure(mean, task.test.labels)}, "curve": [],
        "queries": {"count": int(result.outcomes.counted.sum()), "left_out": int((~result.outcomes.counted).sum())},
        "cost": {"seconds": time.perf_counter() - began, "device": provenance.device_name(device)},
        "provenance": {**provenance.facts(), "date": provenance.now()},
    })


def _embed(one: Finished, workspace: Workspace, task: Task, store: images.ImageStore,
           device: str) -> tuple[torch.Tensor, tuple[int, int]]:
    """What a member's model makes of all test images, and its size: parameters that trained, and all."""
    own: Ladder = ladders.load(workspace, one.spec.dataset)
    held = set(own.default.validation) if one.protocol.validation else set()
    method = one.rebuild(len([name for name in own.default.train if name not in held]))
    loader = Loader(store, transform_of(one.protocol, method), device)
    embedded = train.embed(method, loader, task.test.ids, one.protocol, device)
    facts = json.loads((one.folder / records.RECORD).read_text())["method"]
    return embedded, (facts["trainable_parameters"], facts["total_parameters"])


def _method_facts(name: str, method: str, runs: list[Finished], sizes: list[tuple[int, int]]) -> dict[str, Any]:
    entry = methods.get(method)
    return {"name": name, "family": entry.family, "papers": list(entry.papers), "tags": [*entry.tags, "ensemble"],
            "summary": f"The mean of the embeddings of {len(runs)} models, one trained on each dataset by {method}.",
            "cite": entry.cite, "settings": {**runs[0].spec.settings, **runs[0].spec.base_settings},
            "trains": f"{len(runs)} models: {entry.trains}", "trainable_parameters": sum(size[0] for size in sizes),
            "total_parameters": sum(size[1] for size in sizes)}
