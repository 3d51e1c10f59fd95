"""Between a run's start and its end: weights interpolated, nothing trained (WiSE-FT, Wortsman et al., CVPR 2022).

    theta(alpha) = (1 - alpha) theta_start + alpha theta_end

The start is the pretrained backbone with what the seed drew on top of it, so that at 0 the embedding layer is random.
`wise.json` beside the record holds the scores on the run's own test side for every alpha.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmark.data.store import ImageStore
from benchmark.data.task import Task
from benchmark.posthoc.bar import Bar
from benchmark.posthoc.finished import Finished, FinishedRuns
from benchmark.runs.scoring import score
from benchmark.training import train
from benchmark.utils.devices import best_device
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports.analysis.wise import NAME, SCHEMA
from reports.wording import counted

ALPHAS = tuple(part / 10 for part in range(11))


def mixed(start: Mapping[str, Tensor], end: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """The state between two of the same network; whole numbers, such as counts of batches, are those of the end.

    >>> import torch
    >>> mixed({"w": torch.tensor([0.0, 2.0])}, {"w": torch.tensor([1.0, 4.0])}, 0.25)["w"].tolist()
    [0.25, 2.5]
    """
    return {name: start[name].lerp(value, alpha) if value.is_floating_point() else value for name, value in end.items()}


def run(workspace: Workspace, found: FinishedRuns, *, alphas: Sequence[float] = ALPHAS, device: str | None = None,
        tell: Tell = lambda line: None) -> list[Path]:
    """Score finished runs, as `finished.matching` finds them, at every alpha; what is known is kept.

    Returns:
        The path of `wise.json` of each run.
    """
    device = best_device(device)
    known = [_read(one.folder / NAME, one.spec.identity) for one in found.runs]
    missing = [[alpha for alpha in alphas if f"{alpha:g}" not in scores] for scores in known]
    images = sum(len(one.task(found.index, found.ladder).test) * len(todo)
                 for one, todo in zip(found.runs, missing) if todo)
    if images:
        tell(f"{counted(sum(map(bool, missing)), 'run')} at up to {counted(max(map(len, missing)), 'alpha')}: "
             f"{images:,} images to embed")
    with Bar(images, tell) as bar:
        for number, (one, scores, todo) in enumerate(zip(found.runs, known, missing), 1):
            if todo:
                _interpolate(one, one.task(found.index, found.ladder), scores, todo,
                             one.images(found.index, workspace), device, bar)
                best = max(scores, key=lambda key: scores[key]["recall@1"])
                bar.tell(f"{one.spec.label()}: recall@1 {100 * scores[best]['recall@1']:.2f} % at alpha {best}"
                         + (f", {100 * scores['1']['recall@1']:.2f} % at the end" if "1" in scores else "")
                         + f" (run {number} of {len(found.runs)})")
    return [one.folder / NAME for one in found.runs]


def _interpolate(one: Finished, task: Task, scores: dict[str, Any], alphas: Sequence[float], store: ImageStore,
                 device: str, bar: Bar) -> None:
    """Add what a run scores at these alphas, and write the file beside its record."""
    method, loader = one.ready(len(task.train.classes), store, device)
    end = {name: value.cpu().clone() for name, value in method.state_dict().items()}
    start = one.start(len(task.train.classes)).state_dict()
    for alpha in alphas:
        bar.begin(f"{one.spec.label()} at alpha {alpha:g}")
        method.load_state_dict(mixed(start, end, alpha))
        embeddings = train.embed(method, loader, task.test.ids, one.protocol, device, bar.step)
        scores[f"{alpha:g}"] = score(task.test, embeddings, task.domain_names).scores
    one.write_beside(NAME, SCHEMA, alphas={key: scores[key] for key in sorted(scores, key=float)})


def _read(path: Path, identity: str) -> dict[str, Any]:
    """The scores that are known already, by alpha."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content["alphas"]) if (content["schema"], content["run"]) == (SCHEMA, identity) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
