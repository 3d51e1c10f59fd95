"""What a study computes from its finished runs: few-shot adaptation, transfer to other datasets, ensembles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmark import weights
from benchmark.afterwards import cross, ensemble, fewshot
from benchmark.afterwards.finished import Finished
from benchmark.executors import Job
from benchmark.workspace import Workspace


def follow(step: dict[str, Any], jobs: list[Job], workspace: Workspace, say: Callable[[str], None] = print) -> None:
    """Do one step of a study on those of its runs that are finished; what was done already is kept."""
    done = [job for job in jobs if job.done]
    if step["step"] == "fewshot":
        for name in step["datasets"]:
            here = [job.spec for job in done if job.context.dataset == name]
            if here:
                fewshot.run(workspace, dataset=name, chosen=",".join(dict.fromkeys(spec.method for spec in here)),
                            splits=",".join(map(str, sorted({spec.split for spec in here}))),
                            shots=tuple(step["shots"]), tell=say)
        return
    if step["step"] == "cross":
        cross.run(workspace, done, tell=say)
        return
    trained = [Finished(job.folder, job.spec) for job in done if (job.folder / weights.RUN).is_file()]
    ensemble.run(workspace, step["union"], trained, tell=say)
