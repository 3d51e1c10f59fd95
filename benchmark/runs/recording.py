"""The record of a result, in one form whoever made the embeddings: a run, an ensemble, a submission."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import methods
from benchmark.config import overrides
from benchmark.config.spec import RunSpec
from benchmark.data.task import Task
from benchmark.utils import provenance
from benchmark.utils.files import whole
from methods import backbones
from methods.registry import code as source_code
from reports import ReportError, records
from reports.storage import queries
from splits.manifest import Ladder, Split

if TYPE_CHECKING:  # it brings torch along, and a sweep that finds finished runs needs none
    from benchmark.runs.scoring import Score
    from methods import Method


def write(folder: Path, result: Score, facts: dict[str, Any], *, command: str = "", **origin: Any) -> Path:
    """Writes `queries.npz` and then the record, which is the done mark: `facts` over what all records have alike.

    Args:
        folder: of the run; made if it is not there.
        result: scores and query outcomes.
        facts: keys of the record that all records do not have alike.
        command: what the user typed, where this process has another command line.
        origin: further keys of the record's provenance.

    Returns:
        The path of the record.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with whole(folder / queries.NAME) as part:
        result.queries.save(part)
    counted = result.queries.counted
    return records.write(folder, {
        "schema": records.SCHEMA, "source": "run", "scores": {"last": result.scores}, "chosen_epochs": {}, "curve": [],
        "domains": result.domains, "queries": {"count": int(counted.sum()), "left_out": int((~counted).sum())},
        "provenance": {**provenance.facts(command), "date": provenance.now(), **origin, **_overrides(facts),
                       **_code(facts)}, **facts})


def _overrides(facts: dict[str, Any]) -> dict[str, Any]:
    """What differs from the file of the protocol, where that file is known."""
    method = facts["method"]
    changed = overrides.of_run(facts["protocol"], method["name"], facts["dataset"], method["settings"])
    return {} if changed is None else {"overrides": changed}


def _code(facts: dict[str, Any]) -> dict[str, str]:
    """Of one of the suite's own methods the hash of its files, by which a later change of them is told."""
    code = source_code.source_hash(facts["method"]["name"])
    return {"code": code} if code else {}


def split_facts(split: Split, ladder: Ladder, task: Task | None = None) -> dict[str, Any]:
    """What a record says of its split; of a union also the training images of each member."""
    facts: dict[str, Any] = {"id": split.id, "kind": split.kind, "iteration": split.iteration, "frd": split.frd,
            "frd_class_means_released": split.frd_class_means_released, "hash": split.hash,
            "train_classes": len(split.train), "test_classes": len(split.test),
            "train_images": split.train_images, "test_images": split.test_images,
            "ladder": [[rung.id, rung.frd] for rung in ladder.splits if rung.frd is not None]}
    if split.frd_equal_n is not None:
        facts["frd_equal_n"] = split.frd_equal_n
    if "pinned" in ladder.made:
        facts["pinned"] = ladder.made["pinned"]
    if task is not None and task.train.domains is not None:
        counts = np.bincount(task.train.domains, minlength=len(task.domain_names))
        facts["parts"] = dict(zip(task.domain_names, counts.tolist()))
    return facts


def method_facts(spec: RunSpec, method: Method) -> dict[str, Any]:
    """What a record says of its method, its settings as they were trained with."""
    entry = methods.get(spec.method)
    return {"name": spec.method, "family": entry.family, "papers": list(entry.papers), "tags": list(entry.tags),
            "summary": entry.summary, "cite": entry.cite, "trains": entry.trains,
            "settings": entry.as_trained({**spec.settings, **spec.base_settings}),
            "trainable_parameters": sum(p.numel() for p in method.parameters() if p.requires_grad),
            "total_parameters": sum(p.numel() for p in method.parameters())}


def backbone_facts(spec: RunSpec, method: Method) -> dict[str, Any]:
    """What a record says of its backbone; where it is one of ours also what tables of networks say of it."""
    name, own = spec.protocol.backbone, method.backbone
    facts = {"facts": {**own.facts(), "resolution": spec.protocol.size}} if isinstance(own, backbones.Backbone) else {}
    return {"name": name, "weights": spec.weights, **facts}


def refresh(folder: Path, ladder: Ladder) -> bool:
    """Update the split in a record to the ladder as it is now, if that has its classes.

    Returns:
        Whether its number or distances changed; a ladder that was given a name since is the same one.
    """
    record = records.read(folder)
    before = {key: value for key, value in record["split"].items() if key != "pinned"}
    now = next((split for split in ladder.splits if split.hash == before["hash"]), None)
    facts = record["split"] if now is None else {**before, **split_facts(now, ladder)}
    if facts == record["split"]:
        return False
    records.write(folder, {**record, "split": {**facts, "since": provenance.now()}})
    return {**facts, "pinned": None} != {**record["split"], "pinned": None}


def on_other_files(dataset: Path, contents: str) -> list[str]:
    """When each of the finished runs below a dataset's folder that were on other files than these came to the board."""
    found = []
    for path in dataset.glob(f"*/*/*/{records.RECORD}"):
        if contents.encode() not in path.read_bytes():  # most are on these: nothing of them need be understood
            with contextlib.suppress(ReportError):
                record = records.read(path.parent)
                if record.get("contents") and record["source"] == "run":
                    found.append(_since(record))
    return found


def show_again(folder: Path, after: str) -> bool:
    """Note in a record that it counts from now on, where it has not since `after`; whether it changed."""
    record = records.read(folder)
    if _since(record) > after:
        return False
    records.write(folder, {**record, "split": {**record["split"], "since": provenance.now()}})
    return True


def _since(record: dict[str, Any]) -> str:
    return str(record["split"].get("since") or record["provenance"].get("date") or "")
