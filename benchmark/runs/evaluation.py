"""What a run measures while it trains and at its end, and the epoch that each rule chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from benchmark.config.protocol import Protocol
from benchmark.data.task import Side, Task
from benchmark.metrics import operating_points, structure
from benchmark.metrics.clustering import nmi_f1
from benchmark.runs.job import HEADLINE
from benchmark.runs.scoring import Score, score
from benchmark.training.resuming import History


class Evaluation:
    """Embeds and scores the test side of a run, and its validation side where it has one, as often as it is called.

    The embeddings of the last call are kept: clustering, structure and thresholds are measured on them.
    """

    score: Score
    embeddings: Tensor

    def __init__(self, task: Task, protocol: Protocol, seed: int, embed: Callable[[np.ndarray], Tensor]) -> None:
        self.task, self.protocol, self.seed = task, protocol, seed
        self.embed = embed
        """The normalised embeddings of the images with these positions in the dataset."""
        self.validation: tuple[Tensor, np.ndarray] | None = None
        self.called = False

    def __call__(self) -> dict[str, dict[str, float]]:
        """Measures by side: 'test' and, if classes are held out, 'validation'."""
        test, held_out = self.task.test, self.task.validation
        self.embeddings = self.embed(test.ids)
        self.score = score(test, self.embeddings, self.task.domain_names)
        measures = {"test": self.score.scores}
        if self.protocol.clustering == "every":
            measures["test"] |= self.clustering()
        if held_out is not None and not held_out.unmatched:  # else every epoch scores alike, and none is chosen
            self.validation = self.embed(held_out.ids), held_out.labels
            measures["validation"] = score(held_out, self.validation[0], self.task.domain_names).scores
        self.called = True
        return measures

    def clustering(self) -> dict[str, float]:
        """NMI and F1 of k-means over the test side."""
        return nmi_f1(self.embeddings, self.task.test.labels, self.seed)

    def structure(self, training: Side) -> dict[str, Any]:
        """The shape of the embedding space, of the test side and, if the protocol asks for it, of the training side."""
        train: dict[str, Any] = {}
        if self.protocol.train_structure:
            train = structure.with_spectra(self.embed(training.ids), training.labels)
        return {"train": train, "test": structure.with_spectra(self.embeddings, self.task.test.labels)}

    def thresholds(self) -> dict[str, Any]:
        """What the record keeps of the similarities of all pairs, so that thresholds can be judged later."""
        return operating_points.of_run(self.embeddings, self.task.test.labels, self.validation)


def choose(history: History) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Test measures by each rule that picks an epoch, and the epoch it picks.

    `last` is the headline. `best-test` looks at the test set, as the papers' tables do; `validation` looks at
    held-out classes and is there only if some were held out that can tell one epoch from another.
    """
    evaluated = [entry for entry in history.epochs if "test" in entry]
    picks = {"last": evaluated[-1], "best-test": max(evaluated, key=lambda entry: entry["test"][HEADLINE])}
    if "validation" in evaluated[-1]:
        picks["validation"] = max(evaluated, key=lambda entry: entry["validation"][HEADLINE])
    return ({rule: entry["test"] for rule, entry in picks.items()},
            {rule: entry["epoch"] for rule, entry in picks.items()})


def curve(history: History) -> list[dict[str, Any]]:
    """Loss and headline score an epoch, for the training curve.

    >>> curve(History([{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.4, "test": {"recall@1": 0.7, "map@r": 0.3}}]))
    [{'epoch': 1, 'loss': 0.5}, {'epoch': 2, 'loss': 0.4, 'recall@1': 0.7}]
    """
    return [{"epoch": entry["epoch"], **({"loss": entry["loss"]} if "loss" in entry else {}),
             **({HEADLINE: entry["test"][HEADLINE]} if "test" in entry else {})} for entry in history.epochs]
