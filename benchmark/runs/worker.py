"""One run spec in, one record out: what a worker does for a run, from images to measures."""

from __future__ import annotations

import copy
import dataclasses
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

import methods
from benchmark import datasets, ladders
from benchmark.config.plan import split_of
from benchmark.config.protocol import Protocol
from benchmark.config.spec import RunSpec
from benchmark.data import features, weights
from benchmark.data.augment import Transform
from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, open_store
from benchmark.data.task import Side, Task
from benchmark.datasets import DatasetIndex
from benchmark.metrics.clustering import KMEANS
from benchmark.runs import multi_gpu, recording
from benchmark.runs.evaluation import Evaluation, choose, curve
from benchmark.runs.job import RunContext
from benchmark.runs.occupancy import Occupancy
from benchmark.runs.scoring import Score
from benchmark.runs.spent import Spent
from benchmark.training import checkpoint, precision, train
from benchmark.training.distributed import World
from benchmark.training.meter import write_line
from benchmark.training.optimising import start_head
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.files import write_json
from benchmark.utils.phases import Phases
from benchmark.utils.workspace import ENVIRONMENT, SPEC, Workspace
from methods import Method
from methods.backbones import Backbone
from methods.samplers import batches
from reports import records
from splits.episodes import training_subset
from splits.frechet import frechet_distance
from splits.manifest import Ladder, Split


def run(spec: RunSpec, context: RunContext, *, should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[dict[str, Any]], None] = lambda event: None) -> Path:
    """Do one run and write its record; a finished run is left as it is.

    Args:
        spec: what the result depends on.
        context: folders and devices.
        should_stop: asked after every training step and before every batch of frozen features; `train.Interrupted` is
            raised once the run is saved. Where it raises itself, nothing more is written: it is asked before
            checkpoint, weights and record, too.
        report: called with every event of the training.

    Returns:
        The path of the record.
    """
    folder = spec.folder(context.workspace)
    if (folder / records.RECORD).exists():
        checkpoint.remove(folder)  # killed after the record was written
        return folder / records.RECORD
    folder.mkdir(parents=True, exist_ok=True)
    (folder / records.FAILURE).unlink(missing_ok=True)  # what an earlier attempt met
    write_json(folder / SPEC, spec.facts())
    write_json(folder / ENVIRONMENT, {**provenance.facts(context.command), "dataset": context.dataset,
                                     "weights_file": context.weights_file})
    devices = context.devices or (context.device,)
    spent = Spent(time.perf_counter(), Occupancy(devices), provenance.Energy(*devices))
    with spent.occupancy, multi_gpu.joined(spec, context) as world:
        ready = _prepare(spec, context, world, spent.phases)
        kept = _kept_features(ready, should_stop)
        evaluation = _evaluation(ready, kept)
        history = _train(ready, evaluation, spent, should_stop, report)
        should_stop()  # what is measured is recorded all the same, unless it raises
        _keep_weights(ready)
        measures = _measure(ready, evaluation, history)
        took = spent.took(history)
        should_stop()
        cost = {**spent.cost(history, context), "precision": precision.of(spec.protocol, context.device),
                **features.cost(kept)}
        return _record(ready, evaluation.score, {**measures, "cost": cost}, took)


def assist(spec: RunSpec, context: RunContext, world: World) -> None:
    """The part of a further process in a run on several devices: to train on its share of every batch."""
    ready = _prepare(spec, context, world, Phases())
    train.train(ready.method, train.TrainContext(
        ready.training, ready.loader, ready.sampler, spec.protocol, seed=spec.seed, device=context.device,
        folder=ready.folder, evaluate=dict, world=world))


@dataclass(frozen=True)
class _Ready:
    """What a run has before it begins to train."""

    spec: RunSpec
    context: RunContext
    index: DatasetIndex
    store: ImageStore
    ladder: Ladder
    split: Split
    task: Task
    training: Side
    method: Method
    trains: bool
    """Whether the method has anything to train: frozen networks have not."""
    loader: Loader
    sampler: batches.BatchSampler
    world: World
    phases: Phases

    @property
    def folder(self) -> Path:
        return self.spec.folder(self.context.workspace)


