"""What a study computes from its finished runs: few-shot, transfer, ensembles, interpolated weights, galleries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmark import datasets
from benchmark.board import leaderboard
from benchmark.config.study import Study
from benchmark.posthoc import ensemble, fewshot, finished, inspect, interpolate, transfer
from benchmark.posthoc.finished import Finished, FinishedRuns
from benchmark.runs.job import Job, SweepResult
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports.html.extras import INSPECTION


def follow_all(study: Study, result: SweepResult, workspace: Workspace, say: Tell = print) -> None:
    """Do the steps of a study after a sweep that went to its end."""
    if not (result.interrupted or result.ended or result.submitted):
        for step in study.after:
            follow(step, result.jobs, workspace, say)


def follow(step: dict[str, Any], jobs: list[Job], workspace: Workspace, say: Tell = print) -> None:
    """Do one step of a study on those of its runs that are finished; what was done already is kept."""
    done, kind = [job for job in jobs if job.done], step["step"]
    if kind == "fewshot":
        for runs in _runs_on(step["datasets"], done, workspace, untrained=True):
            fewshot.run(workspace, runs, shots=tuple(step["shots"]), tell=say)
    elif kind == "wise":
        for runs in _runs_on(step["datasets"], done, workspace):
            interpolate.run(workspace, runs, tell=say)
    elif kind == "cross":
        transfer.run(workspace, done, tell=say)
    elif kind == "inspect":
        wanted = {datasets.meant(name, workspace.splits) for name in step["datasets"]}
        here = [job.spec for job in done if _dataset(job, workspace) in wanted]
        names, own = (sorted(each) for each in ({spec.dataset for spec in here}, {spec.method for spec in here}))
        chosen = inspect.typical(leaderboard.collect(workspace, datasets=names).results, own) if names else []
        inspect.inspect_all(workspace, [run for run in chosen if not (run / INSPECTION).exists()], say, plane=False)
    elif kind == "ensemble":
        every = [Finished(job.folder, job.spec) for job in done]
        ensemble.run(workspace, step["union"], [run for run in every if run.has_weights], tell=say)


def _runs_on(names: list[str], done: list[Job], workspace: Workspace,
             untrained: bool = False) -> Iterator[FinishedRuns]:
    """The runs on each of these datasets whose methods were kept; a dataset without any is passed over."""
    for name in dict.fromkeys(datasets.meant(name, workspace.splits) for name in names):
        jobs = [job for job in done if _dataset(job, workspace) == name]
        runs = [Finished(job.folder, job.spec) for job in jobs]
        if here := [run for run in runs if run.has_weights or (untrained and run.kept)]:
            yield finished.matching(workspace, jobs[0].context.dataset, runs=here, untrained=untrained)


def _dataset(job: Job, workspace: Workspace) -> str:
    """What the dataset of a run is, to be compared with what a study names."""
    return datasets.meant(job.context.dataset, workspace.splits)
