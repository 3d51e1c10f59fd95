"""The dataset-specific models of a method on a union: each on its own dataset, their mean over all (UML, table 2 a).

Each member of a union has a finished run of the method on its default split. The accuracy on a dataset, and so the
harmonic mean, is that of the dataset's own model; only the unified accuracy is of the ensemble, the mean of all models'
embeddings (UML, section 5.1). The record stands among the union's runs as `ensemble:METHOD`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark import datasets, ladders
from benchmark.config import overrides
from benchmark.config.plan import changes
from benchmark.data import contents
from benchmark.data.task import Side, Task
from benchmark.datasets import DatasetIndex
from benchmark.posthoc import finished
from benchmark.posthoc.finished import Finished
from benchmark.runs import recording
from benchmark.utils import provenance
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports import records
from reports.wording import counted
from splits.manifest import Ladder

if TYPE_CHECKING:  # torch takes seconds: what is refused is refused before
    from torch import Tensor

NAME = "ensemble:{}"
"""How an ensemble of a method's dataset-specific models is called."""
OWN = "own model"
"""What `provenance.domains` of a record says: each dataset was scored by its own model. In records without it, which
versions before wrote, the ensemble was scored on every dataset."""
LENGTH = frozenset(f"protocol.{key}" for key in ("epochs", "steps_per_epoch", "evaluate_every", "warmup", "milestones"))
"""Keys that say for how many epochs, of how many steps, a run is trained; datasets of other sizes may differ here."""


def find(workspace: Workspace, union: str, chosen: str, seeds: int | None = None) -> list[Finished]:
    """The finished runs of these methods on the members of a union, of the first seeds or of all."""
    runs = [run for name in _union(workspace, union).domain_names for run in finished.find(workspace, name, chosen)]
    return [run for run in runs if seeds is None or run.spec.seed < seeds]


def run(workspace: Workspace, union: str, runs: Iterable[Finished], *, device: str | None = None,
        tell: Tell = lambda line: None) -> list[Path]:
    """One record for each method and seed whose dataset-specific models are all among these runs; made once."""
    index = _union(workspace, union)
    written = []
    for (method, seed, *_), family in _families(runs, index.domain_names, workspace).items():
        name = f"{NAME.format(method)} seed {seed}"
        whole, left = _ensembles(family, index.domain_names)
        if left:
            tell(f"{name}: {_why_none(method, family, left, index.domain_names)}")
        for members in whole:
            ladder = ladders.load(workspace, union, index)  # not before: it may be made here
            path = _made(members, index, ladder, workspace, best_device(device))
            recall = records.read(path)["scores"]["last"]["recall@1"]
            tell(f"{name}: recall@1 {100 * recall:.2f} % over {index.name}")
            written.append(path)
    return written


def _why_none(method: str, family: list[Finished], left: list[Finished], names: tuple[str, ...]) -> str:
    """Why runs of one kind are in no ensemble: a dataset has none, or they were trained for other lengths."""
    missing = [name for name in names if name not in {one.spec.dataset for one in family}]
    if missing:
        named = missing[0] if missing[0] in datasets.names() else "folder:PATH"
        return (f"no finished run on the default split of {', '.join(missing)}; `oodml run --methods {method} "
                f"--dataset {named} --splits default` makes one")
    lengths = ", ".join(f"{one.spec.dataset} {counted(_steps(one), 'step')}" for one in left)
    return (f"not joined, as models of an ensemble are trained by the same settings or for equal steps: {lengths}; "
            "`oodml run --set epochs=N` changes them")


def _union(workspace: Workspace, name: str) -> DatasetIndex:
    index = datasets.load(name, workspace.data)
    if index.domains is None:
        raise UserError(f"{name} is not a union of datasets: an ensemble of dataset-specific models needs one")
    return index


def _families(runs: Iterable[Finished], names: tuple[str, ...],
              workspace: Workspace) -> dict[tuple[Any, ...], list[Finished]]:
    """Runs that differ in their dataset and in how long they were trained alone, the newest last."""
    families: dict[tuple[Any, ...], list[Finished]] = {}
    fitting = finished.on_default((one for one in runs if one.spec.dataset in names), workspace)
    for one in sorted(fitting, key=lambda one: (one.folder / records.RECORD).stat().st_mtime_ns):
        # a protocol may differ between datasets by itself, so what was changed must be alike, not all that it says
        kind = (one.spec.method, one.spec.seed, one.spec.protocol.name, one.spec.protocol.backbone, one.spec.weights,
                one.spec.protocol.dim, one.spec.code, _changed(one, length=False))
        families.setdefault(kind, []).append(one)
    return families


