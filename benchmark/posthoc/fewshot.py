"""Few-shot adaptation of finished runs: a few images of every test class teach the last layer, the rest is searched.

ooDML, section 4.4, released code: 10 episodes a rung, only the last layer trained, margin loss with distance-weighted
mining and a fixed boundary, Adam at 1e-4, 1000 steps for 2 shots and 1500 for more. What the last layer works on is
computed once for each run, so support images are not augmented as they are there. The support images are those of the
released episodes where the ladder was imported with them and the dataset has their files, else drawn by a seed.
`fewshot.json` beside the record holds zero-shot and few-shot measures of the same queries, for each way of adapting.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmark.data.features import extract
from benchmark.data.store import ImageStore
from benchmark.data.task import Side, Task
from benchmark.data.weights import SCRATCH
from benchmark.datasets import DatasetIndex
from benchmark.posthoc.finished import UNTRAINED, Finished, FinishedRuns
from benchmark.runs.scoring import score
from benchmark.training import precision
from benchmark.utils.devices import best_device
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import Method, MethodError
from methods.margin import Margin
from methods.samplers.by_label import ClassTable
from reports.analysis.fewshot import NAME, SCHEMA, ways_of
from reports.analysis.statistics import t_interval
from reports.wording import decimal, duration
from splits import SplitError
from splits.episodes import EPISODES, Episode, few_shot_episodes, released_episodes
from splits.manifest import Ladder


@dataclass(frozen=True)
class Adaptation:
    """How the last layer is taught."""

    lr: float = 1e-4
    """Ten times that of training (released code)."""
    batch_size: int = 112
    iterations: int = 0
    """Steps; 0: 1000 for at most two shots, 1500 for more (released runs)."""
    episodes: int = EPISODES
    beta: float = 1.2
    """Boundary of the margin loss, not trained (released code)."""

    def steps(self, shots: int) -> int:
        return self.iterations or (1000 if shots <= 2 else 1500)


def run(workspace: Workspace, found: FinishedRuns, *, shots: tuple[int, ...], adaptation: Adaptation | None = None,
        device: str | None = None, tell: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Adapt finished runs, as `finished.matching` finds them with `untrained`.

    Args:
        shots: support images of each test class, one adaptation for each number.

    Returns:
        The path of `fewshot.json` of each run, whether written now or before.
    """
    adaptation = adaptation or Adaptation()
    index, ladder = found.index, found.ladder
    device = best_device(device)
    written = []
    unusable: set[str] = set()
    steps = [sum(adaptation.steps(k) for k in shots if str(k) not in _kept(one.folder, adaptation))
             for one in found.runs]  # that each run still needs, as far as its file tells
    seconds = taken = 0.0
    for number, one in enumerate(found.runs, 1):
        task = one.task(index, ladder)
        released = {}
        for k in shots:
            try:
                released[k] = official(ladder, one.spec.split, task.test, index.paths, k)
            except SplitError as error:
                released[k] = None
                if (line := f"{index.name}: support images are drawn by a seed, since {error}") not in unusable:
                    tell(line)
                unusable.add(line)
        missing = [k for k in shots if k not in done(one.folder, adaptation, {k: bool(released[k]) for k in shots})]
        most = max((k for k in missing if not released[k]), default=0)
        if np.bincount(task.test.labels).max(initial=0) < most + 2:  # before minutes of adapting to fewer
            raise _too_many(most)
        if missing:
            try:
                method, features = restore(one, task, one.images(index, workspace), device, index, workspace)
                layer = last_layer(method)
            except MethodError as error:
                tell(f"{one.spec.label()}: left out, {error} (run {number} of {len(found.runs)})")
                continue
            if device == "cpu" and not taken:
                tell(f"{adaptation.episodes} episodes of "
                     f"{' or '.join(f'{count:,}' for count in sorted({*map(adaptation.steps, shots)}))} steps for each "
                     "run and number of shots, on the CPU: fewer of `oodml fewshot --episodes N --iterations N` take "
                     "less, for a first look")
            for place, k in enumerate(missing, 1):
                began = time.perf_counter()
                adapted = adapt_all(method, layer, features, task.test, list(index.paths), k, one.spec.seed, adaptation,
                                    released[k])
                _merge(one, k, adapted, adaptation)
                lasted = time.perf_counter() - began
                seconds, taken = seconds + lasted, taken + adaptation.steps(k)
                ahead = sum(steps[number:]) + sum(map(adaptation.steps, missing[place:]))
                zero, few = (adapted[side]["recall@1"]["mean"] for side in ("zero", "few"))
                tell(f"{one.spec.label()}, {k} shots: recall@1 {100 * zero:.2f} -> {100 * few:.2f} % "
                     f"({decimal(100 * (few - zero), 2, signed=True)}, {lasted:.0f} s; "
                     f"run {number} of {len(found.runs)}"
                     f"{f', {duration(seconds / taken * ahead)} left' if ahead else ''})")
        written.append(one.folder / NAME)
    return written


