"""A sweep: from a study and the options of `oodml run` to finished records."""

from __future__ import annotations

import sys
from collections import Counter

import click

from benchmark.config.study import Study
from benchmark.runs import cost, executors, planned, recording, renumbering, status
from benchmark.runs.executors import server
from benchmark.runs.job import SweepOptions, SweepResult
from benchmark.runs.matrix import Matrix, gather
from benchmark.runs.preparing import prepare, refuse_weights, with_weights
from benchmark.runs.progress import Progress
from benchmark.utils.errors import UserError
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports.wording import counted


def run(study: Study, options: SweepOptions, echo: Tell = click.echo) -> SweepResult:
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
    refuse_weights(matrix.jobs if options.redo else matrix.of("missing", "damaged", "running", *again), matrix)
    counts = Counter(matrix.states[job.spec.identity].kind for job in matrix.jobs)
    kinds = [*status.KINDS, *(["damaged"] if counts["damaged"] else [])]
    echo(f"{study.name}: {counted(len(matrix.jobs), 'run')}, " + ", ".join(f"{counts[kind]} {kind}" for kind in kinds))
    runs = matrix.planned
    for line in (*matrix.remarks, *(() if options.redo else planned.code_changes(runs, "oodml status"))):
        echo(line)
    if options.redo:
        for job in matrix.of("done", "failed"):
            status.keep_before(job.folder)
            matrix.states[job.spec.identity] = status.look(job.folder)
    for job in matrix.of("damaged"):
        kept = status.set_aside(job.folder)
        if kept:
            echo(f"{job.label}: {matrix.states[job.spec.identity].text}; kept as "
                 f"{', '.join(path.name for path in kept)}, done again")
    _refresh(matrix, echo)
    _tell_other_files(matrix, workspace, echo)
    planned.save_plan(workspace, matrix.jobs, options.command, options.study)
    todo = matrix.of("missing", "damaged", "running", *again)
    if (failed := matrix.of("failed")) and not options.retry_failed:
        echo(f"{counted(len(failed), 'run that failed earlier is', 'runs that failed earlier are')} left alone; "
             "--retry-failed tries again, `oodml status` shows why")
    if todo and options.executor == "local":
        server.warm()  # it imports torch while weights and images are made ready, and GPUs are counted
    todo, lacking = with_weights(todo, options.weights_file, echo)
    result = SweepResult()
    if todo:
        prepare(todo, matrix, workspace)
        progress = Progress({job.spec.identity: cost.work(job.spec, job.label, matrix.split(job.spec)) for job in todo})
        try:
            result = engine.execute(todo, options.resources, progress)
        finally:
            progress.close()
            sys.stdout.flush()
    result.lacking = lacking
    result.jobs = matrix.jobs
    return result


def _refresh(matrix: Matrix, echo: Tell) -> None:
    """Update the split in finished records to the ladder as it is now: same classes, but distances may have changed."""
    stale = [job for job in matrix.of("done") if recording.refresh(job.folder, matrix.ladders[job.spec.dataset])]
    if stale:
        echo(f"{counted(len(stale), 'finished run is', 'finished runs are')} of an older ladder, and the new one has "
             "the same split: the records now have its number and distances")


def _tell_other_files(matrix: Matrix, workspace: Workspace, echo: Tell) -> None:
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
