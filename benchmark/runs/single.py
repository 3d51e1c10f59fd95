"""One training run from Python: `oodml.run`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import methods
from benchmark import datasets
from benchmark.config import protocol as protocols
from benchmark.config.study import Part, Study
from benchmark.data.store import open_store
from benchmark.runs import attempt, status
from benchmark.runs.job import SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.children import own_children
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records


def run(method: str, dataset: str, split: int | str = "default", *, seed: int = 0, protocol: str | None = None,
        weights: str | None = None, work: Path | str | None = None, data: Path | str | None = None,
        device: str | None = None, redo: bool = False, **settings: Any) -> dict[str, Any]:
    """Train one method on one split and return its record; a run that is done already is not done again.

    Args:
        method: as in `oodml methods`, or one that was registered in this process.
        dataset: as in `oodml datasets`; for a rung its ladder must be there.
        split: number of a rung, or `default`.
        seed: of the run.
        protocol: how to train; by default the dataset's own.
        weights: of the backbone, as after `--weights`.
        work: the working folder; OODML_WORK or `work`, if none is given.
        data: the folder of datasets; OODML_DATA or `WORK/data`, if none is given.
        device: cpu, cuda or cuda:N; by default the GPU where there is one.
        redo: run it anew even if it is done; the old record is kept aside.
        settings: keys of the protocol (`epochs=3`, `backbone="resnet50"`) and the method's own (`beta=0.6`).

    Returns:
        What `record.json` holds: `record["scores"]["last"]["recall@1"]` is a fraction.
    """
    entry = methods.get(method)
    changes = {key if key in protocols.FIELDS else f"{method}.{key}": value for key, value in settings.items()}
    workspace = Workspace.at(None if work is None else str(work), None if data is None else str(data)).writable()
    part = Part((datasets.source(dataset, workspace.splits),), method, protocol, str(split), seed + 1, set=changes)
    command = f"oodml.run({method!r}, {dataset!r}, {split!r})"
    matrix = gather(Study(method, (part,)), SweepOptions(workspace, weights, command=command))
    for line in matrix.skipped:
        raise UserError(line)
    (job,) = [job for job in matrix.jobs if job.spec.seed == seed]
    # typed in, as in a notebook
    unknown = entry.declared.__module__.partition(".")[0] != "methods" and not job.spec.code
    if redo or unknown:
        status.keep_before(job.folder)
    device = best_device(device)
    with own_children():
        open_store(next(iter(matrix.indexes.values())), workspace.cache)
        context = dataclasses.replace(job.context, device="cuda:0" if device == "cuda" else device)
        result = attempt.attempt_alone(dataclasses.replace(job, context=context))
    if result.kind not in ("done", "exists"):
        raise UserError(f"{job.spec.label()} has no result: {result.text or result.kind}; see {job.folder}")
    return records.read(job.folder)
