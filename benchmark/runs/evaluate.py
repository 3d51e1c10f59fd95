"""Scores embeddings made by anyone's code on a split, and writes a record that is marked as submitted."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import methods
from benchmark import datasets
from benchmark.data import ladders
from benchmark.data.task import Side
from benchmark.metrics import clustering, operating, structure, union
from benchmark.runs import recording, submission
from benchmark.runs.scoring import score
from benchmark.runs.submission import Submission
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records


@dataclass(frozen=True)
class Evaluation:
    """The result: the record's path, its scores, and notes for the author of the embeddings."""

    path: Path
    scores: dict[str, float]
    notes: list[str]
    domains: dict[str, dict[str, float]]
    """Of a union: the scores of each member alone."""
    harmonic: dict[str, float]
    """Of a union: the harmonic mean of its members' scores."""


def evaluate(workspace: Workspace, *, embeddings: Path, dataset: str, split: int | str,
             name: str | None = None, ids: Path | None = None, seed: int = 0, backbone: str = "not stated",
             cluster: bool = False, device: str | None = None) -> Evaluation:
    """Reads, checks and scores one file of embeddings.

    Every test image of the split must be there once. Other images of the dataset may be there too; if all training
    images are, the structure of the training embeddings is recorded as well.
    """
    began = time.perf_counter()
    name = _named(name or embeddings.stem)
    device = ladders.best_device(device)
    index = datasets.load(dataset, workspace.data)
    ladder = ladders.load(workspace, dataset, index)
    rung = ladders.rung(ladder, split)
    sent = submission.read(embeddings, ids)
    sides = {part: Side.of(index, classes) for part, classes in (("train", rung.train), ("test", rung.test))}
    paths = {part: [index.paths[i] for i in side.ids] for part, side in sides.items()}
    table = submission.align(sent, paths["test"], index.paths)
    notes = submission.check(table, paths["test"])
    parts = {"test": torch.from_numpy(table).to(device)}
    there = set(sent.ids)
    covered = len(there.intersection(paths["train"]))
    if covered == len(paths["train"]):
        seen = submission.align(sent, paths["train"], index.paths)
        notes += [f"training images: {note}" for note in submission.check(seen, paths["train"])]
        parts["train"] = torch.from_numpy(seen).to(device)
    elif covered:
        notes.append(f"{covered} of {len(paths['train'])} training images: training structure not measured")
    if idle := len(there.difference(paths["train"], paths["test"])):
        notes.append(f"{idle} of {len(there)} embeddings are of images that split {rung.id} does not use")

    result = score(sides["test"], parts["test"], index.domain_names)
    if not result.queries.counted.any():
        raise UserError(f"split {rung.id}: {sides['test'].unmatched}; nothing can be measured")
    notes += [f"{member}: no query has an image to find, so it has no scores and the union no harmonic mean"
              for member, own in result.domains.items() if not own]
    scores = dict(result.scores)
    if cluster:
        scores |= clustering.nmi_f1(parts["test"], sides["test"].labels, seed)
    identity = _identity(index.hash, rung.hash, name, seed, sent)
    path = recording.write(records.run_folder(workspace.runs, index.name, rung.id, name, seed, identity), result, {
        "source": "submitted", "identity": identity, "dataset": index.name,
        "dataset_hash": index.hash, "seed": seed, "split": recording.split_facts(rung, ladder),
        "method": {"name": name, "family": "submitted", "papers": [], "tags": [], "cite": None, "trains": None,
                   "summary": f"embeddings of {table.shape[1]} dimensions, submitted", "settings": {},
                   "trainable_parameters": None, "total_parameters": None},
        "protocol": {"name": "submitted"}, "backbone": {"name": backbone, "weights": None},
        "scores": {"last": scores},
        "structure": {part: structure.with_spectra(x, sides[part].labels) for part, x in parts.items()},
        "thresholds": operating.of_run(parts["test"], sides["test"].labels),
        "cost": {"seconds": time.perf_counter() - began, "device": provenance.device_name(device)},
    }, embeddings=sent.hash, kmeans=clustering.KMEANS if cluster else None)
    return Evaluation(path, scores, notes, result.domains, union.harmonic(result.domains))


def _named(name: str) -> str:
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise UserError(f"'{name}' is no name for a method: use letters, digits and . + - _ (--name NAME)")
    if name in methods.names():
        raise UserError(f"'{name}' is a method of this suite; give what you submit a name of its own (--name NAME)")
    return name


def _identity(dataset: str, split: str, name: str, seed: int, sent: Submission) -> str:
    facts: dict[str, Any] = {"dataset": dataset, "split": split, "name": name, "seed": seed, "embeddings": sent.hash}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