def _ensembles(family: list[Finished], names: tuple[str, ...]) -> tuple[list[list[Finished]], list[Finished]]:
    """The models of each ensemble in the order of the union's members, and the runs that are in none.

    Those of the same settings belong together, as UML trains each dataset for as many epochs; of the others those that
    were trained for equal steps. Of several on one dataset the newest counts.
    """
    whole: list[list[Finished]] = []
    for length in (lambda one: _changed(one, length=True), _schedule):
        groups: dict[Any, dict[str, Finished]] = {}
        for one in family:
            groups.setdefault(length(one), {})[one.spec.dataset] = one
        complete = [members for members in groups.values() if len(members) == len(names)]
        whole += [[members[name] for name in names] for members in complete]
        # an older run of the same kind is in none, but is not left over either
        family = [one for one in family if all(length(one) != length(members[names[0]]) for members in complete)]
    return whole, family


def _changed(one: Finished, length: bool) -> str:
    """What was changed of the protocol and the method of a run: in how long it trains, or in all else."""
    return json.dumps({key: value for key, value in changes(one.spec).items() if (key in LENGTH) == length},
                      sort_keys=True)


def _steps(one: Finished) -> int:
    return int(records.read(one.folder)["cost"].get("steps") or 0)


def _schedule(one: Finished) -> tuple[float, ...]:
    """How long a run was trained, and when its rates changed, in steps."""
    protocol, steps = one.spec.protocol, _steps(one)
    each = steps / max(protocol.epochs, 1)
    return (steps, protocol.warmup * each, *(epoch * each for epoch in protocol.milestones))


def _made(runs: list[Finished], index: DatasetIndex, ladder: Ladder, workspace: Workspace, device: str) -> Path:
    """The record of one ensemble, whose unified accuracy is of phi and accuracy on dataset m of phi_m:

        phi(x) = normalise(1/M sum_m phi_m(x))   over the M members of the union

    Of a record that was made with the ensemble on every dataset the scores are computed anew.
    """
    split, spec = ladder.default, runs[0].spec
    parts = [index.hash, split.hash, *(one.spec.identity for one in runs)]
    identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    name = NAME.format(spec.method)
    folder = records.run_folder(workspace.runs, index.name, split.id, name, spec.seed, identity)
    if (folder / records.RECORD).exists() and not _outdated(records.read(folder), runs):
        return folder / records.RECORD
    from benchmark.metrics import operating_points, structure
    from benchmark.metrics.union import ensemble
    from benchmark.runs.scoring import score

    began = time.perf_counter()
    task = Task.of(index, split)
    embeddings = [one.embed(task.test, index, workspace, device) for one in runs]
    content = contents.contents(index, workspace.cache)
    mean = ensemble(embeddings)
    result = score(task.test, mean, task.domain_names, own=_own(embeddings, task.test))
    return recording.write(folder, result, {
        "identity": identity, "dataset": index.name, "dataset_hash": index.hash,
        **({"contents": content} if content else {}),
        "split": recording.split_facts(split, ladder), "method": _method_facts(name, runs),
        "protocol": spec.protocol.identity(), "backbone": {"name": spec.protocol.backbone, "weights": spec.weights},
        "seed": spec.seed, "structure": {"test": structure.with_spectra(mean, task.test.labels)},
        "thresholds": operating_points.of_run(mean, task.test.labels),
        "cost": {"seconds": time.perf_counter() - began, "device": provenance.device_name(device)},
    }, overrides=overrides.of_run(spec.protocol.identity(), spec.method, spec.dataset,
                                  {**spec.settings, **spec.base_settings}),
        members={one.spec.dataset: one.spec.identity for one in runs}, domains=OWN,
        epochs={one.spec.dataset: one.spec.protocol.epochs for one in runs})


def _outdated(made: dict[str, Any], runs: list[Finished]) -> bool:
    """Whether an ensemble was scored by its mean on every dataset, or before one of its members was done anew."""
    members = (records.read(one.folder)["provenance"] for one in runs)
    return made["provenance"].get("domains") != OWN or any(made["provenance"]["date"] < one["date"] for one in members)


def _own(embeddings: list[Tensor], side: Side) -> Tensor:
    """Each image's embedding by the model of its own dataset; models are in the order of the union's members."""
    import torch

    own = torch.empty_like(embeddings[0])
    for number, embedded in enumerate(embeddings):
        inside = torch.from_numpy(side.domains == number).to(own.device)
        own[inside] = embedded[inside]
    return own


def _method_facts(name: str, runs: list[Finished]) -> dict[str, Any]:
    members = [records.read(one.folder)["method"] for one in runs]
    first = members[0]
    return {**first, "name": name, "tags": [*first["tags"], "ensemble"], "trains": f"{len(runs)} models: "
            f"{first['trains']}", "summary": f"{len(runs)} networks of {first['name']}, one trained on "
            "each dataset of the union and scored on it; over the union the mean of their embeddings.",
            **{key: sum(one[key] for one in members) for key in ("trainable_parameters", "total_parameters")}}
