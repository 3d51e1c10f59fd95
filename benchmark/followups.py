"""What a study computes from its finished runs: few-shot adaptation, transfer to other datasets, ensembles."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

import methods
from benchmark import datasets, fewshot, images, ladders, outcomes, provenance, structure, train, universal
from benchmark.errors import UserError
from benchmark.executors import Job
from benchmark.finished import Finished
from benchmark.journal import write_json
from benchmark.loader import Loader
from benchmark.plan import split_of
from benchmark.scoring import score
from benchmark.task import Side, Task
from benchmark.worker import WEIGHTS, split_facts, transform_of
from benchmark.workspace import Workspace
from methods import Method
from reports import records

CROSS = "cross.json"
"""Beside the record of a run: its scores on the test sets of other datasets."""
Say = Callable[[str], None]


def follow(step: dict[str, Any], jobs: list[Job], workspace: Workspace, say: Say = print) -> None:
    """Do one step of a study on those of its runs that are finished; what was done already is kept."""
    done = [job for job in jobs if job.done]
    if step["step"] == "fewshot":
        for name in step["datasets"]:
            here = [job.spec for job in done if job.context.dataset == name]
            if here:
                fewshot.run(workspace, dataset=name, chosen=",".join(dict.fromkeys(spec.method for spec in here)),
                            splits=sorted({spec.split for spec in here}), shots=tuple(step["shots"]), tell=say)
    elif step["step"] == "cross":
        cross(done, workspace, say)
    else:
        ensemble(done, step["union"], workspace, say)


def cross(jobs: list[Job], workspace: Workspace, say: Say = print) -> list[Path]:
    """Scores of every trained network on the default test sets of the other datasets among these runs.

    Beside each score stands the floor: what the frozen backbone of the same name reaches on that test set, where such
    a run is among them (ooDML, supplement C).
    """
    names = list(dict.fromkeys(job.context.dataset for job in jobs))
    floors = {(job.spec.dataset, job.spec.protocol["backbone"]): records.read(job.folder)["scores"]["last"]
              for job in jobs if job.spec.method == "frozen" and _on_default(job, workspace)}
    written = []
    for job in jobs:
        path = job.folder / CROSS
        if not (job.folder / WEIGHTS).is_file() or not _on_default(job, workspace):
            continue
        targets = _read_targets(path)
        for name in names:
            side, store, index_name, key = _target(name, workspace)
            if index_name == job.spec.dataset or targets.get(index_name, {}).get("test") == key:
                continue
            found = score(side, _embeddings(job, workspace, side, store)).scores
            targets[index_name] = {"test": key, "scores": found,
                                   "floor": floors.get((index_name, job.spec.protocol["backbone"]))}
            floor = targets[index_name]["floor"]
            beside = f" (frozen {floor['recall@1']:.4f})" if floor else ""
            say(f"{job.spec.label()} on {index_name}: recall@1 {found['recall@1']:.4f}{beside}")
        write_json(path, {"schema": 1, "identity": job.spec.identity, "targets": targets})
        written.append(path)
    return written


def ensemble(jobs: list[Job], union: str, workspace: Workspace, say: Say = print) -> list[Path]:
    """One record for each method and seed whose dataset-specific networks are all there: their mean embedding.

        phi(x) = normalise(1/M sum_m phi_m(x))   over the M members of the union
    """
    index = datasets.load(union, workspace.data)
    ladder = ladders.load(workspace, union, index)
    split = ladder.default
    side = Task.of(index, split).test
    store = images.prepare(index, workspace.cache, progress=False)
    groups: dict[tuple[Any, ...], dict[str, Job]] = {}
    for job in jobs:
        if job.spec.dataset in index.domain_names and (job.folder / WEIGHTS).is_file() and _on_default(job, workspace):
            place = (job.spec.method, job.spec.seed, job.spec.protocol["name"], job.spec.protocol["backbone"])
            groups.setdefault(place, {})[job.spec.dataset] = job
    written = []
    for (method, seed, *_), members in groups.items():
        missing = [name for name in index.domain_names if name not in members]
        if missing:
            say(f"ensemble of {method}, seed {seed}: no finished run on {', '.join(missing)}")
            continue
        chosen = [members[name] for name in index.domain_names]
        identity = hashlib.sha256(json.dumps([index.hash, split.hash, *(job.spec.identity for job in chosen)]).encode())
        folder = (workspace.runs / index.name / str(split.id) / f"ensemble@{method.replace(':', '@')}"
                  / f"s{seed}-{identity.hexdigest()[:8]}")
        if not (folder / records.RECORD).exists():
            began = time.perf_counter()
            mean = universal.ensemble([_embeddings(job, workspace, side, store) for job in chosen])
            found = score(side, mean, index.domain_names)
            folder.mkdir(parents=True, exist_ok=True)
            outcomes.save(folder / "queries.npz", found.outcomes)
            counted = found.outcomes.counted
            facts = [records.read(job.folder)["method"] for job in chosen]
            spec = chosen[0].spec
            records.write(folder, {
                "schema": records.SCHEMA, "source": "run", "identity": identity.hexdigest(), "dataset": index.name,
                "dataset_hash": index.hash, "seed": seed, "split": split_facts(split, ladder),
                "method": {**facts[0], "name": f"ensemble:{method}", "family": "ensemble", "tags": ["ensemble"],
                           "summary": f"Mean embedding of {len(chosen)} dataset-specific networks of {method}.",
                           "trainable_parameters": sum(one["trainable_parameters"] for one in facts),
                           "total_parameters": sum(one["total_parameters"] for one in facts)},
                "protocol": spec.protocol, "backbone": {"name": spec.protocol["backbone"], "weights": spec.weights},
                "scores": {"last": found.scores}, "chosen_epochs": {}, "domains": found.domains,
                "structure": {"test": structure.structure(mean, side.labels)}, "curve": [],
                "queries": {"count": int(counted.sum()), "left_out": int((~counted).sum())},
                "cost": {"seconds": time.perf_counter() - began, "device": provenance.device_name(_device())},
                "provenance": {**provenance.facts(), "date": provenance.now(),
                               "members": {job.spec.dataset: job.spec.identity for job in chosen}},
            })
            say(f"ensemble of {method}, seed {seed}: recall@1 {found.scores['recall@1']:.4f} over the union")
        written.append(folder / records.RECORD)
    return written


def _on_default(job: Job, workspace: Workspace) -> bool:
    return ladders.load(workspace, job.context.dataset).default.hash == job.spec.split_hash


def _read_targets(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found["targets"] if found["schema"] == 1 else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@cache
def _target(name: str, workspace: Workspace) -> tuple[Side, images.ImageStore, str, str]:
    """Test side, pixels, name and a hash of a dataset's default test set."""
    index = datasets.load(name, workspace.data)
    side = Task.of(index, ladders.load(workspace, name, index).default).test
    key = hashlib.sha256(json.dumps([index.hash, *side.classes]).encode()).hexdigest()
    return side, images.prepare(index, workspace.cache, progress=False), index.name, key


def _embeddings(job: Job, workspace: Workspace, side: Side, store: images.ImageStore) -> torch.Tensor:
    """The embeddings that a finished run's network gives to any images."""
    method, device = _network(job, workspace), _device()
    one = Finished(job.folder, job.spec)
    loader = Loader(store, transform_of(one.protocol, method), device)
    return train.embed(method, loader, side.ids, one.protocol, device)


def _network(job: Job, workspace: Workspace) -> Method:
    for plugin in job.context.plugins:
        methods.load_plugin(plugin)
    ladder = ladders.load(workspace, job.context.dataset)
    split = split_of(ladder, job.spec)
    held = set(split.validation) if job.spec.protocol.get("validation") else set()
    if not split.train:
        raise UserError(f"split {split.id} of {ladder.dataset} has no training class")
    return Finished(job.folder, job.spec).rebuild(len(set(split.train) - held)).to(_device())


def _device() -> str:
    return ladders.best_device(torch)
