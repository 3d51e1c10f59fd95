"""What a sweep has to do and what that will cost, without doing it: `oodml plan` and `--dry-run`."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from benchmark.config.study import Study
from benchmark.data import weights
from benchmark.runs import cost, executors, planned, renumbering, status
from benchmark.runs.job import Job, Resources, SweepOptions
from benchmark.runs.matrix import Matrix, gather
from benchmark.runs.preparing import prepare, refuse_weights, with_weights
from benchmark.runs.progress import Progress
from benchmark.utils import provenance
from benchmark.utils.terminal import Tell
from reports.storage.row import is_gpu
from reports.wording import counted


def show(study: Study, options: SweepOptions, echo: Tell = click.echo, verbose: bool = False) -> None:
    """Print the matrix of a study with its states, and what the rest of it will cost.

    `verbose`: each method of which runs are finished and the code has changed since, however many there are.
    """
    executors.check(options.executor)
    matrix, resources, workspace = gather(study, options), options.resources, options.workspace
    for job in matrix.of("missing"):
        if (other := renumbering.renumbered(job)) is not None:
            matrix.states[job.spec.identity] = status.look(other)
    runs = matrix.planned
    echo(planned.table(runs))
    for line in (*matrix.remarks, *planned.code_changes(runs, "oodml plan", verbose)):
        echo(line)
    again = ["failed"] if options.retry_failed or options.redo else []
    todo = matrix.of("missing", "damaged", *again, *(["done"] if options.redo else []))
    refuse_weights(todo, matrix)
    if not todo:
        if study.after:
            echo(f"after the runs: {study.steps}")
        return
    for line in _described(todo, matrix):
        echo(line)
    if options.calibrate:
        _calibrate(todo, matrix, options, echo)
    workers = _devices(resources)
    here = provenance.device_name(workers[0])
    networks = {cost.network(job.spec.protocol) for job in todo}
    alike = [run for run in cost.measured(workspace.runs, workspace.cache / cost.CALIBRATION / "runs")
             if run.network in networks]
    rates = cost.Rates(alike, here)
    # of a device that is not in this machine one is taken
    devices = 1 if rates.device != here else len(set(workers)) if is_gpu(here) else len(workers)
    estimates = [rates.estimate(job.spec, _images_used(job, matrix), matrix.split(job.spec).test_images)
                 for job in todo]
    for line in cost.summary(estimates, rates, devices, resources.per_gpu or 1):
        echo(line)
    if study.after:
        echo(f"after the runs: {study.steps}; not in this estimate, and may take longer than the runs")
    if resources.seconds is not None:
        room, affordable = resources.seconds * devices, 0
        for estimate in estimates:
            room -= estimate.seconds or 0.0
            affordable += room >= 0
        echo(f"budget: enough for about the first {affordable} of {counted(len(todo), 'run')}")


def _described(todo: list[Job], matrix: Matrix) -> list[str]:
    """Protocol, backbone, its weights and the steps of the runs that are left, one line for each kind."""
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for job in todo:
        spec, protocol = job.spec, job.spec.protocol
        told = weights.described(protocol.backbone, spec.weights, job.context.weights_file)
        kinds.setdefault((protocol.name, protocol.backbone, told), []).append(
            cost.epochs(spec) * cost.steps_an_epoch(protocol, _images_used(job, matrix)))
    lines = []
    for (name, backbone, told), steps in sorted(kinds.items()):
        length = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,}"
        lines.append(f"protocol {name}, backbone {backbone} ({told}): {counted(len(steps), 'run')} of {length} "
                     f"step{'' if max(steps) == 1 else 's'}")
    return lines


def _images_used(job: Job, matrix: Matrix) -> int:
    split = matrix.split(job.spec)
    return cost.images_used(job.spec.protocol, split.train_images, len(split.train))


def _devices(resources: Resources) -> list[str]:
    from benchmark.runs.executors.gpus import devices

    return devices(resources)


def _calibrate(todo: list[Job], matrix: Matrix, options: SweepOptions, echo: Tell) -> None:
    """Four short epochs of every method on every backbone and dataset, one after the other, kept in the cache.

    On a GPU up to 50 steps each, so that what happens once an epoch weighs about as in a whole one. There the first run
    of a network also compiles it for the others, and is followed by a second that measures what they take.
    """
    workspace = options.workspace
    root = (workspace.cache / cost.CALIBRATION).absolute()
    root.mkdir(parents=True, exist_ok=True)
    for name in ("cache", "splits"):
        link = root / name
        if not link.is_symlink():
            link.symlink_to(getattr(workspace, name).absolute(), target_is_directory=True)
    kinds: dict[tuple[Any, ...], Job] = {}
    gpu = _devices(Resources())[0].startswith("cuda")
    longest = 50 if gpu else 10
    for job in todo:
        own = job.spec.protocol
        # long enough to record CUDA graphs; what would be compiled in a long run is compiled in the short one too
        compiled: Any = cost.compile_of(own, _images_used(job, matrix)) if gpu else own.compile
        short = dataclasses.replace(own, epochs=4 + own.warmup, evaluate_every=2, clustering="no",
                                    steps_per_epoch=min(own.steps_per_epoch or longest, longest),
                                    compile=compiled)
        spec = dataclasses.replace(job.spec, protocol=short, seed=0)
        context = dataclasses.replace(job.context, work=root)
        network = (*cost.network(short), short.batch_size, short.compile)
        kinds.setdefault((spec.method, *network, spec.dataset), Job(spec, context))
        if gpu:
            kinds.setdefault((cost.trains(spec), *network), Job(dataclasses.replace(spec, seed=1), context))
    jobs, _ = with_weights([job for job in kinds.values() if not job.done], options.weights_file, echo)
    if not jobs:
        return
    echo(f"measuring a few steps in {counted(len(jobs), 'short run')}")
    prepare(jobs, matrix, workspace)
    progress = Progress({job.spec.identity: cost.work(job.spec, job.label, matrix.split(job.spec)) for job in jobs})
    try:
        executors.get("local").execute(jobs, Resources(jobs=1), progress)
    finally:
        progress.close()
