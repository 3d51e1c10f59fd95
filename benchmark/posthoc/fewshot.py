"""Few-shot adaptation of finished runs: a few images of every test class teach the last layer, the rest is searched.

ooDML, section 4.4, released code: 10 episodes a rung, only the last layer trained, margin loss with distance-weighted
mining and a fixed boundary, Adam at 1e-4, 1000 steps for 2 shots and 1500 for more. What the last layer works on is
computed once for each run, so support images are not augmented as they are there. The support images are those of the
released episodes where the ladder was imported with them and the dataset has their files, else drawn by a seed.
`fewshot.json` beside the record holds zero-shot and few-shot measures of the same queries, for each way of adapting.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.data.features import extract
from benchmark.data.store import ImageStore
from benchmark.data.task import Side, Task
from benchmark.data.weights import SCRATCH
from benchmark.datasets import DatasetIndex
from benchmark.posthoc.adaptation import Adaptation, adapt_all, last_layer, too_few_images
from benchmark.posthoc.finished import UNTRAINED, Finished, FinishedRuns
from benchmark.training import precision
from benchmark.utils.devices import best_device
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from methods import Method, MethodError
from reports.analysis.fewshot import NAME, SCHEMA, ways_of
from reports.wording import decimal, duration
from splits import SplitError
from splits.episodes import Episode, released_episodes
from splits.manifest import Ladder


def run(workspace: Workspace, found: FinishedRuns, *, shots: tuple[int, ...], adaptation: Adaptation | None = None,
        device: str | None = None, tell: Tell = lambda line: None) -> list[Path]:
    """Adapt finished runs, as `finished.matching` finds them with `untrained`.

    Args:
        shots: support images of each test class, one adaptation for each number.

    Returns:
        The path of `fewshot.json` of each run, whether written now or before.
    """
    adaptation = adaptation or Adaptation()
    device = best_device(device)
    steps_of = [sum(adaptation.steps(k) for k in shots if str(k) not in _kept(one.folder, adaptation))
                for one in found.runs]  # that each run still needs, as far as its file tells
    pace, told = Pace(), set[str]()
    written = []
    for number, one in enumerate(found.runs, 1):
        place = f"run {number} of {len(found.runs)}"
        task = one.task(found.index, found.ladder)
        released, why_drawn = _released(found, one, task.test, shots)
        for line in why_drawn:
            if line not in told:
                tell(line)
                told.add(line)
        missing = [k for k in shots if k not in done(one.folder, adaptation, {k: bool(released[k]) for k in shots})]
        most = max((k for k in missing if not released[k]), default=0)
        if np.bincount(task.test.labels).max(initial=0) < most + 2:  # before minutes of adapting to fewer
            raise too_few_images(most)
        if missing:
            try:
                method, features = restore(one, task, one.images(found.index, workspace), device, found.index,
                                           workspace)
                layer = last_layer(method)
            except MethodError as error:
                tell(f"{one.spec.label()}: left out, {error} ({place})")
                continue
            if device == "cpu" and not pace.steps:
                tell(_on_the_cpu(adaptation, shots))
            for position, k in enumerate(missing, 1):
                with pace.over(adaptation.steps(k)):
                    adapted = adapt_all(method, layer, features, task.test, list(found.index.paths), k, one.spec.seed,
                                        adaptation, released[k])
                _merge(one, k, adapted, adaptation)
                left = pace.left(sum(steps_of[number:]) + sum(map(adaptation.steps, missing[position:])))
                zero, few = (100 * adapted[side]["recall@1"]["mean"] for side in ("zero", "few"))
                tell(f"{one.spec.label()}, {k} shots: recall@1 {zero:.2f} -> {few:.2f} % "
                     f"({decimal(few - zero, 2, signed=True)}, {pace.last:.0f} s; {place}{left})")
        written.append(one.folder / NAME)
    return written


@dataclass
class Pace:
    """How fast adaptations go, and so how long those that are left will take."""

    seconds: float = 0.0
    steps: int = 0
    last: float = 0.0
    """Seconds of the adaptation before."""

    @contextmanager
    def over(self, steps: int) -> Iterator[None]:
        """Takes the time of so many steps."""
        began = time.perf_counter()
        yield
        self.last = time.perf_counter() - began
        self.seconds, self.steps = self.seconds + self.last, self.steps + steps

    def left(self, steps: int) -> str:
        """How long so many steps will take, as the end of a line."""
        return f", {duration(self.seconds / self.steps * steps)} left" if steps else ""


def _on_the_cpu(adaptation: Adaptation, shots: tuple[int, ...]) -> str:
    steps = " or ".join(f"{count:,}" for count in sorted({*map(adaptation.steps, shots)}))
    return (f"{adaptation.episodes} episodes of {steps} steps for each run and number of shots, on the CPU: fewer of "
            "`oodml fewshot --episodes N --iterations N` take less, for a first look")


def _released(found: FinishedRuns, one: Finished, test: Side,
              shots: tuple[int, ...]) -> tuple[dict[int, list[Episode] | None], list[str]]:
    """The released episodes of a run's split by the number of shots, and a line for each cause why some that came are
    not used.
    """
    released: dict[int, list[Episode] | None] = {}
    causes: dict[str, list[str]] = {}
    for k in shots:
        try:
            released[k] = official(found.ladder, one.spec.split, test, found.index.paths, k)
        except SplitError as error:
            released[k] = None
            causes.setdefault(str(error), []).append(str(k))
    return released, [f"{found.index.name}: support images for {', '.join(numbers)} "
                      f"shot{'' if numbers == ['1'] else 's'} are drawn by a seed, since "
                      f"{cause}" for cause, numbers in causes.items()]


def official(ladder: Ladder, split: int, test: Side, paths: Sequence[str], shots: int) -> list[Episode] | None:
    """The released episodes of a split, if the ladder came with some; a SplitError where their files are not here."""
    episodes = ladder.episodes.get(str(split), {}).get(str(shots))
    return episodes and released_episodes(episodes, [paths[i] for i in test.ids], test.labels, test.classes, shots)


def restore(one: Finished, task: Task, store: ImageStore, device: str, index: DatasetIndex,
            workspace: Workspace) -> tuple[Method, Tensor]:
    """The method of a run, and what its last layer sees of every test image; of a frozen network its kept features."""
    method, loader = one.ready(len(task.train.classes), store, device)
    if one.spec.weights != SCRATCH and one.spec.method in UNTRAINED:
        vectors = extract(index, store, method.backbone, name=one.protocol.backbone, weights_hash=one.spec.weights,
                          transform=loader.transform, folder=workspace.cache, device=device, progress=False)
        return method, torch.from_numpy(vectors[task.test.ids]).to(device)
    with torch.no_grad(), precision.forward(one.protocol, device):
        parts = [method.features(loader.evaluate(ids)).float() for ids in torch.from_numpy(task.test.ids).split(512)]
    return method, torch.cat(parts)


def done(folder: Path, adaptation: Adaptation, released: Mapping[int, bool] | None = None) -> set[int]:
    """The numbers of shots that were adapted in the same way already; `released` says which have released episodes."""
    return {int(k) for k, entry in _kept(folder, adaptation).items()
            if (entry.get("source") == "released") == (released or {}).get(int(k), False)}


def _read(folder: Path) -> list[dict[str, Any]]:
    """Each way of adapting with what was measured by it, the newest first; nothing where the file cannot be used.

    That is where there is none, where it is damaged, or of another version.
    """
    try:
        adapted = json.loads((folder / NAME).read_text(encoding="utf-8"))
        ways = [{key: way[key] for key in ("adaptation", "shots")} for way in ways_of(adapted)]
        whole = adapted["schema"] == SCHEMA and all(isinstance(part, dict) for way in ways for part in way.values())
        return ways if whole else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _kept(folder: Path, adaptation: Adaptation) -> dict[str, Any]:
    """What was measured before, by shots, if it was adapted in the same way."""
    return next((way["shots"] for way in _read(folder) if way["adaptation"] == asdict(adaptation)), {})


def _merge(one: Finished, shots: int, measured: dict[str, Any], adaptation: Adaptation) -> None:
    """Add these shots to the run's file; what was adapted in another way stays beside them."""
    own = asdict(adaptation)
    others = [way for way in _read(one.folder) if way["adaptation"] != own]
    one.write_beside(NAME, SCHEMA, adaptation=own, shots={**_kept(one.folder, adaptation), str(shots): measured},
                     **({"others": others} if others else {}))
