"""A sweep: from the words of `oodml run` to finished records."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmark.config.study import Study
from benchmark.data import weights
from benchmark.data.store import open_store
from benchmark.runs import cost, executors, recording, status
from benchmark.runs.job import Job, Outcome, Resources
from benchmark.runs.matrix import Matrix, Places, gather
from benchmark.runs.progress import Progress
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace

Say = Callable[[str], None]


def show(matrix: Matrix, places: Places, resources: Resources, *, calibrate: bool = False, retry_failed: bool = False,
         say: Say = click.echo) -> None:
    """The matrix with its states, and what the rest of it will cost."""
    cells = [status.Cell(job.spec, job.folder, matrix.states[job.spec.identity], "") for job in matrix.jobs]
    say(status.table(cells))
    for line in matrix.skipped:
        say(line)
    todo = matrix.of("missing", "damaged", *(["failed"] if retry_failed else []))
    if not todo:
        return
    workspace = places.workspace
    if calibrate:
        _calibrate(todo, matrix, places, say)
    found = _devices(resources)
    here = provenance.device_name(found[0])
    networks = {cost.network(job.spec.protocol) for job in todo}
    alike = [run for run in cost.measured(workspace.runs, workspace.cache / cost.CALIBRATION / "runs")
             if run.network in networks]
    rates = cost.Rates(alike, here)
    # of a device that is not in this machine one is taken
    devices = 1 if rates.device != here else len(set(found)) if cost.is_gpu(here) else len(found)
    estimates = [rates.estimate(job.spec, _learnt(job, matrix), matrix.split(job.spec).test_images) for job in todo]
    for line in cost.summary(estimates, rates, devices, resources.per_gpu):
        say(line)
    if resources.seconds is not None:
        room, fitting_cells = resources.seconds * devices, 0
        for estimate in estimates:
            room -= estimate.seconds or 0.0
            fitting_cells += room >= 0
        say(f"budget: about the first {fitting_cells} of {len(todo)} cells fit")


def _learnt(job: Job, matrix: Matrix) -> int:
    split = matrix.split(job.spec)
    return cost.learnt(job.spec.protocol, split.train_images, len(split.train))


def _devices(resources: Resources) -> list[str]:
    from benchmark.runs.executors.local import devices

    return devices(resources)


def _calibrate(todo: list[Job], matrix: Matrix, places: Places, say: Say) -> None:
    """Four short epochs of every method on every backbone and dataset, one after the other, kept in the cache.

    On a GPU up to 50 steps each, so that what happens once an epoch weighs about as in a whole one. There the first run
    of a network also compiles it for the others, and is followed by a second that tells what they take.
    """
    workspace = places.workspace
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
        compiled: Any = cost.compile_of(own, _learnt(job, matrix)) if gpu else own.compile
        short = dataclasses.replace(own, epochs=4 + own.warmup, evaluate_every=2, clustering="no",
                                    steps_per_epoch=min(own.steps_per_epoch or longest, longest),
                                    compile=compiled)
        spec = dataclasses.replace(job.spec, protocol=short, seed=0)
        context = dataclasses.replace(job.context, work=root)
        network = (*cost.network(short), short.batch_size, short.compile)
        kinds.setdefault((spec.method, *network, spec.dataset), Job(spec, context))
        if gpu:
            kinds.setdefault((cost.trains(spec), *network), Job(dataclasses.replace(spec, seed=1), context))
    jobs, _ = _with_weights([job for job in kinds.values() if not job.done], places, say)
    if not jobs:
        return
    say(f"measuring a few steps in {len(jobs)} short runs")
    _prepare(jobs, matrix, workspace)
    progress = Progress(len(jobs), sum(job.spec.protocol.epochs for job in jobs))
    try:
        executors.get("local").execute(jobs, Resources(jobs=1), progress)
    finally:
        progress.close()


def run(study: Study, places: Places, *, executor: str = "local", resources: Resources | None = None,
        retry_failed: bool = False, command: str = "", say: Say = click.echo) -> Outcome:
    """Plan the cells of a study, do those that are not done, say how it went."""
    resources = resources or Resources()
    engine = executors.get(executor)
    workspace = places.workspace
    matrix = gather(study, places, breadth=resources.seconds is not None, command=command)
    _refuse_foreign(matrix)
    counts = Counter(matrix.states[job.spec.identity].kind for job in matrix.jobs)
    kinds = [*status.KINDS, *(["damaged"] if counts["damaged"] else [])]
    say(f"{study.name}: {len(matrix.jobs)} cells, " + ", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    for line in matrix.skipped:
        say(line)
    for job in matrix.of("damaged"):
        kept = status.set_aside(job.folder)
        if kept is not None:
            say(f"{job.spec.label()}: {matrix.states[job.spec.identity].text}; kept as {kept.name}, done again")
    _refresh(matrix, say)
    status.save_plan(workspace, matrix.jobs, command)
    todo = matrix.of("missing", "damaged", "running", *(["failed"] if retry_failed else []))
    if counts["failed"] and not retry_failed:
        say(f"{counts['failed']} cells failed earlier and are left as they are; --retry-failed tries them again, "
            "`oodml status` tells why they failed")
    todo, lacking = _with_weights(todo, places, say)
    outcome = Outcome()
    if todo:
        _prepare(todo, matrix, workspace)
        progress = Progress(len(todo), sum(job.spec.protocol.epochs for job in todo))
        try:
            outcome = engine.execute(todo, resources, progress)
        finally:
            progress.close()
            sys.stdout.flush()
    outcome.lacking = lacking
    outcome.jobs = matrix.jobs
    return outcome


def _refresh(matrix: Matrix, say: Say) -> None:
    """Bring finished records to the ladder as it is now: their rung has the same classes, the others may have moved."""
    stale = [job for job in matrix.of("done") if recording.refresh(job.folder, matrix.ladders[job.spec.dataset])]
    if stale:
        say(f"{len(stale)} finished runs on a rung of an older ladder, which the new one has too, were brought to it")


def _refuse_foreign(matrix: Matrix) -> None:
    foreign = matrix.of("foreign")
    if foreign:
        state = matrix.states[foreign[0].spec.identity]
        raise UserError(f"{len(foreign)} of these cells have records of another version of oodml and stay untouched: "
                        f"{state.text}; or give another folder with --work DIR")


def _with_weights(todo: list[Job], places: Places, say: Say) -> tuple[list[Job], int]:
    """The cells whose backbone has weights, fetched now so that workers need not, and how many have none.

    One line tells of each backbone without.
    """
    wanting = set()
    for name in sorted({job.spec.protocol.backbone for job in todo if job.spec.weights.startswith("timm:")}):
        try:
            weights.pretrained(name, places.weights_file)
        except UserError as error:
            wanting.add(name)
            say(f"{name}: its cells are left out: {error}")
    ready = [job for job in todo if job.spec.protocol.backbone not in wanting]
    return ready, len(todo) - len(ready)


def _prepare(jobs: list[Job], matrix: Matrix, workspace: Workspace) -> None:
    """Decode images once, before many workers ask for them."""
    for name in dict.fromkeys(job.context.dataset for job in jobs):
        open_store(matrix.indexes[name], Path(workspace.cache))
