"""Teaching the last layer of a trained network a few images of every test class, and measuring what that changes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmark.data.task import Side
from benchmark.runs.scoring import score
from benchmark.utils.errors import UserError
from methods import Method, MethodError
from methods.margin import Margin
from methods.samplers.by_label import ClassTable
from reports.analysis.statistics import t_interval
from splits.episodes import EPISODES, Episode, few_shot_episodes


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


def too_few_images(shots: int) -> UserError:
    return UserError(f"no test class has two images beside {shots} for the support, so nothing is to be found: ask for "
                     "fewer --shots")


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
            raise too_few_images(shots)
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
