"""A sweep: from a study and the options of `oodml run` to finished records."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from benchmark.config.study import Study
from benchmark.data import weights
from benchmark.data.store import open_store
from benchmark.runs import cost, executors, planned, recording, renumbering, status
from benchmark.runs.executors import server
from benchmark.runs.job import Echo, Job, Resources, SweepOptions, SweepResult
from benchmark.runs.matrix import Matrix, gather
from benchmark.runs.progress import Progress
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.storage.row import is_gpu
from reports.wording import counted

FEW = 3
"""Backbones without weights that are told of one by one."""


def show(study: Study, options: SweepOptions, echo: Echo = click.echo) -> None:
    """Print the matrix of a study with its states, and what the rest of it will cost."""
    executors.check(options.executor)
    matrix, resources, workspace = gather(study, options), options.resources, options.workspace
    for job in matrix.of("missing"):
        if (other := renumbering.renumbered(job)) is not None:
            matrix.states[job.spec.identity] = status.look(other)
    runs = [planned.PlannedRun(job.spec, job.folder, matrix.states[job.spec.identity], "") for job in matrix.jobs]
    echo(planned.table(runs))
    for line in (*_remarks(matrix), *planned.code_changes(runs)):
        echo(line)
    again = ["failed"] if options.retry_failed or options.redo else []
    todo = matrix.of("missing", "damaged", *again, *(["done"] if options.redo else []))
    _refuse_weights(todo, matrix)
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


def _remarks(matrix: Matrix) -> list[str]:
    return [*(f"warning: {line}" for line in matrix.warnings), *matrix.left_out]


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


def _calibrate(todo: list[Job], matrix: Matrix, options: SweepOptions, echo: Echo) -> None:
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
    jobs, _ = _with_weights([job for job in kinds.values() if not job.done], options.weights_file, echo)
    if not jobs:
        return
    echo(f"measuring a few steps in {counted(len(jobs), 'short run')}")
    _prepare(jobs, matrix, workspace)
    progress = Progress(len(jobs), sum(cost.epochs(job.spec) for job in jobs))
    try:
        executors.get("local").execute(jobs, Resources(jobs=1), progress)
    finally:
        progress.close()


def run(study: Study, options: SweepOptions, echo: Echo = click.echo) -> SweepResult:
    """Plan the runs of a study and do those that are not done.

    Args:
        study: what to run.
        options: where, with what, and whether failed runs are tried again.
        echo: prints a line for the user.

    Returns:
        What was done, what failed, and why the sweep ended early if it did.
    """
    engine = executors.get(options.executor)
    workspace = options.workspace
    matrix = gather(study, options)
    _refuse_incompatible(matrix)
    for job in matrix.of("missing"):
        if renumbering.take_over(job):
            matrix.states[job.spec.identity] = status.look(job.folder)
    again = ["failed"] if options.retry_failed else []
    _refuse_weights(matrix.jobs if options.redo else matrix.of("missing", "damaged", "running", *again), matrix)
    counts = Counter(matrix.states[job.spec.identity].kind for job in matrix.jobs)
    kinds = [*status.KINDS, *(["damaged"] if counts["damaged"] else [])]
    echo(f"{study.name}: {counted(len(matrix.jobs), 'run')}, " + ", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    runs = [planned.PlannedRun(job.spec, job.folder, matrix.states[job.spec.identity], "") for job in matrix.jobs]
    for line in (*_remarks(matrix), *(() if options.redo else planned.code_changes(runs))):
        echo(line)
    if options.redo:
        for job in matrix.of("done", "failed"):
            status.keep_before(job.folder)
            matrix.states[job.spec.identity] = status.look(job.folder)
    for job in matrix.of("damaged"):
        kept = status.set_aside(job.folder)
        if kept is not None:
            echo(f"{job.spec.label()}: {matrix.states[job.spec.identity].text}; kept as {kept.name}, done again")
    _refresh(matrix, echo)
    _tell_other_files(matrix, workspace, echo)
    planned.save_plan(workspace, matrix.jobs, options.command, options.study)
    todo = matrix.of("missing", "damaged", "running", *again)
    if (failed := matrix.of("failed")) and not options.retry_failed:
        echo(f"{counted(len(failed), 'run that failed earlier is', 'runs that failed earlier are')} left alone; "
             "--retry-failed tries again, `oodml status` shows why")
    if todo and options.executor == "local":
        server.warm()  # it imports torch while weights and images are made ready, and GPUs are counted
    todo, lacking = _with_weights(todo, options.weights_file, echo)
    result = SweepResult()
    if todo:
        _prepare(todo, matrix, workspace)
        progress = Progress(len(todo), sum(cost.epochs(job.spec) for job in todo))
        try:
            result = engine.execute(todo, options.resources, progress)
        finally:
            progress.close()
            sys.stdout.flush()
    result.lacking = lacking
    result.jobs = matrix.jobs
    return result


def _refresh(matrix: Matrix, echo: Echo) -> None:
    """Update the split in finished records to the ladder as it is now: same classes, but distances may have changed."""
    stale = [job for job in matrix.of("done") if recording.refresh(job.folder, matrix.ladders[job.spec.dataset])]
    if stale:
        echo(f"{counted(len(stale), 'finished run is', 'finished runs are')} of an older ladder, and the new one has "
             "the same split: the records now name the new ladder")


def _tell_other_files(matrix: Matrix, workspace: Workspace, echo: Echo) -> None:
    """Reports show the runs on one copy of a dataset, that of the newest: those done on this one count from now on."""
    for dataset in {job.spec.dataset: None for job in matrix.jobs if job.spec.contents}:
        here = [job for job in matrix.jobs if job.spec.dataset == dataset]
        others = recording.on_other_files(workspace.runs / dataset, here[0].spec.contents)
        if not others:
            continue
        done = [job for job in matrix.of("done") if job.spec.dataset == dataset]
        shown = [job for job in done if recording.show_again(job.folder, max(others))]
        if shown or len(done) < len(here):
            echo(f"{counted(len(others), 'finished run')} of {dataset} had other files than lie there now: reports "
                 "set them aside and show those on these; the same command beside the other files turns that round")


def _refuse_incompatible(matrix: Matrix) -> None:
    incompatible = matrix.of("incompatible")
    if incompatible:
        state = matrix.states[incompatible[0].spec.identity]
        raise UserError(f"{len(incompatible)} of these runs have records of another version of oodml and are kept: "
                        f"{state.text}; or give another folder with --work DIR")


def _refuse_weights(jobs: list[Job], matrix: Matrix) -> None:
    """Refuse a file of weights that does not fit its backbone: once, before each of these runs would.

    A finished run shows that its weights fit; loading them takes seconds, with torch.
    """
    fit = {(job.spec.protocol.backbone, job.spec.weights) for job in matrix.of("done")}
    given = {(job.spec.protocol.backbone, job.context.weights_file) for job in jobs if weights.is_users(
        job.spec.weights, job.context.weights_file) and (job.spec.protocol.backbone, job.spec.weights) not in fit}
    for name, file in sorted(given, key=str):
        weights.pretrained(name, file)


def _with_weights(todo: list[Job], weights_file: str | None, echo: Echo) -> tuple[list[Job], int]:
    """The runs whose backbone has weights, fetched now so that workers need not, and how many have none.

    One line names each backbone without; of many the first says why.
    """
    without: dict[str, str] = {}
    for name in sorted({job.spec.protocol.backbone for job in todo if job.spec.weights.startswith("timm:")}):
        try:
            weights.pretrained(name, weights_file)
        except UserError as error:
            without[name] = f"{name}: its runs are left out: {error}"
    for line in list(without.values())[:1 if len(without) > FEW else FEW]:
        echo(line)
    if len(without) > FEW:
        echo(f"{len(without) - 1} others have no weights either: {', '.join(list(without)[1:])}; put TAG.safetensors "
             "of each into a folder and set OODML_WEIGHTS to it")
    ready = [job for job in todo if job.spec.protocol.backbone not in without]
    return ready, len(todo) - len(ready)


def _prepare(jobs: list[Job], matrix: Matrix, workspace: Workspace) -> None:
    """Decode images once, before many workers ask for them."""
    for name, side in dict.fromkeys((job.context.dataset, job.spec.protocol.decoded_side) for job in jobs):
        open_store(matrix.indexes[name], Path(workspace.cache), shorter=side)