def _prepare(spec: RunSpec, context: RunContext, world: World, phases: Phases) -> _Ready:
    protocol = spec.protocol
    with phases("device"):
        if context.device.startswith("cuda"):
            # streams and events are those of the current device
            torch.cuda.set_device(torch.device(context.device).index or 0)
            torch.zeros(1, device=context.device)
    with phases("open dataset"):
        manifest = ladders.path_of(context.workspace, spec.dataset)
        index, store, ladder = _opened(context.dataset, context.work, context.data, spec.dataset_hash, spec.contents,
                                       protocol.decoded_side, manifest.stat().st_mtime_ns if manifest.is_file() else 0)
    split = split_of(ladder, spec)
    task = Task.of(index, split, hold_out=protocol.validation)
    training = subsample(task.train, index, protocol.train_shots) if protocol.train_shots else task.train
    with phases("build network"):
        method = _build(spec, context, len(task.train.classes))
    with phases("place images"):
        loader = Loader(store, transform_of(protocol, method), context.device)
    if context.device.startswith("cuda"):
        gc.collect()  # recorded graphs of the run before refer to themselves
        torch.cuda.reset_peak_memory_stats(context.device)
    sampler = batches.create(protocol.batches or methods.get(spec.method).batches, torch.from_numpy(training.labels),
                             protocol.batch_size, distance=frechet_distance)
    trains = bool(method.groups(protocol.lr, protocol.weight_decay))
    return _Ready(spec, context, index, store, ladder, split, task, training, method, trains, loader, sampler, world,
                  phases)


def _kept_features(ready: _Ready, should_stop: Callable[[], bool]) -> np.ndarray | None:
    """Features of every image: where nothing is trained, those that the ladder was built from serve every run.

    None where there are none to keep: the network is trained, or its weights are drawn by the run's seed.
    """
    spec, context = ready.spec, ready.context
    if ready.trains or spec.weights == weights.SCRATCH:
        return None

    def stop_if_asked() -> None:
        if should_stop():
            raise train.Interrupted("stopped while images were embedded; those done are kept")

    return features.extract(
        ready.index, ready.store, ready.method.backbone, name=spec.protocol.backbone, weights_hash=spec.weights,
        transform=ready.loader.transform, folder=context.workspace.cache, device=context.device, progress=False,
        between=stop_if_asked)


def _evaluation(ready: _Ready, kept: np.ndarray | None) -> Evaluation:
    """What measures the network as it is when asked; on kept features where there are some."""
    method, protocol, device = ready.method, ready.spec.protocol, ready.context.device

    def embed(ids: np.ndarray) -> torch.Tensor:
        if kept is None:
            return train.embed(method, ready.loader, ids, protocol, device)
        return normalize(method.project(torch.from_numpy(kept[ids])), dim=-1).to(device)

    return Evaluation(ready.task, protocol, ready.spec.seed, embed)


def _train(ready: _Ready, evaluation: Evaluation, spent: Spent, should_stop: Callable[[], bool],
           report: Callable[[dict[str, Any]], None]) -> train.History:
    """Trains to the last epoch; the history ends with its measures, and `evaluation` has that epoch's embeddings."""
    spec, device = ready.spec, ready.context.device
    with spent.energy:
        history = train.train(ready.method, train.TrainContext(
            ready.training, ready.loader, ready.sampler, spec.protocol, seed=spec.seed, device=device,
            folder=ready.folder, evaluate=evaluation, should_stop=should_stop, report=report, phases=ready.phases,
            world=ready.world, spent=spent.so_far))
    if not evaluation.called:  # killed between the last checkpoint and the record
        evaluation()
    if spec.protocol.clustering == "last":
        with ready.phases("cluster"):
            history.epochs[-1]["test"] |= evaluation.clustering()
    return history


def _keep_weights(ready: _Ready) -> None:
    """What was trained, for the commands that work with finished runs."""
    if ready.trains:
        with ready.phases("save weights"):
            checkpoint.save_weights(ready.folder / weights.RUN, ready.method.state_dict(), ready.spec.protocol.backbone)


def _measure(ready: _Ready, evaluation: Evaluation, history: train.History) -> dict[str, Any]:
    """What the record says of the embeddings, by its keys."""
    scores, chosen = choose(history)
    with ready.phases("structure"):
        structure = evaluation.structure(ready.training)
    with ready.phases("thresholds"):
        thresholds = evaluation.thresholds()
    return {"scores": scores, "chosen_epochs": chosen, "curve": curve(history), "structure": structure,
            "thresholds": thresholds}


