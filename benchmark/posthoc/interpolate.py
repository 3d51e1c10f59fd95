"""Between a run's start and its end: weights interpolated, nothing trained (WiSE-FT, Wortsman et al., CVPR 2022).

    theta(alpha) = (1 - alpha) theta_start + alpha theta_end

The start is the pretrained backbone with what the seed drew on top of it, so that at 0 the embedding layer is random.
`wise.json` beside the record holds the scores on the run's own test side for every alpha.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmark.posthoc.finished import FinishedRuns
from benchmark.runs.scoring import score
from benchmark.training import train
from benchmark.utils.devices import best_device
from benchmark.utils.workspace import Workspace
from reports.analysis.wise import NAME, SCHEMA

ALPHAS = tuple(part / 10 for part in range(11))


def mixed(start: Mapping[str, Tensor], end: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """The state between two of the same network; whole numbers, such as counts of batches, are those of the end.

    >>> import torch
    >>> mixed({"w": torch.tensor([0.0, 2.0])}, {"w": torch.tensor([1.0, 4.0])}, 0.25)["w"].tolist()
    [0.25, 2.5]
    """
    return {name: start[name].lerp(value, alpha) if value.is_floating_point() else value for name, value in end.items()}


def run(workspace: Workspace, found: FinishedRuns, *, alphas: Sequence[float] = ALPHAS, device: str | None = None,
        tell: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Score finished runs, as `finished.matching` finds them, at every alpha; what is known is kept.

    Returns:
        The path of `wise.json` of each run.
    """
    device = best_device(device)
    written = []
    for number, one in enumerate(found.runs, 1):
        known = _read(one.folder / NAME, one.spec.identity)
        missing = [alpha for alpha in alphas if f"{alpha:g}" not in known]
        if missing:
            task = one.task(found.index, found.ladder)
            method, loader = one.ready(len(task.train.classes), one.images(found.index, workspace), device)
            end = {name: value.cpu().clone() for name, value in method.state_dict().items()}
            start = one.start(len(task.train.classes)).state_dict()
            for alpha in missing:
                method.load_state_dict(mixed(start, end, alpha))
                embeddings = train.embed(method, loader, task.test.ids, one.protocol, device)
                known[f"{alpha:g}"] = score(task.test, embeddings, task.domain_names).scores
            one.write_beside(NAME, SCHEMA, alphas={key: known[key] for key in sorted(known, key=float)})
            best = max(known, key=lambda key: known[key]["recall@1"])
            tell(f"{one.spec.label()}: recall@1 {100 * known[best]['recall@1']:.2f} % at alpha {best}"
                 + (f", {100 * known['1']['recall@1']:.2f} % at the end" if "1" in known else "")
                 + f" (run {number} of {len(found.runs)})")
        written.append(one.folder / NAME)
    return written


def _read(path: Path, identity: str) -> dict[str, Any]:
    """The scores that are known already, by alpha."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content["alphas"]) if (content["schema"], content["run"]) == (SCHEMA, identity) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
