"""One run spec in, one record out: what a worker does for a run, from images to measures."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmark.config.spec import RunSpec
from benchmark.data import features, weights
from benchmark.metrics.clustering import KMEANS
from benchmark.runs import multi_gpu, recording
from benchmark.runs.evaluation import Evaluation, choose, curve
from benchmark.runs.job import RunContext
from benchmark.runs.occupancy import Occupancy
from benchmark.runs.ready import Ready, prepare
from benchmark.runs.scoring import Score
from benchmark.runs.spent import Spent
from benchmark.training import checkpoint, precision, train
from benchmark.training.distributed import World
from benchmark.training.meter import write_line
from benchmark.utils import provenance
from benchmark.utils.files import write_json
from benchmark.utils.phases import Phases
from benchmark.utils.workspace import ENVIRONMENT, SPEC
from reports import records


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
        ready = prepare(spec, context, world, spent.phases)
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
    ready = prepare(spec, context, world, Phases())
    train.train(ready.method, train.TrainContext(
        ready.training, ready.loader, ready.sampler, spec.protocol, seed=spec.seed, device=context.device,
        folder=ready.folder, evaluate=dict, world=world))


def _kept_features(ready: Ready, should_stop: Callable[[], bool]) -> np.ndarray | None:
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


def _evaluation(ready: Ready, kept: np.ndarray | None) -> Evaluation:
    """What measures the network as it is when asked; on kept features where there are some."""
    method, protocol, device = ready.method, ready.spec.protocol, ready.context.device

    def embed(ids: np.ndarray) -> torch.Tensor:
        if kept is None:
            return train.embed(method, ready.loader, ids, protocol, device)
        return normalize(method.project(torch.from_numpy(kept[ids])), dim=-1).to(device)

    return Evaluation(ready.task, protocol, ready.spec.seed, embed)


def _train(ready: Ready, evaluation: Evaluation, spent: Spent, should_stop: Callable[[], bool],
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


def _keep_weights(ready: Ready) -> None:
    """What was trained, for the commands that work with finished runs."""
    if ready.trains:
        with ready.phases("save weights"):
            checkpoint.save_weights(ready.folder / weights.RUN, ready.method.state_dict(), ready.spec.protocol.backbone)


def _measure(ready: Ready, evaluation: Evaluation, history: train.History) -> dict[str, Any]:
    """What the record says of the embeddings, by its keys."""
    scores, chosen = choose(history)
    with ready.phases("structure"):
        structure = evaluation.structure(ready.training)
    with ready.phases("thresholds"):
        thresholds = evaluation.thresholds()
    return {"scores": scores, "chosen_epochs": chosen, "curve": curve(history), "structure": structure,
            "thresholds": thresholds}


def _record(ready: Ready, score: Score, found: dict[str, Any], took: dict[str, float]) -> Path:
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
