"""What a study computes from its finished runs: few-shot, transfer, ensembles, interpolated weights, galleries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmark.config.study import Study
from benchmark.data import weights
from benchmark.posthoc import ensemble, fewshot, finished, inspect, interpolate, leaderboard, transfer
from benchmark.posthoc.finished import Finished
from benchmark.runs.job import Job, SweepResult
from benchmark.utils.workspace import Workspace
from reports.html.extras import INSPECTION


def follow_all(study: Study, result: SweepResult, workspace: Workspace, say: Callable[[str], None] = print) -> None:
    """Do the steps of a study after a sweep that went to its end."""
    if not (result.interrupted or result.ended or result.submitted):
        for step in study.after:
            follow(step, result.jobs, workspace, say)


def follow(step: dict[str, Any], jobs: list[Job], workspace: Workspace, say: Callable[[str], None] = print) -> None:
    """Do one step of a study on those of its runs that are finished; what was done already is kept."""
    done = [job for job in jobs if job.done]
    runs = {job.folder: Finished(job.folder, job.spec) for job in done}
    trained = {folder: run for folder, run in runs.items() if (folder / weights.RUN).is_file()}
    if step["step"] == "fewshot":
        for name in step["datasets"]:
            here = [runs[job.folder] for job in done if job.context.dataset == name and runs[job.folder].kept]
            if here:
                asked = finished.asked(workspace, name, runs=here, untrained=True)
                fewshot.run(workspace, asked, shots=tuple(step["shots"]), tell=say)
        return
    if step["step"] == "wise":
        for name in step["datasets"]:
            here = [trained[job.folder] for job in done if job.context.dataset == name and job.folder in trained]
            if here:
                interpolate.run(workspace, finished.asked(workspace, name, runs=here), tell=say)
        return
    if step["step"] == "cross":
        transfer.run(workspace, done, tell=say)
        return
    if step["step"] == "inspect":
        names = sorted({job.spec.dataset for job in done if job.context.dataset in step["datasets"]})
        chosen = inspect.typical(leaderboard.collect(workspace, datasets=names).results) if names else []
        inspect.inspect_all(workspace, [run for run in chosen if not (run / INSPECTION).exists()], say, plane=False)
        return
    ensemble.run(workspace, step["union"], trained.values(), tell=say)
