"""What a run has before it begins to train: its images, its split, its network and its batches."""

from __future__ import annotations

import copy
import dataclasses
import gc
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

import methods
from benchmark import datasets, ladders
from benchmark.config.plan import split_of
from benchmark.config.protocol import Protocol
from benchmark.config.spec import RunSpec
from benchmark.data import weights
from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, open_store
from benchmark.data.task import Side, Task
from benchmark.data.transform import Transform
from benchmark.datasets import DatasetIndex
from benchmark.runs.job import RunContext
from benchmark.training.distributed import World
from benchmark.training.optimising import start_head
from benchmark.utils.errors import UserError
from benchmark.utils.phases import Phases
from benchmark.utils.workspace import Workspace
from methods import Method
from methods.backbones import Backbone
from methods.samplers import batches
from splits.episodes import training_subset
from splits.frechet import frechet_distance
from splits.manifest import Ladder, Split


@dataclass(frozen=True)
class Ready:
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


def prepare(spec: RunSpec, context: RunContext, world: World, phases: Phases) -> Ready:
    """Opens what the run needs and builds its network; a UserError where something is not as it was planned."""
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
    return Ready(spec, context, index, store, ladder, split, task, training, method, trains, loader, sampler, world,
                  phases)


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