def _too_many(shots: int) -> UserError:
    return UserError(f"no test class has two images beside {shots} for the support, so nothing is to be found: ask for "
                     "fewer --shots")


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


def last_layer(method: Method) -> nn.Module:
    """What is taught: the embedding layer, of several the last; a frozen network gets one that changes nothing yet."""
    if isinstance(method.embedding, nn.Identity):
        method.embedding = _identity(method)
    layer = method.embedding[-1] if isinstance(method.embedding, nn.Sequential) else method.embedding
    if not any(True for _ in layer.parameters()):
        raise MethodError("it has no last layer that could learn")
    return layer


def _identity(method: Method) -> nn.Module:
    """A linear layer x -> W x with W = I, so that zero-shot scores are those of the features."""
    where = next(method.backbone.parameters()).device
    layer = nn.Linear(method.backbone.dim, method.backbone.dim, bias=False, device=where)  # type: ignore[arg-type]
    nn.init.eye_(layer.weight)
    return layer.requires_grad_(False)


def adapt_all(method: Method, layer: nn.Module, features: Tensor, test: Side, paths: list[str], shots: int, seed: int,
              adaptation: Adaptation, released: list[Episode] | None = None) -> dict[str, Any]:
    """All episodes of one number of shots: means and 95 % t-intervals of zero-shot and few-shot measures.

    Episodes are the first of those `released`, or else drawn.
    """
    start = {key: value.clone() for key, value in layer.state_dict().items()}
    values: dict[str, dict[str, list[float]]] = {"zero": {}, "few": {}}
    facts: dict[str, Any] = {}
    names = [paths[i] for i in test.ids]
    episodes = (released or list(few_shot_episodes(names, test.labels, test.classes, test.classes, shots=[shots],
                                                   episodes=adaptation.episodes)))[:adaptation.episodes]
    for episode in episodes:
        layer.load_state_dict(start)
        if not _note(values["zero"], method, features, test, episode.query):
            raise _too_many(shots)
        facts = {"support": len(episode.support), "queries": len(episode.query), "too_small": len(episode.too_small)}
        mixed = hashlib.sha256(f"{seed}:{shots}:{episode.number}".encode()).digest()
        teach(method, layer, features[episode.support], torch.from_numpy(test.labels[episode.support]),
              adaptation, adaptation.steps(shots), int.from_bytes(mixed[:7], "big"))
        _note(values["few"], method, features, test, episode.query)
    layer.load_state_dict(start)
    return {"episodes": len(episodes), "source": "released" if released else "drawn",
            "iterations": adaptation.steps(shots), **facts,
            **{side: {name: _summary(each) for name, each in measured.items()} for side, measured in values.items()}}


def teach(method: Method, layer: nn.Module, features: Tensor, labels: Tensor, adaptation: Adaptation, steps: int,
          seed: int) -> None:
    """Train the last layer on the support's features by the margin loss, two images a class in a batch."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    table, size = ClassTable(labels), min(adaptation.batch_size, len(labels))
    objective = Margin(Margin.Settings(beta=adaptation.beta), int(labels.max()) + 1, 0).to(features.device)
    objective.requires_grad_(False)
    labels = labels.to(features.device)
    layer.requires_grad_(True)
    optimiser = torch.optim.Adam(layer.parameters(), lr=adaptation.lr)
    for _ in range(steps):
        chosen = table.batch(size, 2, generator).to(features.device)
        loss = objective(normalize(method.project(features[chosen]).float(), dim=-1), labels[chosen])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    layer.requires_grad_(False)


def done(folder: Path, adaptation: Adaptation, released: Mapping[int, bool] | None = None) -> set[int]:
    """The numbers of shots that were adapted in the same way already; `released` says which have released episodes."""
    return {int(k) for k, entry in _kept(folder, adaptation).items()
            if (entry.get("source") == "released") == (released or {}).get(int(k), False)}


@torch.no_grad()
def _note(values: dict[str, list[float]], method: Method, features: Tensor, test: Side, query: np.ndarray) -> bool:
    """Measure these queries and note it; whether any of them had something to find."""
    if not len(query):
        return False
    embeddings = torch.cat([normalize(method.project(part).float(), dim=-1) for part in features[query].split(4096)])
    side = Side(test.ids[query], test.labels[query], test.classes, None if test.roles is None else test.roles[query])
    result = score(side, embeddings)
    for name, value in result.scores.items():
        values.setdefault(name, []).append(value)
    return bool(result.queries.counted.any())


def _summary(values: list[float]) -> dict[str, Any]:
    mean, low, high = t_interval(values)
    bounds = {"low": low, "high": high} if len(values) > 1 else {}
    return {"mean": mean, **bounds, "values": values}


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
