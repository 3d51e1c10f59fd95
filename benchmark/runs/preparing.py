"""What comes before runs, once for all of them: their weights are there and fit, their images are decoded."""

from __future__ import annotations

from pathlib import Path

from benchmark.data import weights
from benchmark.data.store import open_store
from benchmark.runs.job import Job
from benchmark.runs.matrix import Matrix
from benchmark.utils.errors import UserError
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace

FEW = 3
"""Backbones without weights that are told of one by one."""


def refuse_weights(jobs: list[Job], matrix: Matrix) -> None:
    """Refuse a file of weights that does not fit its backbone: once, before each of these runs would.

    A finished run shows that its weights fit; loading them takes seconds, with torch.
    """
    fit = {(job.spec.protocol.backbone, job.spec.weights) for job in matrix.of("done")}
    given = {(job.spec.protocol.backbone, job.context.weights_file) for job in jobs if weights.is_users(
        job.spec.weights, job.context.weights_file) and (job.spec.protocol.backbone, job.spec.weights) not in fit}
    for name, file in sorted(given, key=str):
        weights.pretrained(name, file)


def with_weights(todo: list[Job], weights_file: str | None, echo: Tell) -> tuple[list[Job], int]:
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


def prepare(jobs: list[Job], matrix: Matrix, workspace: Workspace) -> None:
    """Decode images once, before many workers ask for them."""
    for name, side in dict.fromkeys((job.context.dataset, job.spec.protocol.decoded_side) for job in jobs):
        open_store(matrix.indexes[name], Path(workspace.cache), shorter=side)
