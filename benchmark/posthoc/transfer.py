"""Transfer to other datasets: a trained network measured on the default test sets of others (ooDML, supplement C).

Beside the record of each run on a default split lies `cross.json`:

    {"schema": 1, "run": IDENTITY, "dataset": TRAINED_ON, "split": ID, "method": NAME, "seed": SEED,
     "targets": {DATASET: {"test": HASH, "images": COUNT, "scores": {METRIC: FRACTION},
                           "floor": {"backbone": NAME, "scores": {METRIC: FRACTION}} or null}}}

`test` stands for the files and classes of the target's test set, `floor` is what a frozen backbone reaches on it: the
run's own backbone where that was run, else the one that was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark import datasets, ladders
from benchmark.data import contents
from benchmark.data.task import Side, Task
from benchmark.datasets import DatasetIndex
from benchmark.posthoc.finished import Finished, on_default
from benchmark.runs.job import Job
from benchmark.runs.scoring import score
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports import records
from reports.analysis.transfer import NAME, SCHEMA


@dataclass(frozen=True)
class Target:
    """The default test set of a dataset: its name, images, pixels, and what stands for its content."""

    name: str
    side: Side
    index: DatasetIndex
    hash: str
    domain_names: tuple[str, ...] = ()
    """The members of a union."""

    @classmethod
    def of(cls, dataset: str, workspace: Workspace) -> Target:
        index = datasets.load(dataset, workspace.data)
        task = Task.of(index, ladders.load(workspace, dataset, index, default_only=True).default)
        side = task.test
        within = contents.contents(index, workspace.cache)
        facts = [index.hash, *([within] if within else []), *side.classes]
        content = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return cls(index.name, side, index, content, task.domain_names)


def run(workspace: Workspace, jobs: Iterable[Job], *, device: str | None = None,
        tell: Tell = lambda line: None) -> list[Path]:
    """Measure every trained network of these finished runs on the other datasets among them; the paths of the files."""
    jobs = list(jobs)
    device = best_device(device)
    targets = [Target.of(name, workspace) for name in dict.fromkeys(job.context.dataset for job in jobs)]
    runs = on_default((Finished(job.folder, job.spec) for job in jobs), workspace)
    frozen = {(one.spec.dataset, one.spec.protocol.backbone): records.read(one.folder)["scores"]["last"]
              for one in runs if one.spec.method == "frozen"}
    written = []
    trained = [one for one in runs if one.has_weights]
    for number, one in enumerate(trained, 1):
        measured = _read(one.folder / NAME)
        for target in targets:
            if target.name == one.spec.dataset:
                continue
            before = measured.get(target.name, {})
            scores = before["scores"] if before.get("test") == target.hash else score(
                target.side, one.embed(target.side, target.index, workspace, device), target.domain_names).scores
            baseline = _baseline(frozen, target.name, one.spec.protocol.backbone)
            measured[target.name] = {"test": target.hash, "images": len(target.side), "scores": scores,
                                     "floor": baseline}
            beside = f"frozen {100 * baseline['scores']['recall@1']:.2f} %; " if baseline else ""
            if before.get("test") != target.hash:
                tell(f"{one.spec.label()} on {target.name}: recall@1 {100 * scores['recall@1']:.2f} % "
                     f"({beside}run {number} of {len(trained)})")
        one.write_beside(NAME, SCHEMA, targets=measured)
        written.append(one.folder / NAME)
    return written


def _baseline(frozen: dict[tuple[str, str], dict[str, float]], dataset: str, backbone: str) -> dict[str, Any] | None:
    """The frozen backbone's scores on a dataset, of this backbone rather than of another.

    >>> _baseline({("cub", "resnet50"): {"recall@1": 0.4}}, "cub", "conv4")
    {'backbone': 'resnet50', 'scores': {'recall@1': 0.4}}
    """
    here = [name for of, name in frozen if of == dataset]
    chosen = backbone if backbone in here else min(here, default=None)
    return None if chosen is None else {"backbone": chosen, "scores": frozen[dataset, chosen]}


def _read(path: Path) -> dict[str, Any]:
    """The targets that were measured already; a file of a newer version is left alone."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, targets = int(content["schema"]), dict(content["targets"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if version > SCHEMA:
        raise UserError(f"{path} is of schema {version}, this version of oodml writes {SCHEMA}: update oodml, or move "
                        "the file away")
    return targets
