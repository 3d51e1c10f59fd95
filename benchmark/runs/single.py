"""One training run from Python: `oodml.run`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import methods
from benchmark.config import protocol as protocols
from benchmark.config.study import Part, Study
from benchmark.data.store import open_store
from benchmark.runs import attempt, status
from benchmark.runs.job import Job, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.children import own_children
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError, near
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
        settings: keys of the protocol (`epochs=3`, `backbone="resnet50"`), the method's own (`beta=0.6`) and those of
            the objective that it builds on.

    Returns:
        What `record.json` holds: `record["scores"]["last"]["recall@1"]` is a fraction.
    """
    entry = methods.get(method)
    changes = _changes(entry, settings)
    if seed < 0:
        raise UserError(f"oodml.run: seed={seed}: give a number from 0 on")
    if not re.fullmatch("default|[0-9]+", str(split)):
        raise UserError(f"oodml.run: split={split!r}: it does one run, so give one rung, such as split=1, or "
                        "split='default'; call it once for each rung, or do them all with `oodml run --splits`")
    workspace = Workspace.at(None if work is None else str(work), None if data is None else str(data)).writable()
    part = Part((dataset,), method, protocol, str(split), set=changes)
    command = f"oodml.run({method!r}, {dataset!r}, {split!r})"
    matrix = gather(Study(method, (part,)), SweepOptions(workspace, weights, command=command), seeds=[seed])
    for line in matrix.left_out:
        raise UserError(line)
    for line in matrix.warnings:
        warnings.warn(line, stacklevel=2)
    (job,) = matrix.jobs
    # typed in, as in a notebook
    unknown = entry.declared.__module__.partition(".")[0] != "methods" and not job.spec.code
    if redo or unknown:
        status.keep_before(job.folder)
    device = best_device(device)
    with own_children():
        open_store(next(iter(matrix.indexes.values())), workspace.cache, shorter=job.spec.protocol.decoded_side)
        context = dataclasses.replace(job.context, device="cuda:0" if device == "cuda" else device)
        result = _attempt(dataclasses.replace(job, context=context))
    if result.kind not in ("done", "exists"):
        raise UserError(f"{job.label} has no result: {result.text or result.kind}; see {job.folder}")
    return records.read(job.folder)


def _attempt(job: Job) -> attempt.AttemptResult:
    """One attempt in the caller's own process, which lives on where the run is lost."""
    lost = threading.Event()

    def should_stop() -> bool:
        if lost.is_set():  # to be saved it would have to be ours
            raise UserError(attempt.TAKEN)
        return False

    return attempt.attempt_alone(job, should_stop=should_stop, on_lost=lost.set)


def _changes(entry: methods.Entry, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by what they change, as after `--set`; told before a ladder is asked for where there is no such one.

    >>> _changes(methods.get("s2sd:margin"), {"epochs": 3, "temperature": 0.5, "beta": 0.6})
    {'epochs': 3, 's2sd:margin.temperature': 0.5, 'margin.beta': 0.6}
    """
    places = {key: f"{part.name}.{key}" for part in (entry.base, entry) if part for key in vars(part.settings())}
    places |= {key: key for key in protocols.FIELDS}
    for key in settings:
        if key not in places:
            meant = near(key, [*places, *list(inspect.signature(run).parameters)[:-1]])
            if (own := key.rpartition(".")[2]) in places:  # as it is written after --set
                meant = f" (write {own}={settings[key]!r}, without the method)"
            raise methods.MethodError(f"oodml.run: neither a protocol nor method {entry.name} has a setting '{key}'"
                                      f"{meant}; `oodml protocols show oodml` and `oodml methods show {entry.name}` "
                                      "list all")
    return {places[key]: value for key, value in settings.items()}