def _record(ready: _Ready, score: Score, found: dict[str, Any], took: dict[str, float]) -> Path:
    """Writes the record with what was found, the run's last file; its checkpoint is needed no more."""
    spec, context, protocol, folder = ready.spec, ready.context, ready.spec.protocol, ready.folder
    write_line(folder, {"event": "end", "chosen_epochs": found["chosen_epochs"], "phases": took})
    path = recording.write(folder, score, {
        "identity": spec.identity, "dataset": spec.dataset, "dataset_hash": spec.dataset_hash,
        **({"contents": ready.store.contents} if ready.store.contents else {}),
        "split": recording.split_facts(ready.split, ready.ladder, ready.task),
        "method": recording.method_facts(spec, ready.method), "protocol": protocol.identity(), "seed": spec.seed,
        "backbone": recording.backbone_facts(spec, ready.method), **found,
    }, command=context.command, kmeans=None if protocol.clustering == "no" else KMEANS,
        phases={name: round(seconds, 3) for name, seconds in took.items()},
        **({"threads": torch.get_num_threads()} if context.device == "cpu" else {}))  # the last bits follow them
    checkpoint.remove(folder)
    return path


def transform_of(protocol: Protocol, method: Method) -> Transform:
    """How images reach this network: the augmentation as the protocol changes it, its weights' pixel statistics."""
    return protocol.transform(mean=method.backbone.mean, std=method.backbone.std)


def subsample(side: Side, index: DatasetIndex, shots: int) -> Side:
    """The side with so many images of each class, as in the few-shot experiment of UML; its classes stay the same."""
    kept = np.isin(side.ids, training_subset(index.paths, index.labels, index.classes, side.classes, shots).images)
    return dataclasses.replace(side, ids=side.ids[kept], labels=side.labels[kept],
                               roles=None if side.roles is None else side.roles[kept],
                               domains=None if side.domains is None else side.domains[kept])


@lru_cache(maxsize=16)  # runs of a sweep that is limited in time go round its datasets
def _opened(dataset: str, work: Path, data: Path, dataset_hash: str, contents: str, side: int,
            modified: int) -> tuple[DatasetIndex, ImageStore, Ladder]:
    """Index, pixels and ladder of a dataset, opened once in each process for files and a manifest that do not change.

    A UserError, which is not kept, where the files are not those of the run.
    """
    workspace = Workspace(work, data)
    index = datasets.load(dataset, data)
    store = open_store(index, workspace.cache, shorter=side, progress=False)
    if index.hash != dataset_hash or (contents and store.contents != contents):
        raise UserError(f"the files of {index.name} were changed after this run was planned; the same command plans it "
                        "anew")
    return index, store, ladders.load(workspace, dataset, index)


def _build(spec: RunSpec, context: RunContext, classes: int) -> Method:
    for plugin in context.plugins:
        methods.load_plugin(plugin)
    if methods.code_of(spec.method) != spec.code:
        raise UserError(f"the source of {spec.method} was changed after this run was planned; the same command plans "
                        "it anew")
    return start(spec, context.weights_file, classes)


def start(spec: RunSpec, weights_file: str | None, classes: int) -> Method:
    """The method of a run before its first step: backbone and weights, and what the seed draws on top of them.

    A UserError where the weights are not those of the run.
    """
    name, frozen_norm = spec.protocol.backbone, spec.protocol.frozen_norm
    found = weights.identify(name, weights_file)
    if found != spec.weights:
        raise UserError(f"{spec.label()} was planned with other weights of {name} than there are here now "
                        f"({weights_file or found}); give those, or run it again: the same command plans it anew")
    torch.manual_seed(spec.seed)
    backbone = (weights.pretrained(name, weights_file, frozen_norm=frozen_norm) if found == weights.SCRATCH else
                copy.deepcopy(_pretrained(name, weights_file, found, frozen_norm)))
    torch.manual_seed(spec.seed)  # what is built on it does not depend on whether it was made just now
    method = spec.build(backbone, classes)
    start_head(method, spec.protocol)
    return method


@lru_cache(maxsize=1)
def _pretrained(name: str, file: str | None, identity: str, frozen_norm: bool | str) -> Backbone:
    """A pretrained backbone, kept for the next run of this process; `identity` says which weights the file holds."""
    return weights.pretrained(name, file, frozen_norm=frozen_norm)
